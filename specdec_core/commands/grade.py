"""`specdec grade`: score a notebook with answers, or a folder of them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.extras import needs
from .options import natural, positive

if TYPE_CHECKING:
    from ..classroom.grader import Result
    from ..classroom.handin import HandIn
    from ..classroom.watch import Limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a submitted notebook, a zip file, or a folder of them"
    parser.add_argument("path", type=Path, metavar="FILE|FOLDER", help=text)
    text = "scores, .csv or .json; an interrupted run goes on where it was"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_argument("--report", choices=("html",), help="also a page to read, beside the scores")
    parser.add_argument("--feedback", type=Path, metavar="FOLDER", help="also a page for each student, to hand out")
    text = "whose names the files have; with --out also the file that it imports (default: plain, a row for each file)"
    parser.add_argument("--layout", choices=("plain", "canvas", "moodle", "nbgrader"), default="plain", help=text)
    text = "the students, as the layout's system exports them (plain: columns id and name)"
    parser.add_argument("--roster", type=Path, metavar="FILE", help=text)
    parser.add_argument("--jobs", type=positive, metavar="N", help="submissions at a time (default: one per processor)")
    parser.add_argument("--seed", type=natural, help="of the inputs, to repeat a grading (default: unpredictable)")
    limits = parser.add_argument_group("limits of a submission")
    limits.add_argument("--cell-seconds", type=positive, default=20, metavar="S", help="for one cell (default: 20)")
    limits.add_argument("--seconds", type=positive, default=180, metavar="S", help="for all of it (default: 180)")
    limits.add_argument("--memory", type=positive, default=2, metavar="GIB", help="GiB (default: 2)")


def run(arguments: argparse.Namespace) -> int:
    from ..classroom import handback, reports
    from ..classroom.folder import gathered
    from ..classroom.grader import GRADED, GradeError
    from ..classroom.layouts import read_roster, rows_of
    from ..classroom.scratch import workplace
    from ..classroom.walls import described
    from ..classroom.watch import Limits

    _able(arguments, GradeError)
    out, layout, start = arguments.out, arguments.layout, time.perf_counter()
    roster = read_roster(arguments.roster, layout) if arguments.roster else {}
    limits = Limits(arguments.cell_seconds, arguments.seconds, arguments.memory << 30)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = arguments.jobs or processors
    base = out or Path("grades.csv")
    journal = base.with_name(f".{base.name}.unfinished")
    page = base.with_suffix(".html") if arguments.report else None
    system = base.with_suffix(f".{layout}.csv") if out and layout in handback.IMPORTS else None
    mine = [file for file in (out, page, system, journal, arguments.roster) if file]
    with workplace() as scratch:
        handed = gathered(arguments.path, scratch, tuple(mine))
        kept = journal if len(handed.papers) > 1 and os.access(base.parent, os.W_OK) else None
        try:
            results = _graded(handed, limits, jobs, kept, arguments.seed)
        except KeyboardInterrupt:
            if kept:
                print(f"\nspecdec: interrupted; the same command goes on where it was ({kept})", file=sys.stderr)
            raise
    rows = rows_of(results, layout, roster, {paper.key: paper.moment for paper in handed.papers})
    seconds = time.perf_counter() - start
    peak, count = max(result.peak_bytes for result in results) / 1e6, len(results)
    summary = f"{count} submission{'s' * (count != 1)} in {seconds:.1f} s, {min(jobs, count)} at a time; "
    summary += f"at most {peak:.0f} MB for one; {described()}"
    if layout != "plain" or roster:
        print(reports.as_table(rows))
    elif count == 1 or out is None:
        print("\n".join(map(reports.feedback, results)))
    print("\n".join(filter(None, (reports.left_out(results, handed.litter), summary))))
    written = []
    if out:
        about = {"seconds": seconds, "jobs": jobs, "fence": described()}
        text = reports.as_json(rows, handed.litter, about) if out.suffix == ".json" else reports.as_csv(rows)
        written.append((out, text))
    if system:
        written.append((system, handback.IMPORTS[layout](rows)))
    if page:
        written.append((page, reports.as_html(rows, handed.litter, summary)))
    for path, text in written:
        reports.save(path, text)
        print(f"wrote {path}")
    if arguments.feedback:
        print(f"wrote {len(handback.pages(rows, arguments.feedback))} pages below {arguments.feedback}")
    if kept:
        kept.unlink(missing_ok=True)
    return 0 if all(result.outcome == GRADED for result in results) else 1


def _able(arguments: argparse.Namespace, error: type[Exception]) -> None:
    """Refuse before an hour of grading what would fail after it."""
    needs("grade", "nbval", "pytest")
    if os.name == "nt":
        raise error("grading needs Linux or macOS (on Windows: WSL); the notebooks check themselves anywhere.")
    out = arguments.out
    if out is not None:
        if out.suffix not in (".csv", ".json"):
            raise error(f"--out {out}: expected a name that ends in .csv or .json.")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise error(f"--out {out}: {problem}; choose another place.") from problem
        if out.is_dir() or not os.access(out.parent, os.W_OK):
            raise error(f"--out {out}: no file can be written there; choose another place.")


def _graded(handed: HandIn, limits: Limits, jobs: int, journal: Path | None, seed: int | None) -> list[Result]:
    from tqdm import tqdm

    from ..classroom.folder import grade_all
    from ..classroom.reports import line

    count = len(handed.papers)
    with tqdm(total=count, desc="Grading", unit="file", file=sys.stderr, disable=count == 1) as bar:

        def progress(result: Result) -> None:
            if count > 1:
                bar.write(line(result), file=sys.stderr)
            bar.update()

        return grade_all(handed, limits, min(jobs, count), journal, seed, progress)
