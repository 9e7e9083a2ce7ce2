"""What the methods are raced on: the project's own prompts by task, and files of questions.

Whether a drafter that looks its draft up pays depends on how much of the answer already stands in the
context, so the own prompts come in eight tasks that differ in exactly that; two more, for methods that remember
what is not in the context, run when they are asked for by name. `own` reads them; the bench gives each question
to `conversation`, which turns it into token ids, one call of the model per user turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..model.chat import encode
from .questions import Question, WorkloadError, parse_questions, read_questions

__all__ = [
    "FURTHER", "TASKS", "Prompt", "Question", "Task", "Turn", "WorkloadError", "conversation", "encode", "own",
    "read_questions",
]


@dataclass(frozen=True)
class Prompt:
    """A prompt of token ids; beside it there are `Question`s, whose turns are texts."""

    id: str
    task: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """One kind of work. `expect` is a guess with its reason, for the reader to check against a run."""

    name: str
    description: str
    expect: str


@dataclass(frozen=True)
class Turn:
    """One call of the model within a conversation.

    Attributes:
        index: 0 for the first user turn.
        prompt_ids: everything the model reads, earlier turns and answers included.
        answer_ids: what it answered.
    """

    index: int
    prompt_ids: list[int]
    answer_ids: list[int]


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "summarize",
            "Summarize an article of about 250 words.",
            "Names and phrases of the article return in the summary: short copies, more of them the less the "
            "model rephrases.",
        ),
        Task(
            "edit_code",
            "Make a small change to a Python function and return all of it.",
            "Most of the answer stands in the prompt: long copies, broken at each change.",
        ),
        Task(
            "complete_code",
            "Continue a Python file whose beginning repeats an idiom.",
            "The idiom returns with other names in it: copies of medium length, broken at each name.",
        ),
        Task(
            "quote",
            "Copy given passages of a document word for word.",
            "The answer is one stretch of the prompt: long copies once its beginning is found.",
        ),
        Task(
            "translate",
            "Translate a short text from or into English, five languages.",
            "Source and answer share little but names and numbers: few copies, unless a model with little "
            "training in the language falls into repeating itself.",
        ),
        Task(
            "chat",
            "Three turns, the later ones asking to change what was answered before.",
            "Later turns ask for earlier answers with a change: long copies from the second turn on, as far "
            "as the model keeps to what it said.",
        ),
        Task(
            "math",
            "Solve a word problem.",
            "The numbers and nouns of the problem return, the reasoning between them does not: short copies.",
        ),
        Task(
            "write",
            "Write a short piece freely from one sentence.",
            "The prompt holds next to nothing of the answer: copies only of what the model itself has just "
            "written.",
        ),
    )
}

# Tasks for one method's sake, asked for by name: what it remembers is outside the prompt.
FURTHER: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "session",
            "Eight requests of one kind, one after another, as an agent sends them.",
            "Each answer has the structure of the answers before it, which no prompt shows: long copies for a method "
            "that remembers earlier requests, short ones for one that reads the prompt alone.",
        ),
        Task(
            "write_code",
            "Write a common Python function from its signature.",
            "The prompt holds little of the answer, other people's code much of its idioms: short copies from a "
            "datastore of code, next to none from the prompt.",
        ),
    )
}


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
    known = {**TASKS, **FURTHER}
    if unknown := [name for name in names if name not in known]:
        raise WorkloadError(f"no task {', '.join(map(repr, unknown))}; choose from: {', '.join(known)}.")
    if not names:
        raise WorkloadError(f"no task was chosen; choose from: {', '.join(known)}.")
    if limit is not None and limit < 1:
        raise WorkloadError(f"limit is {limit}; expected at least 1 question a task, or None for all.")
    folder = files(__package__) / "prompts"
    return [
        question
        for name in names
        for question in parse_questions((folder / f"{name}.jsonl").read_bytes(), f"{name}.jsonl")[:limit]
    ]


def conversation(
    question: Question,
    tokenizer: Any,
    answer: Callable[[list[int]], Sequence[int]],
    system: str | None = None,
) -> Iterator[Turn]:
    """Have the conversation of a question: one call of `answer` per user turn, earlier answers in its prompt.

    An answer enters the next prompt as text, without special tokens or space around it, as a chat server
    would send it; the ids of that text may differ from the ids that were generated.

    Args:
        question: its turns are asked in order.
        tokenizer: of transformers; see `encode`.
        answer: from the ids of a prompt, (L,), to the ids of the new tokens only, (n,).
        system: the system message.

    Yields:
        One `Turn` after each answer.

    Example:
        >>> class Letters:
        ...     chat_template = None
        ...     def __call__(self, text):
        ...         return {"input_ids": [ord(character) for character in text]}
        ...     def decode(self, ids, skip_special_tokens=False):
        ...         return "".join(map(chr, ids))
        >>> question = Question("1", "chat", ("Hi", "Why?"))
        >>> for turn in conversation(question, Letters(), lambda ids: [111, 107]):  # always "ok"
        ...     print(turn.index, len(turn.prompt_ids), turn.answer_ids)
        0 20 [111, 107]
        1 47 [111, 107]
    """
    answers: list[str] = []
    for index in range(len(question.turns)):
        prompt_ids = encode(question.turns[: index + 1], tokenizer, system, answers)
        answer_ids = [int(token) for token in answer(list(prompt_ids))]
        answers.append(tokenizer.decode(answer_ids, skip_special_tokens=True).strip())
        yield Turn(index, prompt_ids, answer_ids)
