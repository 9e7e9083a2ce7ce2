"""Exercise sheets: from ``solutions/exNN_name.py`` to notebooks, and to what the grader needs of them.

``python -m specdec_core.classroom.sheets`` writes, for every source, ``solutions/exNN_name.ipynb``,
``exercises/exNN_name.ipynb`` and the package's ``sheets.json``; with ``--check`` it only says what would change.

A source is a notebook in jupytext's percent format. A question is three cells of it, marked in their metadata:

* ``question="01.2"`` on a markdown cell: lines ``title:``, ``objective:``, ``prerequisite:`` (chapter and section),
  ``points:``, ``difficulty:`` (1 to 3) and ``minutes:``, then the text; a line ``# hint:`` begins each hint;
* ``answer="01.2"`` on a code cell: the solution. What stands between ``# BEGIN SOLUTION`` and ``# END SOLUTION`` is
  replaced by a line that raises, or by the lines after ``# GIVEN`` in it (written as comments), where the student
  is to mend something;
* ``check="01.2"`` on a code cell: the call of `check`.

Everything else is copied as it is.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ..base.errors import SpecdecError
from ..base.files import write
from .alone import mark

SHEETS = Path(__file__).with_name("sheets.json")
FIELDS = {"title": str, "objective": str, "prerequisite": str, "points": int, "difficulty": int, "minutes": int}
_BEGIN, _END, _GIVEN = "# BEGIN SOLUTION", "# END SOLUTION", "# GIVEN"
_IMPORT = "from specdec_core.classroom import check"
# What `alone` holds answers to, for their writer: each notebook says it.
RULE = """**The rule of the answers.** An answer is one cell, and is run by itself, by its check and at grading alike.
Its imports and helpers stand in that cell, below its first line; only numpy is there already, as `np`.
An answer is plain Python: lines that begin with `!` or `%` go into cells of your own.
It is written, not taken from `specdec_core`."""
_LEVELS = {1: "●○○", 2: "●●○", 3: "●●●"}


class SheetError(SpecdecError):
    """A source that breaks the format, said with its place."""


@cache
def sheets() -> dict[str, Any]:
    """All exercises as the grader knows them: id -> title, questions and code cells, by ``sheets.json``."""
    return json.loads(SHEETS.read_text(encoding="utf-8"))


def described(question: str) -> dict[str, Any]:
    """What the sheets say of a question: title, points and so on.

    Raises:
        SpecdecError: for a question that no sheet has.

    Example:
        >>> described("01.1")["title"]
        'The accept rule'
    """
    for sheet in sheets().values():
        if question in sheet["questions"]:
            return sheet["questions"][question]
    raise SpecdecError(f"there is no question {question!r}; a question is a chapter and a number, such as '01.2'.")


def sources(root: Path) -> list[Path]:
    """The sources, in order.

    Raises:
        SheetError: if there are none.
    """
    found = sorted((root / "solutions").glob("ex[0-9][0-9]_*.py"))
    if not found:
        raise SheetError(f"there is no exNN_*.py in {root / 'solutions'}; run this in the folder of the book.")
    return found


def build(source: Path) -> tuple[Any, Any, dict[str, Any]]:
    """A source as solution notebook, exercise notebook and sheet.

    Raises:
        SheetError: if a question is not whole: a field, a hint, a cell or the region of the solution is missing.
    """
    from ..book import contents as book

    number = source.stem[2:4]
    notebook = book.read(source)
    # Not paired with its source: what is edited in a generated notebook must not flow back.
    notebook.metadata.pop("jupytext", None)
    notebook.metadata["specdec"] = {"exercise": source.stem}
    notebook.cells[0].source += f"\n\n{RULE}"
    questions: dict[str, dict[str, Any]] = {}
    cells: list[dict[str, str]] = []
    exercise = copy.deepcopy(notebook)
    for cell, bare in zip(notebook.cells, exercise.cells, strict=True):
        roles = [role for role in ("question", "answer", "check") if role in cell.metadata]
        if not roles:
            if cell.cell_type == "code":
                cells.append({"id": cell.id, "role": "given", "source": cell.source})
            continue
        (role,) = roles
        name = str(cell.metadata[role])
        if not re.fullmatch(rf"{number}\.[1-9]", name):
            raise SheetError(f"{source.name}: question {name!r}; expected {number}.1, {number}.2, …")
        cell.id = bare.id = f"ex{name.replace('.', '-')}-{role}"
        cell.metadata.clear(), bare.metadata.clear()
        if role == "question":
            questions[name], text = _header(cell.source, name, source)
            cell.source = bare.source = text
            continue
        if name not in questions:
            raise SheetError(f"{source.name}: the {role} of {name} comes before its question.")
        if role == "answer":
            bare.source = f"{mark(name)}\n{stub(cell.source, name, questions[name]['title'], source)}"
            cell.source = f"{mark(name)}\n{_without_marks(cell.source)}"
        else:  # it does not take an answer's word for what `check` is
            cell.source = bare.source = f"{_IMPORT}\n{cell.source}"
            metadata = _nbgrader(cell.id, questions[name]["points"])
            cell.metadata["nbgrader"], bare.metadata["nbgrader"] = metadata, dict(metadata)
        cells.append({"id": cell.id, "role": role, "question": name, "source": bare.source})
    for name in questions:
        if {"answer", "check"} != {cell["role"] for cell in cells if cell.get("question") == name}:
            raise SheetError(f"{source.name}: question {name} needs one answer and one check.")
    title = re.match(r"# (.*)", notebook.cells[0].source)
    sheet = {"title": title[1] if title else source.stem, "questions": questions, "cells": cells}
    return notebook, exercise, sheet


def _header(text: str, name: str, source: Path) -> tuple[dict[str, Any], str]:
    """The fields of a question, and the markdown that its reader sees."""
    head, _, body = text.partition("\n\n")
    fields: dict[str, Any] = {}
    for line in head.splitlines():
        key, _, value = line.partition(":")
        if key not in FIELDS:
            raise SheetError(f"{source.name}: question {name} has a line {line!r}; fields are {', '.join(FIELDS)}.")
        fields[key] = FIELDS[key](value.strip())
    body, *hints = re.split(r"^hint:[ ]*\n?", body, flags=re.MULTILINE)
    if missing := [field for field in FIELDS if field not in fields]:
        raise SheetError(f"{source.name}: question {name} has no {', '.join(missing)}.")
    if len(hints) != 2:
        raise SheetError(f"{source.name}: question {name} has {len(hints)} hints; expected 2, the second pseudocode.")
    if fields["difficulty"] not in _LEVELS or fields["points"] < 1 or fields["minutes"] < 1:
        raise SheetError(f"{source.name}: question {name}: difficulty is 1 to 3, points and minutes are at least 1.")
    points = f"{fields['points']} point{'s' * (fields['points'] != 1)}"
    shown = [
        f"## {name} {fields['title']}",
        f"**{points}** · difficulty {_LEVELS[fields['difficulty']]} · about {fields['minutes']} minutes",
        f"*Afterwards you can* {fields['objective']}. *It builds on* chapter {fields['prerequisite']}.",
        body.strip(),
    ]
    for summary, hint in zip(("A hint", "Another hint, in pseudocode"), hints, strict=True):
        shown.append(f"<details><summary>{summary}</summary>\n\n{hint.strip()}\n\n</details>")
    return fields, "\n\n".join(shown)


def stub(text: str, name: str, title: str, source: Path) -> str:
    """An answer with its solution taken out.

    Example:
        >>> print(stub('def f(x):\\n    # BEGIN SOLUTION\\n    return x\\n    # END SOLUTION', "01.1", "T", Path("x")))
        def f(x):
            raise NotImplementedError("01.1 T: not answered yet")
    """
    lines, out, region = text.splitlines(), [], None
    for line in lines:
        if line.strip() == _BEGIN:
            region = []
        elif line.strip() == _END and region is not None:
            bare = [row.strip() for row in region]
            indent = re.match(r" *", line)[0]
            if _GIVEN in bare:
                given = region[bare.index(_GIVEN) + 1 :]
                out += [re.sub(r"^( *)# ?", r"\1", row) for row in given]
            else:
                out.append(f'{indent}raise NotImplementedError("{name} {title}: not answered yet")')
            region = None
        elif region is not None:
            region.append(line)
        else:
            out.append(line)
    if region is not None or len(out) == len(lines):
        raise SheetError(f"{source.name}: the answer to {name} needs a region {_BEGIN} … {_END}.")
    return "\n".join(out)


def _without_marks(text: str) -> str:
    """A solution as it is shown: without the marks, and without what the student was given."""
    kept, given = [], False
    for line in text.splitlines():
        bare = line.strip()
        given = (given or bare == _GIVEN) and bare != _END
        if not given and bare not in (_BEGIN, _END):
            kept.append(line)
    return "\n".join(kept)


def _nbgrader(grade_id: str, points: int) -> dict[str, Any]:
    """nbgrader's metadata, schema 3, of a check: a course can use it instead.

    An answer has none: nbgrader clears what it takes for a solution, and the stubs are to stay.
    """
    metadata = {"schema_version": 3, "grade": True, "solution": False, "locked": True, "task": False}
    return metadata | {"grade_id": grade_id, "points": points}


def table() -> str:
    """The questions of all exercises with their points, in Markdown, as the README of the exercises has it."""
    lines = ["| exercise | questions | points | minutes |", "|:--|--:|--:|--:|"]
    total = [0, 0, 0]
    for name, sheet in sheets().items():
        asked = sheet["questions"].values()
        row = [len(asked), sum(q["points"] for q in asked), sum(q["minutes"] for q in asked)]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(f"| [{sheet['title']}]({name}.ipynb) | " + " | ".join(map(str, row)) + " |")
    return "\n".join([*lines, "| all | " + " | ".join(map(str, total)) + " |"])


def _execute(notebook: Any, source: Path) -> None:
    """Run a solution notebook in place, by this interpreter; its checks print the same at every run."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    from ..book.build import how_to_run

    about = notebook.metadata.copy()
    try:
        NotebookClient(notebook, timeout=120, **how_to_run(source)).execute()
    except CellExecutionError as error:
        raise SheetError(f"{source.name}: a solution fails its own check.\n{error}") from error
    notebook.metadata = about


