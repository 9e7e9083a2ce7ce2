"""The project's own prompts, files of questions, and how a conversation becomes token ids."""

import json
from collections import Counter

import pytest

from specdec_core.model import fetch, manifest
from specdec_core.race.questions import MULTI_TURN, Question, WorkloadError, read_questions
from specdec_core.race.workloads import FURTHER, TASKS, conversation, encode, own

# Prompt lengths in tokens of the default model, chat template and system message included. The grounded
# tasks need something to copy from; the ungrounded ones must not have it.
BOUNDS = {
    "summarize": (250, 500),
    "edit_code": (150, 500),
    "complete_code": (150, 500),
    "quote": (150, 500),
    "translate": (80, 250),
    "chat": (40, 150),
    "math": (40, 120),
    "write": (30, 80),
    "session": (70, 120),
    "write_code": (50, 120),
}
EVERY = {**TASKS, **FURTHER}


# The own prompts


def test_every_task_has_prompts_and_a_reason_to_expect_something():
    assert list(EVERY) == list(BOUNDS)
    assert Counter(question.task for question in own()).keys() == TASKS.keys(), "the others are asked for by name"
    per_task = Counter(question.task for question in own(EVERY))
    assert per_task.keys() == EVERY.keys()
    assert min(per_task.values()) >= 6
    for name, task in EVERY.items():
        assert task.name == name
        assert task.description.endswith(".") and "\n" not in task.description
        assert task.expect.endswith(".") and ": " in task.expect


def test_ids_are_unique_and_say_their_task():
    questions = own(EVERY)
    for task in EVERY:
        ids = [question.id for question in questions if question.task == task]
        assert ids == [f"{task}-{n:02d}" for n in range(1, len(ids) + 1)]


def test_no_turn_is_there_twice_and_none_has_space_around_it():
    turns = [turn for question in own(EVERY) for turn in question.turns]
    words = Counter(" ".join(turn.lower().split()) for turn in turns)
    assert [turn for turn, times in words.items() if times > 1] == []
    assert [turn for turn in turns if turn != turn.strip()] == []


def test_chat_has_three_turns_and_the_rest_one():
    assert {(question.task == "chat", len(question.turns)) for question in own(EVERY)} == {(True, 3), (False, 1)}


def test_code_in_prompts_is_python():
    for question in own(["edit_code", "complete_code"]):
        code = question.turns[0].split("```python\n")[1].split("\n```")[0]
        compile(code, question.id, "exec")
        assert 10 <= len(code.splitlines()) <= 40, question.id


def test_a_session_shows_no_answer_in_its_requests():
    """What repeats is the answers: a request names its own class, and has no code to copy."""
    turns = [question.turns[0] for question in own("session")]
    assert len({turn.replace(turn.split("`")[1], "").split(" that takes ")[0] for turn in turns}) == 1
    assert not any("self" in turn or "return" in turn for turn in turns)


def test_functions_to_write_begin_as_python_and_have_no_body():
    for question in own("write_code"):
        code = question.turns[0].split("```python\n")[1].split("\n```")[0]
        compile(code, question.id, "exec")  # a docstring is a body
        assert code.endswith('"""') and len(code.splitlines()) <= 8, question.id


def test_prompt_lengths_in_tokens():
    folder = fetch.place()
    if problems := manifest.problems(folder):
        pytest.skip(f"the default model is not in the cache ({problems[0]}); run `specdec model fetch`")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    outside = {
        question.id: length
        for question in own(EVERY)
        if not BOUNDS[question.task][0]
        <= (length := len(encode(question.turns[0], tokenizer)))
        <= BOUNDS[question.task][1]
    }
    assert outside == {}


def test_own_chooses_tasks_in_the_order_asked_and_limits_each():
    assert [question.id for question in own(["write", "math", "write"], limit=1)] == ["write-01", "math-01"]
    assert own("math") == own(["math"]) == [question for question in own() if question.task == "math"]
    assert own(limit=10_000) == own()


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"tasks": ["math", "sums"]}, "no task 'sums'; choose from: summarize,"),
        ({"tasks": []}, "no task was chosen"),
        ({"limit": 0}, "limit is 0"),
    ],
)
def test_own_refuses(arguments, says):
    with pytest.raises(WorkloadError, match=says):
        own(**arguments)


# Files of questions


def line(**fields):
    return json.dumps({"question_id": 1, "category": "qa", "turns": ["Who?"], **fields})


