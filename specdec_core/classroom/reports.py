"""Results as a table for the terminal, CSV, JSON, or a page for a teacher to read.

What a submission says about itself (names, messages) is text here and nothing else: escaped on the page, and in
CSV never a formula.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..base.files import write
from .grader import GRADED, GradeError, Result

_COLORS = {"right": "#0072b2", "wrong": "#d55e00"}


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


def feedback(result: Result) -> str:
    """All that a student needs to go on, question by question."""
    judged = [(f"{one['points']}/{one['of']}", one["message"] or one["state"]) for one in result.questions.values()]
    return "\n".join([line(result), *(f"  {points}  {words}" for points, words in judged)])


def as_json(results: Sequence[Result], about: dict[str, Any]) -> str:
    """Everything, with what grading took."""
    content = {"format": 1, **about, "results": [asdict(result) for result in results]}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(results: Sequence[Result]) -> str:
    """A row for each file: name, outcome, points, and the points of each question.

    Example:
        >>> print(as_csv([Result("=a.ipynb", exercise="ex01", points=1, of=2)]).strip())
        file,exercise,outcome,points,of,percent,notes
        '=a.ipynb,ex01,graded,1,2,50.0,
    """
    questions = sorted({question for result in results for question in result.questions})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["file", "exercise", "outcome", "points", "of", "percent", *questions, "notes"])
    for result in results:
        percent = f"{100 * result.points / result.of:.1f}" if result.of else ""
        earned = [result.questions.get(question, {"points": ""})["points"] for question in questions]
        about = [result.file, result.exercise, result.outcome, result.points, result.of, percent]
        writer.writerow([_plain(cell) for cell in (*about, *earned, "; ".join(result.notes))])
    return out.getvalue()


def _plain(cell: Any) -> Any:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def as_html(results: Sequence[Result], summary: str) -> str:
    """One page, no scripts: a table of all, how each question went, and the messages below."""
    questions = sorted({question for result in results for question in result.questions})
    head = "".join(f"<th>{_(text)}</th>" for text in ("file", "outcome", "points", *questions, "notes"))
    rows = "".join(_row(result, questions, number) for number, result in enumerate(results))
    details = "".join(_details(result, number) for number, result in enumerate(results) if result.questions)
    shares = "".join(_share(question, results) for question in questions)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Grades</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #ccc; padding: .2em .6em; text-align: left; }}
.right {{ color: {_COLORS["right"]}; }} .wrong {{ color: {_COLORS["wrong"]}; }}
</style></head><body>
<h1>Grades</h1><p>{_(summary)}</p>
<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
<h2>By question</h2><table><thead><tr><th>question</th><th>right</th><th>answered by</th></tr></thead>
<tbody>{shares}</tbody></table>
<h2>By submission</h2>{details}
</body></html>
"""


def _(text: Any) -> str:
    return html.escape(str(text))


def _row(result: Result, questions: list[str], number: int) -> str:
    name = f'<a href="#s{number}">{_(result.file)}</a>' if result.questions else _(result.file)
    cells = [name, _(result.outcome), f"{result.points} / {result.of}" if result.of else ""]
    for question in questions:
        entry = result.questions.get(question)
        cells.append(f'<span class="{_(entry["state"])}">{entry["points"]}</span>' if entry else "")
    cells.append(_("; ".join(result.notes)))
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _share(question: str, results: Sequence[Result]) -> str:
    states = [result.questions[question]["state"] for result in results if question in result.questions]
    judged = [state for state in states if state in ("right", "wrong")]
    cells = (question, judged.count("right"), f"{len(judged)} of {len(states)}")
    return "<tr>" + "".join(f"<td>{_(cell)}</td>" for cell in cells) + "</tr>"


def _details(result: Result, number: int) -> str:
    rows = "".join(
        f'<tr><td class="{_(entry["state"])}">{entry["points"]} / {entry["of"]}</td>'
        f"<td>{_(entry['message'] or entry['state'])}</td></tr>"
        for entry in result.questions.values()
    )
    return f'<h3 id="s{number}">{_(result.file)}</h3><p>{_(_outcome(result))}</p><table>{rows}</table>'


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
