"""`specdec generate`: what is shown when, what is marked, and how it ends."""

import io

import numpy as np
import pytest
import tiny_model
import torch
from pieces import Pieces

from specdec_core.commands.cli import main
from specdec_core.commands.generate import marked, show
from specdec_core.core.contract import DrafterBase
from specdec_core.core.engine import stream
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.race.workloads import own


class Oracle(DrafterBase):
    """Drafts what `cycle` says comes next: the first `right` tokens right, one more wrong."""

    def __init__(self, right, vocab_size):
        self.right, self.vocab_size = right, vocab_size

    def propose(self, context, budget, rng):
        V, root = self.vocab_size, context[-1]
        draft = [(root + i) % V for i in range(1, self.right + 1)] + [(root + self.right) % V]
        return DraftTree.chain(root, draft[: min(budget.nodes, budget.depth)])


def cycle(vocab_size):
    """0, 1, 2, ..., V - 1, 0, ... for certain."""
    return TableLM(np.roll(np.eye(vocab_size), 1, axis=1) * 9)


def run(pieces, right=2, stop=(), **options):
    tokenizer = Pieces(*pieces)
    lm = cycle(len(pieces))
    return stream(lm, [0], Oracle(right, len(pieces)), stop=Stop((), stop, tokenizer), **options), tokenizer


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_accepted_tokens_are_marked_and_the_targets_own_are_not():
    answer, tokenizer = run("abcdefgh", max_new_tokens=6)
    assert list(marked(answer, tokenizer)) == [("bc", True), ("d", False), ("ef", True), ("g", False)]


def test_a_clipped_step_ends_in_an_accepted_token():
    answer, tokenizer = run("abcdefgh", max_new_tokens=5)
    assert list(marked(answer, tokenizer))[-1] == ("ef", True)


def test_text_waits_while_a_stop_string_may_still_take_it_back():
    answer, tokenizer = run(["<", "a", "b", "E", "N", "D", "x", "y"], right=1, stop=["ENx"], max_new_tokens=7)
    # Steps are (a b), (E N), (D x), (y): "EN" is held back until "D" shows that it is no stop string.
    assert list(marked(answer, tokenizer)) == [
        ("a", True), ("b", False), ("E", True), ("N", False), ("D", True), ("x", False), ("y", True),
    ]  # fmt: skip
    answer, tokenizer = run(["<", "a", "b", "E", "N", "D", "x", "y"], right=1, stop=["END"], max_new_tokens=7)
    assert list(marked(answer, tokenizer)) == [("a", True), ("b", False)]
    assert answer.result().finish_reason == "stop_string"


def test_text_waits_for_the_rest_of_a_character():
    answer, tokenizer = run(["<", "a", b"\xf0\x9f", b"\x99\x82", "!", "?"], right=1, max_new_tokens=4)
    # The second step completes the character; its bytes end with a token that was accepted.
    assert list(marked(answer, tokenizer)) == [("a", True), ("\U0001f642", True), ("!", False)]


def test_brackets_in_a_file_and_on_a_terminal_without_color(monkeypatch):
    for out, no_color in ((io.StringIO(), ""), (Terminal(), "1")):
        monkeypatch.setenv("NO_COLOR", no_color)
        answer, tokenizer = run("abcdefgh", max_new_tokens=6)
        assert show(answer, tokenizer, out) == 0
        text, _, last = out.getvalue().rpartition("\n\n")
        assert text == "[bc]d[ef]g"
        assert last.startswith("6 tokens in 2 calls: 3.00 tokens per call, ")
        assert last.endswith("ended by length\n") and last.count("\n") == 1


def test_underline_and_color_on_a_terminal():
    out = Terminal()
    answer, tokenizer = run("abcdefgh", max_new_tokens=3)
    show(answer, tokenizer, out)
    assert out.getvalue().startswith("\x1b[4;36mbc\x1b[0md\n")


def test_ctrl_c_keeps_the_text_and_the_line():
    answer, tokenizer = run("abcdefgh", max_new_tokens=6)

    class Impatient(io.StringIO):
        def flush(self):
            if self.getvalue().endswith("d"):
                raise KeyboardInterrupt

    out = Impatient()
    assert show(answer, tokenizer, out) == 130
    assert out.getvalue().startswith("[bc]d\n\n3 tokens in 1 calls") and out.getvalue().endswith(
        "; interrupted\n"
    )


def test_no_token_at_all():
    out = io.StringIO()
    answer, tokenizer = run("abc", max_new_tokens=0)
    assert show(answer, tokenizer, out) == 0
    assert out.getvalue().startswith("\n\n0 tokens in 0 calls: 0.00 tokens per call")


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def specdec(folder, capsys):
    threads = torch.get_num_threads()

    def specdec(*arguments):
        status = main(
            ["generate", "--model", str(folder), "--dtype", "float32", "--device", "cpu", *arguments]
        )
        return (status, *capsys.readouterr())

    yield specdec
    torch.set_num_threads(threads)