def test_reads_spec_bench_and_ours_and_skips_blank_lines(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [
        line(category="roleplay", turns=["Be a pirate.", "Now sing."], reference=["", "Yo ho"]),
        "",
        line(question_id=2, category="math_reasoning"),
        "   ",
        line(question_id="3b", category="math"),
        json.dumps({"id": "math-1", "task": "math", "title": "Sum", "turns": ["1 + 1?"]}),
    ]
    path.write_bytes("\r\n".join(rows).encode())  # as an editor on Windows saves it
    assert read_questions(path) == [
        Question("1", MULTI_TURN, ("Be a pirate.", "Now sing.")),
        Question("2", "math_reasoning", ("Who?",)),
        Question("3b", MULTI_TURN, ("Who?",)),
        Question("math-1", "math", ("1 + 1?",)),
    ]


@pytest.mark.parametrize(
    "category", ["writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"]
)
def test_the_categories_of_mt_bench_are_one_task(tmp_path, category):
    path = tmp_path / "questions.jsonl"
    path.write_text(line(category=category))
    assert [question.task for question in read_questions(str(path))] == [MULTI_TURN]


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": 1, "task": "qa", "turns": ["one\u2028two é 漢 🙂"]}', encoding="utf-8")
    assert read_questions(path)[0].turns == ("one\u2028two é 漢 🙂",)


def test_own_files_are_files_of_questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    written = own("chat")
    rows = [json.dumps({"id": q.id, "task": q.task, "turns": q.turns}) for q in written]
    path.write_text("\n".join(rows), encoding="utf-8")
    assert read_questions(path) == written


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", ["holds no question", "one JSON object per line"]),
        (b"\n \n\r\n", ["holds no question"]),
        (b'{"turns": ["a"', ["line 1", "not JSON", "at column 15", "expected one whole object"]),
        (f"{line()}\nhello".encode(), ["line 2", "not JSON"]),
        (f"{line()}\n\n{line()[:-1]}".encode(), ["line 3", "not JSON"]),
        (b"[" * 200_000, ["line 1", "not JSON"]),
        (b"\xef\xbb\xbf" + line().encode(), ["line 1", "byte order mark", "without BOM"]),
        (line().encode("utf-16"), ["UTF-16", "expected UTF-8"]),
        (f"{line()}\n".encode() + line(turns=["caf?"]).encode().replace(b"?", b"\xe9"), ["line 2", "0xe9"]),
        (b'["a"]', ["line 1", "found a list", "expected an object"]),
        (b"null", ["found null"]),
        (b'{"category": "qa", "turns": ["a"]}', ["no field 'question_id' or 'id'", "'category', 'turns'"]),
        (b'{"id": 1, "turns": ["a"]}', ["no field 'category' or 'task'"]),
        (b'{"id": 1, "task": "qa", "turn": ["a"]}', ["line 1", "no field 'turns'", "'turn'"]),
        (line(turns=[]).encode(), ["'turns' is an empty list", "at least one"]),
        (line(turns="Who?").encode(), ["'turns' is a string", "expected a list"]),
        (line(turns=None).encode(), ["'turns' is null"]),
        (line(turns=["a", 3]).encode(), ["turn 2 is a number"]),
        (line(turns=["a", {}]).encode(), ["turn 2 is an object"]),
        (line(turns=["\t "]).encode(), ["turn 1 is blank"]),
        (line(turns=["\ud83d"]).encode(), ["turn 1: character 1 is"]),
        (line(question_id=True).encode(), ["the id is True"]),
        (line(question_id=1.5).encode(), ["the id is 1.5", "whole number"]),
        (line(question_id="").encode(), ["the id is ''"]),
        (line(category=7).encode(), ["the task is 7"]),
        (line(category=" ").encode(), ["the task is ' '"]),
        (f"{line()}\n\n{line(turns=['b'])}".encode(), ["line 3", "id '1' was already used on line 1"]),
        (f"{line()}\n{line(question_id='1')}".encode(), ["line 2", "already used on line 1"]),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_what_was_expected(tmp_path, data, says):
    path = tmp_path / "bad questions.jsonl"
    path.write_bytes(data)
    with pytest.raises(WorkloadError) as caught:
        read_questions(path)
    assert str(caught.value).startswith(str(path))
    assert [words for words in says if words not in str(caught.value)] == []


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(WorkloadError, match="absent.jsonl cannot be read"):
        read_questions(tmp_path / "absent.jsonl")
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_questions(tmp_path)


# Token ids


class Characters:
    """A tokenizer of one id a character. It marks speakers with control characters, which are special."""

    chat_template = "there is one"
    marks = {"system": "\x01", "user": "\x02", "assistant": "\x03"}

    def wrap(self, ids, return_dict):
        """What `apply_chat_template` returns: each of the two subclasses has a way of its own."""
        raise NotImplementedError

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, return_dict=None):
        assert tokenize and add_generation_prompt
        text = "".join(self.marks[message["role"]] + message["content"] for message in messages) + "\x03"
        return self.wrap([ord(character) for character in text], return_dict)

    def __call__(self, text):
        return {"input_ids": [ord(character) for character in text]}

    def decode(self, ids, skip_special_tokens=False):
        return "".join(chr(i) for i in ids if i > 3 or not skip_special_tokens)


