"""What goes back: a page for each student, and the file of grades that Canvas, Moodle or nbgrader imports."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from .grader import GRADED
from .layouts import Row
from .reports import details, escape, messages, page, save, table
from .sheets import sheets

_MOODLE = ("Identifier", "Full name", "Email address", "Status", "Grade", "Maximum Grade", "Grade can be changed")
_MOODLE += ("Last modified (submission)", "Last modified (grade)", "Feedback comments")
_NBGRADER = ("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score")
_NBGRADER += ("late_submission_penalty", "score", "max_score", "id")


def pages(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a page for each student who handed something in: points and diagnoses, and nobody else's.

    A page lies where the student's last file lay, with the ending .html, as Canvas and Moodle take files back and
    nbgrader keeps its own.
    """
    written = []
    for row in rows:
        if row.counted:
            key = row.counted[-1].key
            place = folder.joinpath(*(f"{part}_" if part in (".", "..") else part for part in key.split("/")))
            place = place.with_name(f"{place.name.removesuffix('.ipynb')}.html")
            save(place, student_page(row))
            written.append(place)
    return written


def student_page(row: Row) -> str:
    """What one student gets to read; no notes to the teacher, and no right answer."""
    name = row.name or row.student
    total = f"<p>{row.points} of {row.of} points</p>" if row.of else ""
    others = "".join(f"<p>{escape(one.file)} is not counted.</p>" for one in row.others if one.outcome == GRADED)
    return page(f"Feedback: {name}", total + "".join(map(details, row.counted)) + others)


def for_canvas(rows: Sequence[Row]) -> str:
    """Canvas's gradebook: Student, ID, SIS User ID, SIS Login ID, Section, and a column for each assignment.

    An assignment is named as the exercise is; Canvas asks which one of its own is meant.
    """
    exercises = sorted({result.exercise for row in rows for result in row.counted if result.exercise})
    titles = {name: sheets()[name]["title"] for name in exercises}
    most = [sum(one["points"] for one in sheets()[name]["questions"].values()) for name in exercises]
    lines: list[list] = [["    Points Possible", "", "", "", "", *most]]
    for row in rows:
        earned = {result.exercise: result.points for result in row.counted if result.outcome == GRADED}
        about = [row.roster.get(column, "") for column in ("SIS User ID", "SIS Login ID", "Section")]
        scores = [earned.get(name, "") for name in exercises]
        lines.append([row.name, row.roster.get("ID", row.student), *about, *scores])
    return table(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *titles.values()], lines)


def for_moodle(rows: Sequence[Row]) -> str:
    """Moodle's grading worksheet; columns that only Moodle can fill come from the roster, which is that worksheet."""
    lines = []
    for row in rows:
        graded = any(result.outcome == GRADED for result in row.counted)
        ours = {"Identifier": f"Participant {row.student.removeprefix('Participant ')}", "Full name": row.name}
        line = ours | {column: row.roster[column] for column in _MOODLE if column in row.roster}
        if graded:
            line |= {"Grade": str(row.points), "Feedback comments": html.escape(messages(row)).replace("\n", "<br>")}
            line["Maximum Grade"] = line.get("Maximum Grade") or str(row.of)
        lines.append([line.get(column, "") for column in _MOODLE])
    return table(_MOODLE, lines)


def for_nbgrader(rows: Sequence[Row]) -> str:
    """The columns of `nbgrader export`, and ``id``, by which `nbgrader db student import` reads the students."""
    lines = []
    for row in rows:
        names = [row.roster.get(column, "") for column in ("last_name", "first_name", "email")]
        for result in row.counted:
            parts = result.key.removeprefix("submitted/").split("/")
            assignment = parts[1] if len(parts) > 2 else result.exercise
            score = [result.points, 0, result.points, result.of]
            lines.append([assignment, "", "", row.student, *names, *score, row.student])
        if not row.counted:
            lines.append(["", "", "", row.student, *names, "", "", "", "", row.student])
    return table(_NBGRADER, lines)


IMPORTS = {"canvas": for_canvas, "moodle": for_moodle, "nbgrader": for_nbgrader}
