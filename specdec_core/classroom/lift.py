"""Read a submission, whatever became of it on the way, and lift its answers out; nothing in it is run here.

The grader has this done by a process with bounds (`lift_apart`), for a file may be made to be costly to read.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .alone import mark, marked, refused
from .apart import TOO_MUCH, answering, apart
from .sheets import sheets

MOST_BYTES = 256_000_000
MOST_ANSWER = 100_000  # characters
# nbval's instructions to skip cells or forgive errors
_MARKERS = {"NBVAL_IGNORE_OUTPUT", "NBVAL_CHECK_OUTPUT", "NBVAL_RAISES_EXCEPTION", "NBVAL_SKIP"}
_MARKERS.add("PYTEST_VALIDATE_IGNORE_OUTPUT")

# What can become of a file, besides "graded". A teacher reads these, and may act on them.
NOT_READ = "not readable"
TOO_LARGE = "too large"
NOT_JSON = "not JSON"
NOT_NOTEBOOK = "not a notebook"
OTHER_VERSION = "notebook of another version"
UNKNOWN = "unknown exercise"
NO_ANSWERS = "no answer cells"


@dataclass
class Submission:
    """A file, and what could be lifted from it.

    Attributes:
        path: the file.
        digest: SHA-256 of its bytes; empty where it could not be read.
        outcome: one of the names above, or empty if it can be graded.
        exercise: whose answers these are.
        answers: question -> source of its cell.
        states: question -> why it has no answer: "missing", "duplicate", "not a code cell", "too long", "refused".
        refused: question -> the rule that the answer breaks, in words.
        notes: what the teacher should know.
    """

    path: Path
    digest: str = ""
    outcome: str = ""
    exercise: str = ""
    answers: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def lift_apart(path: Path) -> Submission:
    """`lift`, by a process with bounds on its time and memory."""
    said = apart("lift", str(path))
    if isinstance(said, str):
        outcome = TOO_LARGE if said.startswith(TOO_MUCH) else NOT_READ
        return Submission(path, outcome=outcome, notes=[f"to be read: {said}"])
    return Submission(path, **said)


def lift(path: Path) -> Submission:
    """Read a file and lift its answers by cell id; where ids were lost, by metadata or the first line of the cell."""
    found = Submission(path)
    notebook = _notebook(path, found)
    if notebook is None:
        return found
    cells = notebook["cells"]
    found.exercise = _exercise(notebook, path)
    if not found.exercise:
        found.outcome = UNKNOWN
        found.notes.append("neither its metadata, nor its cells, nor its name say which exercise it is")
        return found
    sheet = sheets()[found.exercise]
    for wanted in sheet["cells"]:
        if wanted["role"] == "answer":
            _answer(wanted, cells, found)
        elif wanted["role"] == "check":
            _compare(wanted, cells, found)
    if set(found.states.values()) == {"missing"} and len(found.states) == len(sheet["questions"]):
        found.outcome = NO_ANSWERS
        found.notes.append("no cell has the id of an answer; were the cells copied into a new notebook?")
    return found


def _notebook(path: Path, found: Submission) -> dict[str, Any] | None:
    def refuse(outcome: str, *notes: str) -> None:
        found.outcome = outcome
        found.notes.extend(notes)

    try:
        size = path.stat().st_size
        if not path.is_file():  # a pipe would be read for ever
            return refuse(NOT_READ, "not a file")
        if size > MOST_BYTES:
            return refuse(TOO_LARGE, f"{size / 1e6:.0f} MB; clear its outputs")
        data = path.read_bytes()
    except OSError as error:
        return refuse(NOT_READ, str(error.strerror))
    found.digest = hashlib.sha256(data).hexdigest()
    try:
        content = json.loads(_text(data, found))
    except (ValueError, RecursionError):
        return refuse(NOT_JSON, "empty file" if not data.strip() else "is it whole?")
    if not isinstance(content, dict) or not isinstance(content.get("nbformat"), int):
        return refuse(NOT_NOTEBOOK)
    if content["nbformat"] != 4:
        return refuse(OTHER_VERSION, f"nbformat {content['nbformat']}; expected 4: open it in JupyterLab and save it")
    cells = content.get("cells")
    if not isinstance(cells, list) or not all(_is_cell(cell) for cell in cells):
        return refuse(NOT_NOTEBOOK)
    for cell in cells:
        source = cell["source"]
        text = source if isinstance(source, str) else "".join(source)
        cell["source"] = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(data) > 10_000_000:
        found.notes.append(f"{len(data) / 1e6:.0f} MB; its outputs were ignored")
    return content


def _text(data: bytes, found: Submission) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        found.notes.append("not UTF-8; read as Windows-1252")
        return data.decode("cp1252", errors="replace")


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return False
    source = cell.get("source")
    whole = isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))
    return whole and isinstance(cell.get("metadata", {}), dict)


def _exercise(notebook: dict[str, Any], path: Path) -> str:
    """By the metadata; else by the ids of the cells; else by the name of the file."""
    metadata = notebook.get("metadata")
    mark = metadata.get("specdec") if isinstance(metadata, dict) else None
    named = mark.get("exercise") if isinstance(mark, dict) else None
    if isinstance(named, str) and named in sheets():
        return named
    for name, sheet in sheets().items():
        ids = {cell["id"] for cell in sheet["cells"] if cell["role"] != "given"}
        for cell in notebook["cells"]:
            own = cell.get("id") if isinstance(cell.get("id"), str) else ""
            if ids & {own, _grade_id(cell)} or marked(cell["source"]) in sheet["questions"]:
                return name
    return next((name for name in sheets() if path.name.startswith((name, name[:4]))), "")


def _grade_id(cell: dict[str, Any]) -> str:
    """The id that nbgrader, or Colab, keeps in the metadata."""
    metadata = cell.get("metadata", {})
    inner = metadata.get("nbgrader")
    for value in (inner.get("grade_id") if isinstance(inner, dict) else None, metadata.get("id")):
        if isinstance(value, str):
            return value
    return ""


def _named(wanted: dict[str, str], cells: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The cells that stand for one of ours, and what they were found by: "id", "metadata", or "first line"."""
    for by, is_it in (
        ("id", lambda cell: cell.get("id") == wanted["id"]),
        ("metadata", lambda cell: _grade_id(cell) == wanted["id"]),
        ("first line", lambda cell: wanted["role"] == "answer" and marked(cell["source"]) == wanted["question"]),
    ):
        if found := [cell for cell in cells if is_it(cell)]:
            return found, by
    return [], ""


