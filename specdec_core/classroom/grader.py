"""Grade one submission: in a process group and a scratch folder of its own, watched from outside.

A notebook that gets stuck, dies or grows beyond its bounds loses the question at which it did; it is started again
without that answer, so that the others still count.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import SpecdecError
from .apart import start_ours
from .lift import Submission, lift_apart, notebook_of
from .scratch import workplace
from .sheets import sheets
from .watch import Limits, Watcher, end

USUAL = Limits()
GRADED = "graded"
BROKE_OFF = "could not be graded"
FELLED = "ended the grader twice"


class GradeError(SpecdecError):
    """Grading that cannot begin: nothing to grade, no nbval, a place that cannot be written."""


@dataclass
class Result:
    """What became of one file.

    Attributes:
        file: its name as it can be shown, relative to the folder that was graded.
        digest: SHA-256 of its bytes.
        outcome: "graded", or why not (names in `lift`, and above).
        exercise: whose answers.
        points, of: earned, out of how many.
        questions: question -> ``{"points", "of", "state", "message"}``; state is "right", "wrong", "unanswered", or
            why there was nothing to judge.
        notes: what the teacher should know.
        seed: of the inputs; with it the same inputs can be made again.
        seconds, peak_bytes: what grading it took: wall time, and the most memory that its processes held at once.
        key: its path in the folder that was graded, as it is; two files may be shown alike, but have two keys.
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
    key: str = ""


def grade(
    path: Path,
    name: str = "",
    limits: Limits = USUAL,
    seed: int | None = None,
    stop: threading.Event | None = None,
    hidden: Path | None = None,
) -> Result:
    """Grade one file; whatever it does, this returns.

    Args:
        path: a notebook.
        name: its path in the folder that is graded.
        limits: bounds on time, memory and processes.
        seed: of the inputs; unpredictable unless given.
        stop: once set, nothing more is started, and the result means nothing.
        hidden: the folder with all that was handed in; the file's own unless given.
    """
    start, name = time.perf_counter(), name or path.name
    submission = lift_apart(path)
    seed = secrets.randbits(48) if seed is None else seed
    about = (plain(name), submission.digest, submission.outcome or GRADED, submission.exercise)
    result = Result(*about, notes=submission.notes, seed=seed, key=name)
    if submission.exercise:
        _unanswered(submission, result)
    if not submission.outcome:
        _run(submission, result, limits, stop or threading.Event(), hidden or path.parent)
    result.points = sum(entry["points"] for entry in result.questions.values())
    result.seconds = time.perf_counter() - start
    return result


def _unanswered(submission: Submission, result: Result) -> None:
    for question, about in sheets()[submission.exercise]["questions"].items():
        state = submission.states.get(question, "")
        words = submission.refused.get(question, state)
        message = f"{question} {about['title']}: {words}." if state else ""
        result.questions[question] = {"points": 0, "of": about["points"], "state": state, "message": message}
        result.of += about["points"]


def _run(submission: Submission, result: Result, limits: Limits, stop: threading.Event, hidden: Path) -> None:
    answers = dict(submission.answers)
    settled = [question for question in result.questions if question not in answers]
    deadline = time.monotonic() + limits.seconds
    for _ in range(len(result.questions) + 1):
        left = deadline - time.monotonic()
        if stop.is_set() or left <= 0 or not set(answers) - set(settled):
            break
        trouble, question = _once(submission.exercise, answers, settled, result, limits, left, hidden)
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
    exercise: str,
    answers: dict[str, str],
    settled: list[str],
    result: Result,
    limits: Limits,
    seconds: float,
    hidden: Path,
) -> tuple[str, str]:
    """Run the notebook once, taking marks as they come.

    Returns:
        what stopped it, in words, and the question that it happened at; empty if it ran to its end.
    """
    key, at, ended = secrets.token_hex(32), "", ("it ended before its time", "")
    with workplace() as scratch:
        desk = scratch / "desk"  # all that answers write to; what our own processes read lies beside it
        desk.mkdir()
        (scratch / "lifted.ipynb").write_text(json.dumps(notebook_of(exercise, answers)), encoding="utf-8")
        reader, writer = os.pipe()
        job = {"pipe": writer, "key": key, "seed": result.seed, "scratch": str(scratch), "settled": settled}
        job["answers"] = {question: answers.get(question, "") for question in result.questions}
        job |= {"cell_seconds": limits.cell_seconds, "seconds": seconds, "bytes": limits.bytes}
        job["hidden"] = [str(hidden.resolve())]
        with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
            try:
                process = start_ours("worker", cwd=scratch, pass_fds=[writer])
            finally:
                os.close(writer)
            watcher = Watcher(process.pid, limits, seconds, desk)
            try:
                watcher.start()
                process.stdin.write(json.dumps(job).encode())
                process.stdin.close()
                for message in _signed(lines, key):
                    at = message.get("at", at)
                    if "passed" in message:
                        _mark(result, message)
                    elif "trouble" in message:
                        ended = (message["trouble"], message["question"])
                        break
                watcher.stop()
            finally:
                end(process.pid)
                process.wait()
    result.peak_bytes = max(result.peak_bytes, watcher.peak)
    return (watcher.reason, at) if watcher.reason else (ended[0], ended[1] or at) if ended[0] else ended


def _signed(lines: Iterable[str], key: str) -> Iterable[dict[str, Any]]:
    from .worker import signature

    for line in lines:
        mark, _, text = line.rstrip("\n").partition(" ")
        if hmac.compare_digest(mark.encode(), signature(key.encode(), text).encode()):
            yield json.loads(text)


def _mark(result: Result, message: dict[str, Any]) -> None:
    entry = result.questions[message["question"]]
    state = "right" if message["passed"] else "wrong" if message.get("answered", True) else "unanswered"
    entry |= {"points": entry["of"] * message["passed"], "state": state, "message": plain(message["message"])}


def plain(text: str) -> str:
    """What a submission may say about itself: printable, and not at any length. Bytes that are no text show as such.

    Example:
        >>> plain("a\\x1b[2Jb\\udcfc")
        'a?[2Jb\\\\udcfc'
    """
    text = text[:600].encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
