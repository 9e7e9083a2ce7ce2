"""Grade submissions: each in a process group and a scratch folder of its own, watched from outside.

A notebook that gets stuck, dies or grows beyond its bounds loses the question at which it did; it is started again
without that answer, so that the others still count.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ..base.errors import SpecdecError
from .lift import Submission, lift, notebook_of
from .sheets import sheets

GRADED = "graded"
BROKE_OFF = "could not be graded"
FELLED = "ended the grader twice"


class GradeError(SpecdecError):
    """Grading that cannot begin: nothing to grade, no nbval, a place that cannot be written."""


@dataclass(frozen=True)
class Limits:
    """What a submission may take. Units: seconds, bytes, processes."""

    cell_seconds: float = 20.0
    seconds: float = 180.0
    bytes: int = 2 << 30
    processes: int = 16


@dataclass
class Result:
    """What became of one file.

    Attributes:
        file: its name, relative to the folder that was graded.
        digest: SHA-256 of its bytes.
        outcome: "graded", or why not (names in `lift`, and above).
        exercise: whose answers.
        points, of: earned, out of how many.
        questions: question -> ``{"points", "of", "state", "message"}``; state is "right", "wrong", or why there was
            nothing to judge.
        notes: what the teacher should know.
        seed: of the inputs; with it the same inputs can be made again.
        seconds, peak_bytes: what grading it took: wall time, and the most memory that its processes held at once.
    """

    file: str
    digest: str = ""
    outcome: str = GRADED
    exercise: str = ""
    points: int = 0
    of: int = 0
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seed: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0


def grade(
    path: Path, name: str = "", limits: Limits = Limits(), seed: int | None = None, stop: threading.Event | None = None
) -> Result:
    """Grade one file; whatever it does, this returns.

    Args:
        path: a notebook.
        name: what to call it in the result.
        limits: bounds on time, memory and processes.
        seed: of the inputs; unpredictable unless given.
        stop: once set, nothing more is started, and the result means nothing.
    """
    start = time.perf_counter()
    submission = lift(path)
    seed = secrets.randbits(48) if seed is None else seed
    about = (name or path.name, submission.digest, submission.outcome or GRADED, submission.exercise)
    result = Result(*about, notes=submission.notes, seed=seed)
    if submission.exercise:
        _unanswered(submission, result)
    if not submission.outcome:
        _run(submission, result, limits, stop or threading.Event())
    result.points = sum(entry["points"] for entry in result.questions.values())
    result.seconds = time.perf_counter() - start
    return result


def _unanswered(submission: Submission, result: Result) -> None:
    for question, about in sheets()[submission.exercise]["questions"].items():
        state = submission.states.get(question, "")
        message = f"{question} {about['title']}: {state}." if state else ""
        result.questions[question] = {"points": 0, "of": about["points"], "state": state, "message": message}
        result.of += about["points"]


def _run(submission: Submission, result: Result, limits: Limits, stop: threading.Event) -> None:
    answers = dict(submission.answers)
    settled = [question for question in result.questions if question not in answers]
    deadline = time.monotonic() + limits.seconds
    for _ in range(len(result.questions) + 1):
        left = deadline - time.monotonic()
        if stop.is_set() or left <= 0 or not set(answers) - set(settled):
            break
        trouble, question = _once(submission, answers, settled, result, limits, left)
        if not trouble:
            break
        if question not in answers:  # our own cell, or none: nothing to take out
            result.outcome = BROKE_OFF
            result.notes.append(trouble)
            break
        if question not in settled:
            settled.append(question)
            title = sheets()[submission.exercise]["questions"][question]["title"]
            result.questions[question] |= {"state": "wrong", "message": f"{question} {title}: {trouble}."}
        else:
            result.notes.append(f"{question}: {trouble}; the rest was run without it")
        del answers[question]
    for question, entry in result.questions.items():
        if not entry["state"]:
            entry |= {"state": "not reached", "message": f"{question}: there was no time left for it."}


def _once(
    submission: Submission, answers: dict[str, str], settled: list[str], result: Result, limits: Limits, seconds: float
) -> tuple[str, str]:
    """Run the notebook once, taking marks as they come.

    Returns:
        what stopped it, in words, and the question that it happened at; empty if it ran to its end.
    """
    scratch = Path(tempfile.mkdtemp(prefix="specdec-grade-"))
    reader, writer = os.pipe()
    key = secrets.token_hex(32)
    job = {"pipe": writer, "key": key, "seed": result.seed, "scratch": str(scratch), "settled": settled}
    job |= {"cell_seconds": limits.cell_seconds, "seconds": seconds, "bytes": limits.bytes}
    job["hidden"] = [str(submission.path.resolve().parent)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = None
    try:
        (scratch / "lifted.ipynb").write_text(json.dumps(notebook_of(submission.exercise, answers)), encoding="utf-8")
        command = [sys.executable, "-m", "specdec_core.classroom.worker"]
        process = subprocess.Popen(command, pass_fds=[writer], cwd=scratch, start_new_session=True, **streams)
        os.close(writer)
        writer = -1
        watcher = _Watcher(process.pid, limits, seconds)
        watcher.start()
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
        at, ended = "", ("it ended before its time", "")
        with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
            reader = -1
            for message in _signed(lines, key):
                at = message.get("at", at)
                if "passed" in message:
                    _mark(result, message)
                elif "trouble" in message:
                    ended = (message["trouble"], message["question"])
                    break
        watcher.stop()
        result.peak_bytes = max(result.peak_bytes, watcher.peak)
        return (watcher.reason, at) if watcher.reason else (ended[0], ended[1] or at) if ended[0] else ended
    finally:
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)
        if process is not None:
            end(process.pid)
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _signed(lines: Iterable[str], key: str) -> Iterable[dict[str, Any]]:
    from .worker import signature

    for line in lines:
        mark, _, text = line.rstrip("\n").partition(" ")
        if hmac.compare_digest(mark.encode(), signature(key.encode(), text).encode()):
            yield json.loads(text)


def _mark(result: Result, message: dict[str, Any]) -> None:
    entry = result.questions[message["question"]]
    points, state = (entry["of"], "right") if message["passed"] else (0, "wrong")
    entry |= {"points": points, "state": state, "message": plain(message["message"])}


def plain(text: str) -> str:
    """What a submission may say about itself: printable, and not at any length.

    Example:
        >>> plain("a\\x1b[2Jb\\ud800")
        'a?[2Jb?'
    """
    text = text[:600].encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


class _Watcher(threading.Thread):
    """Ends a submission's processes when they exceed their bounds; ``reason`` says which one."""

    def __init__(self, pid: int, limits: Limits, seconds: float):
        super().__init__(daemon=True)
        self._pid, self._limits, self._seconds = pid, limits, seconds
        self._over = threading.Event()
        self.reason, self.peak = "", 0

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        deadline = time.monotonic() + self._seconds
        while not self._over.wait(0.1):
            processes, held = descendants(self._pid), 0
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    held += process.memory_info().rss
            self.peak = max(self.peak, held)
            if len(processes) > self._limits.processes:
                self.reason = f"it started more than {self._limits.processes} processes"
            elif held > self._limits.bytes + (1 << 29):
                self.reason = f"it took more than {self._limits.bytes / 2**30:.1f} GiB of memory"
            elif time.monotonic() > deadline:
                self.reason = "it took longer than a submission may"
            if self.reason:
                end(self._pid)
                return


def descendants(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def end(pid: int) -> None:
    """End a process and all that it started: first stop them all, so that none can start another meanwhile."""
    seen: dict[int, psutil.Process] = {}
    for _ in range(50):
        fresh = [process for process in descendants(pid) if process.pid not in seen]
        if not fresh:
            break
        for process in fresh:
            seen[process.pid] = process
            with contextlib.suppress(psutil.Error):
                process.suspend()
    for process in reversed(seen.values()):
        with contextlib.suppress(psutil.Error):
            process.kill()
