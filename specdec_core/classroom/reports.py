"""Results as a table for the terminal, CSV, JSON, or a page for a teacher to read.

What a submission says about itself (names, messages) is text here and nothing else: escaped on the page, and in
CSV never a formula.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..base.files import write
from .grader import GRADED, GradeError, Result, plain
from .layouts import Row

STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2em; max-width: 70em; }
table { border-collapse: collapse; } td, th { border: 1px solid #ccc; padding: .2em .6em; text-align: left; }
.right { color: #0072b2; } .wrong, .refused { color: #d55e00; }"""


def line(result: Result) -> str:
    """One result, for the terminal.

    Example:
        >>> line(Result("a.ipynb", exercise="ex01", points=3, of=12))
        'a.ipynb: 3 of 12'
    """
    notes = f" ({'; '.join(result.notes)})" if result.notes else ""
    return f"{result.file}: {_outcome(result)}{notes}"


def _outcome(result: Result) -> str:
    return f"{result.points} of {result.of}" if result.outcome == GRADED else result.outcome


def judged(result: Result) -> list[tuple[str, str, str]]:
    """Each question: its state, its points, and all that a student needs to go on."""
    asked = result.questions.items()
    return [(one["state"], f"{one['points']}/{one['of']}", one["message"] or f"{q} {one['state']}") for q, one in asked]


def feedback(result: Result) -> str:
    """A result with its messages, question by question."""
    return "\n".join([line(result), *(f"  {points}  {words}" for _, points, words in judged(result))])


def as_table(rows: Sequence[Row]) -> str:
    """A line for each student.

    Example:
        >>> print(as_table([Row("7", "Ada", [Result("a.ipynb", exercise="ex01", points=3, of=12)])]))
        Ada 7: 3 of 12
    """
    return "\n".join(
        f"{' '.join(filter(None, (plain(row.name), plain(row.student))))}: "
        + (", ".join(map(_outcome, row.counted)) or "nothing")
        + (f" ({'; '.join(notes)})" if (notes := notes_of(row)) else "")
        for row in rows
    )


def notes_of(row: Row) -> list[str]:
    """All that the teacher should know of a student."""
    return [*(note for result in row.counted for note in result.notes), *map(plain, row.notes)]


def left_out(results: Sequence[Result], litter: Sequence[str]) -> str:
    """A line that counts and names what was not graded.

    Example:
        >>> left_out([Result("a.pdf", outcome="not a notebook")], ["__MACOSX"])
        'not graded: 1 (a.pdf: not a notebook); litter of systems and editors: 1 (__MACOSX)'
    """
    others = [f"{result.file}: {result.outcome}" for result in results if result.outcome != GRADED]
    parts = [("not graded", others), ("litter of systems and editors", list(map(plain, litter)))]
    return "; ".join(f"{what}: {len(named)} ({', '.join(named)})" for what, named in parts if named)


def as_json(rows: Sequence[Row], litter: Sequence[str], about: dict[str, Any]) -> str:
    """Everything, with what grading took: students, and for each the results that count and that do not."""
    students = [{**asdict(row), "points": row.points, "of": row.of} for row in rows]
    content = {"format": 2, **about, "litter": list(litter), "students": students}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """A row for each student: points, the points of each question, the messages, and notes.

    Example:
        >>> print(as_csv([Row("=a.ipynb", "", [Result("=a.ipynb", exercise="ex01", points=1, of=2)])]).strip())
        student,name,file,exercise,outcome,points,of,percent,messages,notes
        '=a.ipynb,,'=a.ipynb,ex01,graded,1,2,50.0,,
    """
    questions = sorted({question for row in rows for result in row.counted for question in result.questions})
    head = ["student", "name", "file", "exercise", "outcome", "points", "of", "percent", *questions]
    return table([*head, "messages", "notes"], (_cells(row, questions) for row in rows))


