"""Grade a folder: several submissions at a time, none able to stop the others, and a journal to go on from."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from .apart import out_of_sight
from .grader import BROKE_OFF, FELLED, GradeError, Result, grade, plain
from .handin import HandIn, Paper, collect
from .scratch import workplace
from .sheets import SHEETS
from .watch import Limits, end


def grade_all(
    handed: HandIn | Path,
    limits: Limits,
    jobs: int,
    journal: Path | None = None,
    seed: int | None = None,
    progress: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Grade all that was handed in, several at a time.

    Args:
        handed: what `collect` found; or a path, to have it collected.
        limits: of each submission.
        jobs: how many at a time.
        journal: a file that keeps results while grading goes on, so that an interrupted run can be continued.
        seed: of the inputs of all; unpredictable, and another for each, unless given.
        progress: called with each result as it comes, from this thread.

    Returns:
        the results, in order of their keys: one for each paper.

    Raises:
        GradeError: if there is nothing to grade.
        KeyboardInterrupt: passed on; the journal stays.
    """
    if isinstance(handed, Path):
        with workplace() as scratch:
            return grade_all(gathered(handed, scratch), limits, jobs, journal, seed, progress)
    papers = {paper.key: paper for paper in handed.papers}
    head = {"root": str(handed.root.resolve()), "limits": asdict(limits), "seed": seed, "sheets": _digest(SHEETS)}
    known, begun = _read_journal(journal, papers, head)
    for result in known.values():
        progress(result)
    lock, stop = threading.Lock(), threading.Event()

    def note(entry: dict[str, Any]) -> None:
        if journal is not None:
            with lock, open(journal, "a", encoding="utf-8") as out:
                out.write(json.dumps(entry) + "\n")

    def one(paper: Paper) -> Result:
        key = paper.key
        if paper.refused:
            return Result(plain(key), _digest(paper.path), paper.refused, key=key)
        if begun.get(key, 0) >= 2:
            notes = ["grading ended abruptly while this one was running, twice"]
            return Result(plain(key), outcome=FELLED, notes=notes, key=key)
        note({"begun": key})
        try:
            return grade(paper.path, key, limits, seed, stop, handed.root)
        except Exception as error:  # one bad submission does not stop the rest
            return Result(plain(key), outcome=BROKE_OFF, notes=[plain(f"{type(error).__name__}: {error}")], key=key)

    out_of_sight()
    pool = ThreadPoolExecutor(max_workers=max(1, jobs))
    futures = [pool.submit(one, paper) for paper in papers.values() if paper.key not in known]
    try:
        for future in as_completed(futures):
            result = future.result()
            known[result.key] = result
            note({"result": asdict(result)})
            progress(result)
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for future in futures:
            while not future.done():
                for child in psutil.Process().children():
                    end(child.pid)
                wait([future], timeout=0.5)
        note({"interrupted": True})
        raise
    finally:
        out_of_sight(False)
    pool.shutdown()
    return [known[key] for key in papers]


def gathered(path: Path, scratch: Path, mine: tuple[Path, ...] = ()) -> HandIn:
    """`collect`, where there must be something to grade.

    Raises:
        GradeError: if there is not.
    """
    if not path.exists():
        raise GradeError(f"{path} does not exist; expected a notebook, a zip file, or a folder of them.")
    handed = collect(path, scratch, mine)
    if not any(not paper.refused for paper in handed.papers):
        reasons = "; ".join(f"{plain(paper.key)}: {paper.refused}" for paper in handed.papers[:5])
        raise GradeError(f"there is no notebook (.ipynb) in {path}; {reasons or 'it is empty'}.")
    return handed


def find_notebooks(path: Path) -> list[Path]:
    """The notebooks at a path that lie in no archive.

    Raises:
        GradeError: if there is nothing to grade.
    """
    with workplace() as scratch:
        papers = gathered(path, scratch).papers
        return [paper.path for paper in papers if not paper.refused and not paper.within]


def _read_journal(
    journal: Path | None, papers: dict[str, Paper], head: dict[str, Any]
) -> tuple[dict[str, Result], dict[str, int]]:
    """What an earlier run left: results of files that are still the same, and how often others were begun.

    A journal of another grading (folder, limits, seed, or questions) is begun anew with ``head``.
    """
    known: dict[str, Result] = {}
    begun: dict[str, int] = {}
    if journal is None:
        return known, begun
    entries = []
    if journal.is_file():
        for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue  # the line that was being written when the run ended
    if not entries or entries[0] != json.loads(json.dumps(head)):
        journal.write_text(json.dumps(head) + "\n", encoding="utf-8")
        return known, begun
    for entry in entries[1:]:
        if "interrupted" in entry:
            begun.clear()  # by hand, which says nothing of a submission
        elif "begun" in entry:
            begun[entry["begun"]] = begun.get(entry["begun"], 0) + 1
        elif "result" in entry:
            result = Result(**entry["result"])
            begun.pop(result.key, None)
            if result.key in papers and _digest(papers[result.key].path) == result.digest != "":
                known[result.key] = result
    return known, begun


def _digest(path: Path) -> str:
    """SHA-256 of a file's bytes; empty where there are none to read."""
    digest = hashlib.sha256()
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()
