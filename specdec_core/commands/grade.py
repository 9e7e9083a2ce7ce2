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
    from ..classroom.grader import Limits, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="FILE|FOLDER", help="a submitted notebook, or a folder of them")
    text = "scores, .csv or .json; an interrupted run that has one goes on where it was"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_argument("--report", choices=("html",), help="also a page to read, beside the scores")
    parser.add_argument("--jobs", type=positive, metavar="N", help="submissions at a time (default: one per processor)")
    parser.add_argument("--seed", type=natural, help="of the inputs, to repeat a grading (default: unpredictable)")
    limits = parser.add_argument_group("limits of a submission")
    limits.add_argument("--cell-seconds", type=positive, default=20, metavar="S", help="for one cell (default: 20)")
    limits.add_argument("--seconds", type=positive, default=180, metavar="S", help="for all of it (default: 180)")
    limits.add_argument("--memory", type=positive, default=2, metavar="GIB", help="GiB (default: 2)")


def run(arguments: argparse.Namespace) -> int:
    from ..classroom.grader import GRADED, GradeError, Limits
    from ..classroom.reports import as_csv, as_html, as_json, feedback, save

    _able(arguments, GradeError)
    limits = Limits(arguments.cell_seconds, arguments.seconds, arguments.memory << 30)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = arguments.jobs or processors
    journal = arguments.out.with_name(f".{arguments.out.name}.unfinished") if arguments.out else None
    start = time.perf_counter()
    try:
        results = _graded(arguments.path, limits, jobs, journal, arguments.seed)
    except KeyboardInterrupt:
        if journal is not None:
            print(f"\nspecdec: interrupted; the same command goes on where it was ({journal})", file=sys.stderr)
        raise
    seconds = time.perf_counter() - start
    peak, count = max(result.peak_bytes for result in results) / 1e6, len(results)
    summary = f"{count} submission{'s' * (count != 1)} in {seconds:.1f} s, {min(jobs, count)} at a time; "
    summary += f"at most {peak:.0f} MB for one; {_fence()}"
    if arguments.path.is_file() or arguments.out is None:
        print("\n".join(feedback(result) for result in results))
    print(summary)
    page = (arguments.out or Path("grades")).with_suffix(".html") if arguments.report else None
    if arguments.out:
        about = {"seconds": seconds, "jobs": jobs, "fence": _fence()}
        text = as_json(results, about) if arguments.out.suffix == ".json" else as_csv(results)
        save(arguments.out, text)
        print(f"wrote {arguments.out}")
    if page:
        save(page, as_html(results, summary))
        print(f"wrote {page}")
    if journal is not None:
        journal.unlink(missing_ok=True)
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


def _graded(path: Path, limits: Limits, jobs: int, journal: Path | None, seed: int | None) -> list[Result]:
    from tqdm import tqdm

    from ..classroom.folder import find_notebooks, grade_all
    from ..classroom.reports import line

    count = len(find_notebooks(path))
    with tqdm(total=count, desc="Grading", unit="file", file=sys.stderr, disable=count == 1) as bar:

        def progress(result: Result) -> None:
            if count > 1:
                bar.write(line(result), file=sys.stderr)
            bar.update()

        return grade_all(path, limits, min(jobs, count), journal, seed, progress)


def _summary(results: list[Result], seconds: float, jobs: int) -> str:
    peak = max(result.peak_bytes for result in results)
    count = len(results)
    return (
        f"{count} submission{'s' * (count != 1)} in {seconds:.1f} s, {min(jobs, count)} at a time; "
        f"at most {peak / 1e6:.0f} MB for one; {_fence()}"
    )


def _fence() -> str:
    from ..classroom.fence import landlock_version

    version = landlock_version()
    return f"fenced by Landlock {version}" if version else "fenced by an audit hook only: see the teacher's guide"