def answer_of(out):
    return out.rpartition("\n\n")[0].replace("[", "").replace("]", "")


def test_every_method_gives_one_answer(specdec):
    outs = {
        method: specdec("Hello hello", "--max-new-tokens", "40", "--method", method)
        for method in ("autoregressive", "prompt_lookup", "prompt_lookup:num_tokens=2,match=first")
    }
    assert {status for status, _, _ in outs.values()} == {0}
    assert len({answer_of(out) for _, out, _ in outs.values()}) == 1
    assert "40 tokens in 40 calls: 1.00 tokens per call" in outs["autoregressive"][1]
    assert "[" not in outs["autoregressive"][1]
    assert "40 tokens in 40 calls" not in outs["prompt_lookup"][1]


def test_the_prompt_comes_from_standard_input_raw_or_as_a_message(specdec, monkeypatch):
    given = []
    from specdec_core.core import engine

    real = engine.stream

    def spy(lm, prompt, *arguments, **options):
        given.append(tiny_model.tokenizer().decode(prompt))
        return real(lm, prompt, *arguments, **options)

    monkeypatch.setattr(engine, "stream", spy)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi there\n"))
    assert specdec("-", "--max-new-tokens", "1")[0] == 0
    assert specdec("Hi there", "--raw", "--max-new-tokens", "1")[0] == 0
    status, _, err = specdec("--max-new-tokens", "1")
    assert status == 0 and "No prompt was given; this is edit_code-01" in err
    assert given[:2] == ["user: Hi there\nassistant: ", "Hi there"]
    assert given[2] == f"user: {own('edit_code')[0].turns[0]}\nassistant: "


def test_a_stop_string_ends_the_answer_before_it(specdec):
    _, out, _ = specdec("Hello hello", "--max-new-tokens", "40", "--method", "autoregressive")
    text = answer_of(out)
    stop = text[10:12]
    status, out, _ = specdec("Hello hello", "--max-new-tokens", "40", "--stop", "never this", "--stop", stop)
    assert status == 0
    assert answer_of(out) == text[: text.index(stop)]
    assert "ended by stop_string" in out


def test_sampling_follows_the_seed(specdec):
    first, same, other = (
        answer_of(
            specdec("Hello", "--max-new-tokens", "30", "--temperature", "1", "--top-k", "50", "--seed", seed)[
                1
            ]
        )
        for seed in ("1", "1", "2")
    )
    assert first == same != other


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["Hi", "--method", "lookup"], "no method 'lookup'; choose from: autoregressive, prompt_lookup"),
        (["Hi", "--method", "prompt_lookup:max_n=0"], "max_n must be at least 1; got 0"),
        (["Hi", "--stop", ""], "an empty stop string would end"),
        (["", "--raw"], "pass at least one token id"),
        (["Hi", "--max-new-tokens", "3", "--min-new-tokens", "4"], "at most max_new_tokens, 3; got 4"),
        (["x" * 5000], "shorten the prompt to at most 4095 tokens"),
    ],
)
def test_the_command_explains_what_it_cannot_do(specdec, arguments, says):
    status, out, err = specdec(*arguments)
    assert status == 2 and out == ""
    assert says in err


def test_log_probabilities_stand_below_the_answer_a_line_a_token():
    answer, tokenizer = run("abcdefgh", max_new_tokens=3, logprobs=True)
    out = io.StringIO()
    show(answer, tokenizer, out)
    each = f"{9 - np.log(np.exp(9) + 7):9.4f}"
    assert out.getvalue().endswith(f"ended by length\n{each}  'b'\n{each}  'c'\n{each}  'd'\n")


def test_the_command_gives_log_probabilities(specdec):
    status, out, _ = specdec("Hello hello", "--max-new-tokens", "5", "--min-new-tokens", "5", "--logprobs")
    lines = out.splitlines()[-5:]
    assert status == 0 and "5 tokens in" in out and all(float(line[:9]) <= 0 for line in lines)


def test_an_empty_standard_input_is_refused(specdec, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    status, _, err = specdec("-")
    assert status == 2 and "standard input is empty" in err


@pytest.mark.parametrize("option", [["--top-p", "0"], ["--max-new-tokens", "-1"], ["--temperature", "nan"]])
def test_the_command_refuses_numbers_out_of_range(specdec, option, capsys):
    with pytest.raises(SystemExit) as refused:
        specdec("Hi", *option)
    assert refused.value.code == 2
    assert "expected a" in capsys.readouterr().err


def test_help_lists_every_execution_and_dtype():
    from specdec_core.commands import options
    from specdec_core.model.execution import CHOICES
    from specdec_core.model.hardware import DTYPES

    assert options.EXECUTIONS == CHOICES
    assert set(options.DTYPES) == {"auto", *DTYPES}