def _answer(wanted: dict[str, str], cells: list[dict[str, Any]], found: Submission) -> None:
    question = wanted["question"]
    named, by = _named(wanted, cells)
    source = named[0]["source"] if named else ""
    if not named:
        found.states[question] = "missing"
    elif len(named) > 1:
        found.states[question] = "duplicate"
        found.notes.append(f"{question}: {len(named)} cells claim to be the answer; none was graded")
    elif named[0]["cell_type"] != "code":
        found.states[question] = "not a code cell"
        found.notes.append(f"{question}: the answer is a {named[0]['cell_type']} cell")
    elif len(source) > MOST_ANSWER:
        found.states[question] = "too long"
    elif why := refused(source):
        found.states[question], found.refused[question] = "refused", why
    else:
        kept = [line for line in source.split("\n") if line.strip().lstrip("#").strip() not in _MARKERS]
        found.answers[question] = "\n".join(kept)
        if by != "id":
            found.notes.append(f"{question}: the cell had lost its id and was found by its {by}")
        others = [cell for cell in cells if cell is not named[0] and marked(cell["source"]) == question]
        if any(cell["source"] != source for cell in others):
            found.notes.append(f"{question}: another cell says that it is the answer; the one in its place was graded")


def _compare(wanted: dict[str, str], cells: list[dict[str, Any]], found: Submission) -> None:
    named, _ = _named(wanted, cells)
    if not named:
        found.notes.append(f"{wanted['question']}: its check cell is gone; ours was run")
    elif any(cell["source"].strip() != wanted["source"].strip() for cell in named):
        found.notes.append(f"{wanted['question']}: its check cell was edited; ours was run")


def notebook_of(exercise: str, answers: dict[str, str]) -> dict[str, Any]:
    """The notebook that is run: our cells, with the answers in their places and stubs where there are none."""
    cells = []
    for cell in sheets()[exercise]["cells"]:
        question = cell.get("question", "")
        source = answers.get(question, cell["source"]) if cell["role"] == "answer" else cell["source"]
        if cell["role"] == "answer" and marked(source) != question:  # its first line is gone; `check` looks for it
            source = f"{mark(question)}\n{source}"
        metadata = {"specdec": {"role": cell["role"], "question": question}}
        made = {"cell_type": "code", "id": cell["id"], "metadata": metadata, "source": source}
        cells.append({**made, "outputs": [], "execution_count": None})
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}


if __name__ == "__main__":
    with answering() as answer:
        found = asdict(lift(Path(sys.argv[1])))
        del found["path"]
        answer(found)
