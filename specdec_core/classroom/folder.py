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

from .grader import BROKE_OFF, FELLED, GradeError, Limits, Result, end, grade, plain


def find_notebooks(path: Path) -> list[Path]:
    """The notebooks to grade: a file, or all of a folder, whatever subfolders it has.

    Raises:
        GradeError: if there is none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise GradeError(f"{path} does not exist; expected a notebook or a folder of them.")
    found = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not found:
        raise GradeError(f"there is no .ipynb file in {path}.")
    return found


def grade_all(
    path: Path,
    limits: Limits,
    jobs: int,
    journal: Path | None = None,
    seed: int | None = None,
    progress: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Grade a file or a folder, several submissions at a time.

    Args:
        path: what to grade.
        limits: of each submission.
        jobs: how many at a time.
        journal: a file that keeps results while grading goes on, so that an interrupted run can be continued.
        seed: of the inputs of all; unpredictable, and another for each, unless given.
        progress: called with each result as it comes, from this thread.

    Returns:
        the results, by name.

    Raises:
        GradeError: if there is nothing to grade.
        KeyboardInterrupt: passed on; the journal stays.
    """
    root = path if path.is_dir() else path.parent
    names = {plain(p.relative_to(root).as_posix()): p for p in find_notebooks(path)}
    known, begun = _read_journal(journal, names)
    for result in known.values():
        progress(result)
    lock, stop = threading.Lock(), threading.Event()

    def note(entry: dict[str, Any]) -> None:
        if journal is not None:
            with lock, open(journal, "a", encoding="utf-8") as out:
                out.write(json.dumps(entry) + "\n")

    def one(name: str) -> Result:
        if begun.get(name, 0) >= 2:
            return Result(name, outcome=FELLED, notes=["grading ended abruptly while this one was running, twice"])
        note({"begun": name})
        try:
            return grade(names[name], name, limits, seed, stop)
        except Exception as error:  # one bad submission does not stop the rest
            return Result(name, outcome=BROKE_OFF, notes=[f"{type(error).__name__}: {error}"])

    todo = [name for name in names if name not in known]
    pool = ThreadPoolExecutor(max_workers=max(1, jobs))
    futures = [pool.submit(one, name) for name in todo]
    try:
        for future in as_completed(futures):
            result = future.result()
            known[result.file] = result
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
    pool.shutdown()
    return [known[name] for name in names]


def _read_journal(journal: Path | None, names: dict[str, Path]) -> tuple[dict[str, Result], dict[str, int]]:
    """What an earlier run left: results of files that are still the same, and how often others were begun."""
    known: dict[str, Result] = {}
    begun: dict[str, int] = {}
    if journal is None or not journal.is_file():
        return known, begun
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the line that was being written when the run ended
        if "interrupted" in entry:
            begun.clear()  # by hand, which says nothing of a submission
        elif "begun" in entry:
            begun[entry["begun"]] = begun.get(entry["begun"], 0) + 1
        elif "result" in entry:
            result = Result(**entry["result"])
            begun.pop(result.file, None)
            if result.file in names and _same_file(names[result.file], result.digest):
                known[result.file] = result
    return known, begun


def _same_file(path: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False
