"""What the methods are raced on: the project's own prompts by task, and files of questions.

Whether a drafter that looks its draft up pays depends on how much of the answer already stands in the
context, so the own prompts come in eight tasks that differ in exactly that; two more, for methods that remember
what is not in the context, run when they are asked for by name. `own` reads them; the bench gives each question
to `conversation`, which turns it into token ids, one call of the model per user turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from ..model.chat import Tokenizer, encode
from .questions import Question, WorkloadError, parse_questions


@dataclass(frozen=True)
class Task:
    """One kind of work.

    Attributes:
        expect: a guess at what a lookup finds, with its reason, for the reader to check against a run.
        on_request: whether it runs only if it is asked for by name: what a method remembers is outside the prompt.
    """

    name: str
    description: str
    expect: str
    on_request: bool


_LINES = (files(__package__) / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
KNOWN = {task.name: task for task in (Task(**json.loads(line)) for line in _LINES)}
TASKS = {name: task for name, task in KNOWN.items() if not task.on_request}
FURTHER = {name: task for name, task in KNOWN.items() if task.on_request}


def own(tasks: str | Iterable[str] | None = None, limit: int | None = None) -> list[Question]:
    """The project's own questions, task by task.

    Args:
        tasks: names in `TASKS` and `FURTHER`, in the order wanted; None for all of `TASKS`.
        limit: at most this many questions of each task (the first ones), at least 1; None for all.

    Raises:
        WorkloadError: an unknown task, no task at all, or a limit below 1.

    Example:
        >>> [question.id for question in own(["math", "chat"], limit=2)]
        ['math-01', 'math-02', 'chat-01', 'chat-02']
    """
    wanted = TASKS if tasks is None else [tasks] if isinstance(tasks, str) else tasks
    names = list(dict.fromkeys(wanted))
    if unknown := [name for name in names if name not in KNOWN]:
        raise WorkloadError(f"no task {', '.join(map(repr, unknown))}; choose from: {', '.join(KNOWN)}.")
    if not names:
        raise WorkloadError(f"no task was chosen; choose from: {', '.join(KNOWN)}.")
    if limit is not None and limit < 1:
        raise WorkloadError(f"limit is {limit}; expected at least 1 question per task, or None for all.")
    folder = files(__package__) / "prompts"
    return [
        question
        for name in names
        for question in parse_questions((folder / f"{name}.jsonl").read_bytes(), f"{name}.jsonl")[:limit]
    ]


def conversation(
    question: Question,
    tokenizer: Tokenizer | None,
    answer: Callable[[list[int]], Sequence[int]],
    system: str | None = None,
) -> Iterator[tuple[list[int], list[int]]]:
    """Have the conversation of a question: one call of `answer` per user turn, earlier answers in its prompt.

    An answer enters the next prompt as text, without special tokens or space around it, as a chat server
    would send it; the ids of that text may differ from the ids that were generated.

    Args:
        question: its turns are asked in order; one of token ids has a single turn, and needs no tokenizer.
        tokenizer: of transformers; see `encode`.
        answer: from the ids of a prompt, (L,), to the ids of the new tokens only, (n,).
        system: the system message.

    Yields:
        After each answer the prompt, earlier turns and answers included, and the answer.

    Example:
        >>> class Letters:
        ...     chat_template = None
        ...     def __call__(self, text):
        ...         return {"input_ids": [ord(character) for character in text]}
        ...     def decode(self, ids, skip_special_tokens=False):
        ...         return "".join(map(chr, ids))
        >>> question = Question("1", "chat", ("Hi", "Why?"))
        >>> for prompt_ids, answer_ids in conversation(question, Letters(), lambda ids: [111, 107]):  # always "ok"
        ...     print(len(prompt_ids), answer_ids)
        20 [111, 107]
        47 [111, 107]
    """
    answers: list[str] = []
    for index in range(len(question.turns)):
        prompt_ids = list(question.ids) or encode(question.turns[: index + 1], tokenizer, system, answers)
        answer_ids = [int(token) for token in answer(list(prompt_ids))]
        yield prompt_ids, answer_ids
        if index + 1 < len(question.turns):
            answers.append(tokenizer.decode(answer_ids, skip_special_tokens=True).strip())