def wanted(root: Path, put: Callable[[Path, str], None] | None = None) -> dict[Path, str]:
    """All generated files and what should be in them. The solutions are executed.

    Args:
        put: is given the sheet before a solution is run, whose checks print what it says; the old one on failure.

    Raises:
        SheetError: if a source breaks the format, or a solution fails its check.
    """
    import nbformat

    built = {source: build(source) for source in sources(root)}
    all_sheets = {source.stem: sheet for source, (_, _, sheet) in built.items()}
    made = {SHEETS: json.dumps(all_sheets, indent=1, ensure_ascii=False) + "\n"}
    before = SHEETS.read_text("utf-8") if SHEETS.is_file() else None
    if put:
        put(SHEETS, made[SHEETS])
    try:
        for source, (solution, exercise, _) in built.items():
            _execute(solution, source)
            for folder, notebook in (("solutions", solution), ("exercises", exercise)):
                nbformat.validate(notebook)
                text = nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"
                made[root / folder / f"{source.stem}.ipynb"] = text
    except BaseException:
        if put and before is not None:
            put(SHEETS, before)
        raise
    return made


def main(argv: list[str] | None = None) -> int:
    about = "Make the notebooks of the exercises from solutions/exNN_*.py."
    parser = argparse.ArgumentParser(prog="python -m specdec_core.classroom.sheets", description=about)
    parser.add_argument("--check", action="store_true", help="only say what would change")
    arguments = parser.parse_args(argv)
    stale = []

    def put(path: Path, text: str) -> None:
        if path.is_file() and path.read_text("utf-8") == text:
            return
        stale.append(path)
        if not arguments.check:
            path.parent.mkdir(exist_ok=True)
            write(path, text)
        print(f"{'stale' if arguments.check else 'wrote'} {path.name}")

    try:
        for path, text in wanted(Path.cwd(), None if arguments.check else put).items():
            put(path, text)
    except SheetError as error:
        print(f"sheets: {error}", file=sys.stderr)
        return 2
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
