"""Whose a file is: by the names that Canvas, Moodle and nbgrader give to what they collect, and a roster."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from .grader import GRADED, GradeError, Result

# Canvas: lovelaceada_98765_4321_ex01.ipynb, with the student's and the file's number, and LATE where it was;
# Moodle: Ada Lovelace_1234567_assignsubmission_file_/ex01.ipynb, with the participant's number, or all in one name.
_CANVAS = re.compile(r"(?P<name>[^_]+)(?:_LATE)?_(?P<id>\d+)_(?P<turn>\d+)_.+", re.IGNORECASE)
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_.*)?", re.IGNORECASE)
_IDS = {"canvas": "ID", "moodle": "Identifier", "nbgrader": "id", "plain": "id"}


@dataclass
class Row:
    """One student.

    Attributes:
        student: the id that the system knows the student by; the file's name where there is none.
        name: for readers.
        counted: the results that count, the last one for each exercise.
        others: the results that do not.
        notes: what the teacher should know.
        roster: the student's line in the roster.
    """

    student: str
    name: str = ""
    counted: list[Result] = field(default_factory=list)
    others: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    roster: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> int:
        return sum(result.points for result in self.counted)

    @property
    def of(self) -> int:
        return sum(result.of for result in self.counted)


def owner(key: str, layout: str) -> tuple[str, str, int]:
    """Whose a path is: the student's id, a name to show, and where the file stands in the order of handing in.

    Returns:
        empty texts where the path has not the form of the layout.

    Example:
        >>> owner("lovelaceada_LATE_98765_4321_ex01-2.ipynb", "canvas")
        ('98765', 'lovelaceada', 4321)
        >>> owner("all.zip/Ada Lovelace_1234567_assignsubmission_file/ex01.ipynb", "moodle")
        ('1234567', 'Ada Lovelace', 0)
        >>> owner("submitted/ada/ex01/ex01.ipynb", "nbgrader"), owner("ada.ipynb", "plain")
        (('ada', 'ada', 0), ('', '', 0))
    """
    parts = key.split("/")
    if layout in ("canvas", "moodle"):
        for part in parts:
            if found := (_CANVAS if layout == "canvas" else _MOODLE).fullmatch(part):
                return found["id"], found["name"], int(found.groupdict().get("turn") or 0)
    elif layout == "nbgrader":
        parts = parts[1:] if parts[0] == "submitted" else parts
        if len(parts) > 1:
            return parts[0], parts[0], 0
    return "", "", 0


def same_name(text: str) -> str:
    """A name as it is compared: ü is one letter or two, by the system that wrote it."""
    return unicodedata.normalize("NFC", text).strip().casefold()


def read_roster(path: Path, layout: str) -> dict[str, dict[str, str]]:
    """A roster as the system exports it: Canvas's gradebook, Moodle's grading worksheet, nbgrader's list of students.

    Returns:
        the student's id (of `same_name`) -> that line of the table.

    Raises:
        GradeError: if it cannot be read, or has no column of ids.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GradeError(f"--roster {path}: {error}; expected a table in UTF-8, as {layout} exports it.") from error
    head = text.partition("\n")[0]
    rows = csv.DictReader(text.splitlines(), delimiter=";" if head.count(";") > head.count(",") else ",")
    column = _IDS[layout]
    if column not in (rows.fieldnames or ()):
        raise GradeError(f"--roster {path}: expected a column {column!r}; its columns are {rows.fieldnames}.")
    found = {}
    for row in rows:
        number = re.sub(r"^Participant ", "", row[column] or "")
        if number.strip():  # Canvas has a row of possible points, of nobody
            found[same_name(number)] = {key: value or "" for key, value in row.items() if key}
    return found


def rows_of(
    results: Sequence[Result],
    layout: str = "plain",
    roster: Mapping[str, dict[str, str]] = MappingProxyType({}),
    moments: Mapping[str, float] = MappingProxyType({}),
) -> list[Row]:
    """One row for each student, those of the roster who have handed in nothing included.

    Args:
        results: of all files.
        layout: "plain", "canvas", "moodle" or "nbgrader".
        roster: of `read_roster`.
        moments: key of a file -> when it was changed.
    """
    rows: dict[tuple[bool, str], Row] = {}
    turns: dict[str, tuple[int, float, str]] = {}
    for result in results:
        student, name, turn = owner(result.key, layout)
        if not student and layout == "plain" and roster:
            stem = Path(result.key.split("/")[0]).stem
            student = stem if same_name(stem) in roster else ""
        turns[result.key] = (turn, moments.get(result.key, 0.0), result.key)
        known = same_name(student) in roster
        place = (bool(student), same_name(student) if known else student or result.key)
        row = rows.setdefault(place, Row(student or result.file, name))
        row.others.append(result)
        if not student and layout != "plain":
            row.notes.append(f"{result.file}: its path has not the form that {layout} gives")
        elif student and roster and not known:
            row.notes = ["not in the roster"]
    for number, line in roster.items():
        row = rows.setdefault((True, number), Row(line.get(_IDS[layout], number)))
        row.roster, row.name = line, _name(line) or row.name
    _name_twins(rows.values())
    for row in rows.values():
        _count(row, turns)
    return sorted(rows.values(), key=lambda row: (same_name(row.name), row.student))


def _name_twins(rows: Iterable[Row]) -> None:
    """Say which students have handed in a file of the very same bytes, unless there is no answer in it."""
    first: dict[str, tuple[Row, Result]] = {}
    for row in rows:
        for result in row.others:
            if result.digest and result.points:
                other, twin = first.setdefault(result.digest, (row, result))
                if other is not row:
                    row.notes.append(f"{result.file} is the same file as {twin.file}")
                    other.notes.append(f"{twin.file} is the same file as {result.file}")


def _name(line: dict[str, str]) -> str:
    whole = f"{line.get('first_name', '')} {line.get('last_name', '')}".strip()
    return line.get("Student") or line.get("Full name") or line.get("name") or whole


def _count(row: Row, turns: dict[str, tuple[int, float, str]]) -> None:
    """Choose what counts: the last of each exercise; all others are named."""
    row.others.sort(key=lambda result: turns[result.key])
    last = {result.exercise: result for result in row.others if result.outcome == GRADED}
    if not last:  # what cannot be graded still has its outcome
        last = {result.exercise: result for result in row.others[-1:]}
    row.counted = sorted(last.values(), key=lambda result: (result.exercise, result.key))
    row.others = [result for result in row.others if result not in row.counted]
    for other in row.others:
        why = "handed in before" if other.outcome == GRADED else other.outcome
        row.notes.append(f"{other.file} is not counted: {why}")
    if not row.counted:
        row.notes.append("nothing was handed in")