class Old(Characters):
    """transformers 4: a list by default."""

    def wrap(self, ids, return_dict):
        return {"input_ids": ids} if return_dict else ids


class New(Characters):
    """transformers 5: a BatchEncoding by default."""

    def wrap(self, ids, return_dict):
        from transformers import BatchEncoding

        return ids if return_dict is False else BatchEncoding({"input_ids": ids, "attention_mask": ids})


class Bare(Characters):
    """No chat template."""

    chat_template = None

    def apply_chat_template(self, *_, **__):
        raise AssertionError("this tokenizer has no chat template")


@pytest.mark.parametrize("tokenizer", [Old(), New()], ids=["old", "new"])
def test_encode_gives_a_list_of_ids_whatever_the_release_returns_by_default(tokenizer):
    ids = encode(["Hi", "Why?"], tokenizer, system="Be brief.", answers=["Hello"])
    assert type(ids) is list
    assert "".join(map(chr, ids)) == "\x01Be brief.\x02Hi\x03Hello\x02Why?\x03"
    assert encode("Hi", tokenizer) == encode(["Hi"], tokenizer) == [ord(c) for c in "\x02Hi\x03"]


def test_encode_without_a_template_is_plain_text():
    ids = encode(["Hi", "Why?"], Bare(), system="Be brief.", answers=["Hello"])
    assert "".join(map(chr, ids)) == "Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Why?\n\nAssistant:"


@pytest.mark.parametrize("turns, answers", [(["a", "b"], []), (["a"], ["x"]), ([], [])])
def test_encode_refuses_turns_that_do_not_end_with_an_unanswered_one(turns, answers):
    with pytest.raises(ValueError, match=f"{len(turns)} user turns and {len(answers)} answers"):
        encode(turns, Old(), answers=answers)


@pytest.mark.parametrize("tokenizer", [Old(), New(), Bare()], ids=["old", "new", "bare"])
def test_conversation_puts_earlier_answers_in_later_prompts(tokenizer):
    said = iter([" one \x03", "two", "three\x03"])
    prompts = []

    def answer(ids):
        prompts.append(ids)
        return (ord(character) for character in next(said))

    turns = list(conversation(Question("q", "chat", ("a", "b", "c")), tokenizer, answer, system="s"))

    assert [prompt for prompt, _ in turns] == prompts
    assert prompts == [
        encode(["a"], tokenizer, "s"),
        encode(["a", "b"], tokenizer, "s", ["one"]),
        encode(["a", "b", "c"], tokenizer, "s", ["one", "two"]),
    ]
    # The answer's ids are what the model gave, its end token included.
    assert [tokenizer.decode(answer_ids) for _, answer_ids in turns] == [" one \x03", "two", "three\x03"]


def test_conversation_survives_an_answer_that_edits_its_prompt_and_one_of_no_tokens():
    def answer(ids):
        ids.clear()
        return []

    turns = list(conversation(Question("q", "chat", ("a", "b")), Old(), answer))
    assert turns == [
        (encode("a", Old()), []),
        (encode(["a", "b"], Old(), answers=[""]), []),
    ]


def test_conversation_asks_one_turn_at_a_time():
    asked = []
    turns = conversation(Question("q", "chat", ("a", "b")), Old(), lambda ids: asked.append(ids) or [65])
    next(turns)
    assert len(asked) == 1


def test_conversation_with_the_tokenizer_of_this_transformers():
    """The installed release's own `apply_chat_template`, over a tokenizer of nine words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "user", "assistant", ":", "hello", "why", "because", "and", "then"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}assistant :{% endif %}"
    )
    turns = list(conversation(Question("q", "chat", ("hello why", "and then")), tokenizer, lambda ids: [6]))
    assert [prompt for prompt, _ in turns] == [
        [1, 3, 4, 5, 2, 3],
        [1, 3, 4, 5, 2, 3, 6, 1, 3, 7, 8, 2, 3],
    ]