def _cells(row: Row, questions: list[str]) -> list[Any]:
    earned = {question: one["points"] for result in row.counted for question, one in result.questions.items()}
    about = ["; ".join(getattr(result, part) for result in row.counted) for part in ("file", "exercise", "outcome")]
    percent = f"{100 * row.points / row.of:.1f}" if row.of else ""
    points = [earned.get(question, "") for question in questions]
    scores = [row.points, row.of, percent, *points]
    return [row.student, row.name, *about, *scores, messages(row), "; ".join(notes_of(row))]


def messages(row: Row) -> str:
    """What to say to a student of all that is not right, a line each."""
    return "\n".join(words for result in row.counted for state, _, words in judged(result) if state != "right")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV of cells that a spreadsheet takes for no formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_harmless(cell) for cell in row])
    return out.getvalue()


def _harmless(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text = plain(cell) if len(cell) < 500 else cell.encode("utf-8", "backslashreplace").decode()
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text


def as_html(rows: Sequence[Row], litter: Sequence[str], summary: str) -> str:
    """One page, no scripts: a table of all, how each question went, and the messages below."""
    questions = sorted({question for row in rows for result in row.counted for question in result.questions})
    head = ("student", "file", "outcome", "points", *questions, "notes")
    lines = [_line(row, questions, number) for number, row in enumerate(rows)]
    shares = [_share(question, rows) for question in questions]
    details = "".join(_details(row, number) for number, row in enumerate(rows) if row.of)
    every = [result for row in rows for result in (*row.counted, *row.others)]
    return page(
        "Grades",
        f"<p>{escape(summary)}</p><p>{escape(left_out(every, litter))}</p>{grid(head, lines)}<h2>By question</h2>"
        f"{grid(('question', 'right', 'answered by'), shares)}<h2>By student</h2>{details}",
    )


def page(title: str, body: str) -> str:
    """A page of HTML."""
    top = f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    return f"{top}<style>\n{STYLE}\n</style></head><body>\n<h1>{escape(title)}</h1>{body}\n</body></html>\n"


def escape(text: Any) -> str:
    return html.escape(text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else str(text))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are HTML."""
    top = f"<thead><tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr></thead>" if head else ""
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{top}<tbody>{''.join(lines)}</tbody></table>"


def _line(row: Row, questions: list[str], number: int) -> list[str]:
    entries = {question: entry for result in row.counted for question, entry in result.questions.items()}
    who = escape(row.name or row.student)
    cells = [f'<a href="#s{number}">{who}</a>' if row.of else who]
    cells += [escape("; ".join(getattr(result, part) for result in row.counted)) for part in ("file", "outcome")]
    cells.append(f"{row.points} / {row.of}" if row.of else "")
    for question in questions:
        entry = entries.get(question)
        cells.append(f'<span class="{escape(entry["state"])}">{entry["points"]}</span>' if entry else "")
    return [*cells, escape("; ".join(notes_of(row)))]


def _share(question: str, rows: Sequence[Row]) -> list[str]:
    results = (result for row in rows for result in row.counted if question in result.questions)
    states = [result.questions[question]["state"] for result in results]
    answered = [state for state in states if state in ("right", "wrong")]
    return [escape(question), str(answered.count("right")), f"{len(answered)} of {len(states)}"]


def _details(row: Row, number: int) -> str:
    return f'<h3 id="s{number}">{escape(row.name or row.student)}</h3>' + "".join(map(details, row.counted))


def details(result: Result) -> str:
    """A result, question by question, in HTML."""
    rows = [(f'<span class="{escape(state)}">{points}</span>', escape(say)) for state, points, say in judged(result)]
    return f"<p>{escape(result.file)}: {escape(_outcome(result))}</p>{grid((), rows)}"


def save(path: Path, text: str) -> None:
    """Write a file of results.

    Raises:
        GradeError: if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, text)
    except OSError as error:
        raise GradeError(f"{path} could not be written ({error}); choose another place with --out.") from error
