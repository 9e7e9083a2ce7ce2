"""A file of questions: one JSON object per line, in Spec-Bench's spelling of the fields or in ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.arguments import text
from ..base.errors import SpecdecError, TextError


class WorkloadError(SpecdecError):
    """A file of questions that cannot be read as one, or a task that does not exist."""


@dataclass(frozen=True)
class Question:
    """One conversation to be had: what the user says, turn by turn.

    Attributes:
        id: unique within its file.
        task: a name in `TASKS` for the own prompts; anything for a file of yours.
        turns: the user's messages in order, at least one.
        ids: the token ids of a prompt that is not made of messages; ``turns`` is then one empty text.
    """

    id: str
    task: str
    turns: tuple[str, ...]
    ids: tuple[int, ...] = ()


# Spec-Bench (Xia et al. 2024, arXiv:2401.07851) keeps the categories of MT-Bench, of which its multi-turn
# conversation task is made; its other categories are tasks by themselves.
MULTI_TURN = "multi-turn conversation"
_MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")


def read_questions(path: str | Path) -> list[Question]:
    """The questions of a JSON Lines file: one JSON object per line, blank lines skipped.

    Two spellings of the fields are read, each with `turns`, a list of the user's messages:

    - Spec-Bench's: `question_id` (a whole number or a string) and `category`. The eight categories of
      MT-Bench (writing, roleplay, ..., humanities) become the one task "multi-turn conversation", as they
      are there; any other category is the task.
    - ours: `id` and `task`.

    Other fields (`reference`, `title`, ...) are ignored.

    Raises:
        WorkloadError: the file cannot be opened, is empty, is not plain UTF-8, or a line of it is not such
            an object or repeats an id; the message names file and line.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "questions.jsonl")
        >>> with open(path, "w") as file:
        ...     _ = file.write('{"question_id": 7, "category": "stem", "turns": ["Why?", "And then?"]}')
        >>> read_questions(path)
        [Question(id='7', task='multi-turn conversation', turns=('Why?', 'And then?'), ids=())]
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read ({error.strerror or error}).") from error
    return parse_questions(data, str(path))


def parse_questions(data: bytes, name: str) -> list[Question]:
    r"""The questions of a file's bytes, as `read_questions` reads them; `name` is the file's, for messages.

    Raises:
        WorkloadError: as `read_questions`.

    Example:
        >>> try:
        ...     parse_questions(b'\n{"id": "a-1", "task": "a", "turns": "Why?"}', "a.jsonl")
        ... except WorkloadError as error:
        ...     print(error)
        a.jsonl, line 2: 'turns' is a string; expected a list of user messages, at least one.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise WorkloadError(f"{name} is UTF-16 text; expected UTF-8. Save it again as UTF-8.")
    if data.startswith(b"\xef\xbb\xbf"):
        raise WorkloadError(
            f"{name}, line 1: begins with a byte order mark; expected '{{'. Save it as UTF-8 without BOM."
        )
    questions: list[Question] = []
    line_of: dict[str, int] = {}
    # Split at "\n" alone: str.splitlines would also cut at U+2028, which JSON allows inside a string.
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        question = _question(line, f"{name}, line {number}")
        if question.id in line_of:
            raise WorkloadError(
                f"{name}, line {number}: id {question.id!r} was already used on line {line_of[question.id]}; "
                "expected an id of its own for each question."
            )
        line_of[question.id] = number
        questions.append(question)
    if not questions:
        raise WorkloadError(f"{name} holds no question; expected one JSON object per line.")
    return questions


def _question(line: bytes, where: str) -> Question:
    """The question of one line; `where` is its file and number, for messages."""
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"{where}: byte 0x{line[error.start]:02x} at position {error.start + 1} is not UTF-8; "
            "expected UTF-8 text. Save the file as UTF-8."
        ) from error
    except (ValueError, RecursionError) as error:
        # JSONDecodeError's own text would name line 1: the only line that it was shown.
        why = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise WorkloadError(
            f"{where}: not JSON ({why}); expected one whole object, such as "
            '{"question_id": 1, "category": "qa", "turns": ["..."]}.'
        ) from error
    if not isinstance(record, dict):
        raise WorkloadError(f"{where}: found {_kind(record)}; expected an object with id, task and turns.")
    id_ = _field(record, ("question_id", "id"), where)
    if isinstance(id_, bool) or not isinstance(id_, (int, str)) or id_ == "":
        raise WorkloadError(f"{where}: the id is {id_!r}; expected a whole number or a non-empty string.")
    task = _field(record, ("category", "task"), where)
    if not isinstance(task, str) or not task.strip():
        raise WorkloadError(f"{where}: the task is {task!r}; expected a non-empty string.")
    turns = _field(record, ("turns",), where)
    if not isinstance(turns, list) or not turns:
        found = "an empty list" if turns == [] else _kind(turns)
        raise WorkloadError(f"{where}: 'turns' is {found}; expected a list of user messages, at least one.")
    for position, turn in enumerate(turns, start=1):
        if not isinstance(turn, str) or not turn.strip():
            found = "blank" if isinstance(turn, str) else _kind(turn)
            raise WorkloadError(f"{where}: turn {position} is {found}; expected a user message, a string.")
    parts = {"the id or the task": f"{id_} {task}", **{f"turn {n}": turn for n, turn in enumerate(turns, start=1)}}
    try:
        for part, written in parts.items():
            text(f"{where}: {part}", written)
    except TextError as error:
        raise WorkloadError(str(error)) from None
    # A file that says `category` speaks Spec-Bench; one that says `task` means the task it names.
    if "category" in record and task in _MT_BENCH:
        task = MULTI_TURN
    return Question(str(id_), task, tuple(turns))


def _field(record: dict[str, Any], names: tuple[str, ...], where: str) -> Any:
    for name in names:
        if name in record:
            return record[name]
    wanted = " or ".join(repr(name) for name in names)
    has = ", ".join(repr(name) for name in record) or "none"
    raise WorkloadError(f"{where}: no field {wanted}; expected one. The fields there are: {has}.")


def _kind(value: Any) -> str:
    """What a JSON value is, in JSON's words."""
    if value is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "an object")
