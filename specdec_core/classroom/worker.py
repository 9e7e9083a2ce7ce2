"""Grade one submission: a process of its own, which runs nbval on the lifted notebook and examines the answers.

`grader` starts it with a job on stdin and reads lines of JSON from a pipe, each signed with the job's key. The
notebook's kernel is a child of this process, behind `fence`; it knows the port of the examiner and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import secrets
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .alone import OWN_CELL
from .apart import die_with_parent, out_of_sight
from .client import PLACE
from .examiner import UNANSWERED, VISIBLE_SEED, examine
from .fence import PLAN
from .messenger import receive, send
from .questions import find
from .sheets import described

# Variables of the kernel's environment: folders that are its scratch folder's, and switches that are on.
_HOMES = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
_SWITCHES = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_SWITCHES += ("MKL_NUM_THREADS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


class Line:
    """The way to the grader: lines of JSON, each with a signature that the notebook's kernel cannot make."""

    def __init__(self, descriptor: int, key: str):
        os.set_inheritable(descriptor, False)
        self._out, self._key, self._lock = os.fdopen(descriptor, "w"), key.encode(), threading.Lock()

    def say(self, **message: Any) -> None:
        text = json.dumps(message)
        with self._lock:
            self._out.write(f"{signature(self._key, text)} {text}\n")
            self._out.flush()

    def end(self, **message: Any) -> None:
        """Say one last thing, and wait for the grader to end this process and all its children:
        while it is there, children that lost their parent are its own, and none is overlooked.
        """
        self.say(**message)
        while True:
            time.sleep(3600)


def signature(key: bytes, text: str) -> str:
    """What proves that a line comes from the worker."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Examiner:
    """Answers `check` from the kernel: one examination per question, and only while its check cell runs."""

    def __init__(self, seed: int, patience: float, answers: dict[str, str]):
        self._seed, self._patience, self.token, self._answers = seed, patience, secrets.token_hex(16), answers
        self.current = ""  # the question whose check cell is running
        self.verdicts: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(self._patience)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), connection:
            stream = connection.makefile("rwb")
            hello = receive(stream)
            question = hello["question"]
            with self._lock:
                open_now = hello["token"] == self.token and question == self.current
                if not open_now or question in self.verdicts:
                    send(stream, {"passed": False, "message": "this question is not being examined"})
                    return
                self.verdicts[question] = {"passed": False, "message": "the examination was broken off", "receipt": ""}
            send(stream, {"name": find(question).name, "source": self._answers[question]})
            send(stream, self._examine(question, stream))

    def _examine(self, question: str, stream: Any) -> dict[str, Any]:
        def carry(message: dict[str, Any], serve: Any) -> dict[str, Any]:
            send(stream, message)
            while True:
                reply = receive(stream)
                if "invoke" not in reply:
                    return reply
                send(stream, serve(*reply["invoke"]))

        digest = hashlib.sha256(f"{self._seed} {question}".encode()).digest()
        fresh = int.from_bytes(digest[:8], "big")
        title = described(question)["title"]
        try:
            passed, words = examine(find(question), carry, (VISIBLE_SEED, fresh))
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
            passed, words = False, "what it returned could not be read"
        receipt = secrets.token_hex(16) if passed else ""
        verdict = {"passed": passed, "message": f"{question} {title}: {words}", "receipt": receipt}
        self.verdicts[question] = verdict | {"answered": words != UNANSWERED}
        return {"passed": passed, "message": f"{question} {title}: {words} {receipt}".strip()}


class Marks:
    """A pytest plugin: follows nbval through the cells and gives each question its mark."""

    def __init__(self, line: Line, examiner: Examiner, settled: list[str]):
        self._line, self._examiner, self._settled = line, examiner, set(settled)
        self._broken: dict[str, str] = {}  # question -> what its answer cell raised
        self.item: Any = None

    def pytest_runtest_setup(self, item: Any) -> None:
        role, question = _role(item)
        self.item = item
        self._examiner.current = question if role == "check" and question not in self._settled else ""
        self._line.say(at=question)

    def pytest_runtest_teardown(self, item: Any) -> None:
        self.item = None  # from here on the kernel may end

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = yield
        role, question = _role(item)
        if getattr(item.parent, "timed_out", False):
            # What comes after a cell that timed out is worth nothing; the grader starts again.
            self._line.end(trouble="it took longer than a cell may", question=question)
        if report.when == "call":
            if role == "answer" and not report.passed:
                self._broken[question] = _error(item) or "it did not run"
            if role == "given" and not report.passed:
                self._line.say(trouble=f"our own cell did not run: {_error(item)}", question="")
            if role == "check" and question not in self._settled:
                self._line.say(question=question, **self._mark(question, item, report))
        elif not report.passed and role == "check" and report.when == "setup" and question not in self._settled:
            self._line.say(question=question, passed=False, message=f"{question}: the notebook could not go on")
        return report

    def _mark(self, question: str, item: Any, report: Any) -> dict[str, Any]:
        verdict = self._examiner.verdicts.get(question)
        printed = "".join(out.get("text", "") for out in item.test_outputs or () if out.output_type == "stream")
        if verdict and verdict["passed"]:
            clean = report.passed and not hasattr(report, "wasxfail")
            if clean and verdict["receipt"] in printed:
                return {"passed": True, "message": verdict["message"]}
            return {"passed": False, "message": f"{question}: right, but its check cell did not end as it should"}
        if verdict:
            answered = verdict.get("answered", True)
            return {"passed": False, "message": verdict["message"], "answered": answered}
        title = f"{question} {described(question)['title']}"
        if question in self._broken:
            return {"passed": False, "message": f"{title}: the answer cell failed: {self._broken[question]}"}
        why = _error(item)
        return {"passed": False, "message": f"{title}: the check was never made{f' ({why})' if why else ''}"}


def _role(item: Any) -> tuple[str, str]:
    mark = item.cell.metadata["specdec"]
    return mark["role"], mark["question"]


def _error(item: Any) -> str:
    for out in getattr(item, "test_outputs", None) or ():
        if out.output_type == "error":
            rule = f"; {OWN_CELL}" if out.ename == "NameError" else ""
            return f"{out.ename}: {out.evalue}"[:300] + rule
    return ""


def _watch(marks: Marks, line: Line) -> None:
    """nbval waits for a dead kernel until the time is up; this does not."""
    while True:
        time.sleep(0.1)
        item = marks.item
        try:
            process = item.parent.kernel.km.provisioner.process
        except AttributeError:
            continue  # between two kernels
        if process is not None and process.poll() is not None:
            line.end(trouble="the kernel died", question=_role(item)[1])


def main() -> None:
    job = json.loads(sys.stdin.read())
    out_of_sight()
    die_with_parent()
    if sys.platform == "linux":
        # What its children leave behind is still its own, so that ending it ends them all: PR_SET_CHILD_SUBREAPER.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    # jsonschema compiles a grammar of internationalized addresses when it is loaded, which takes longer than all the
    # rest and which no notebook needs; it does without if there is none.
    sys.modules.setdefault("rfc3987_syntax", None)
    line, examiner = Line(job["pipe"], job["key"]), Examiner(job["seed"], job["cell_seconds"], job["answers"])
    scratch = Path(job["scratch"])
    home, desk = scratch / "home", scratch / "desk"
    kernels = scratch / "jupyter" / "kernels" / "graded"
    kernels.mkdir(parents=True)
    home.mkdir()
    os.environ.update(dict.fromkeys(_HOMES, str(home)) | dict.fromkeys(_SWITCHES, "1"))
    os.environ.update(JUPYTER_PATH=str(scratch / "jupyter"), PYTHONHASHSEED="0")
    plan = {"scratch": str(desk), "port": examiner.port, "seconds": int(job["seconds"]) + 1}
    plan |= {name: job[name] for name in ("hidden", "bytes")}
    theirs = dict.fromkeys(_HOMES, str(desk)) | {"JUPYTER_PATH": "", "USER": "answer"}
    theirs |= {PLACE: f"{examiner.port}:{examiner.token}", PLAN: json.dumps(plan)}
    argv = [sys.executable, "-m", "specdec_core.classroom.fence", "-f", "{connection_file}"]
    argv += ["--HistoryManager.enabled=False", "--log-level=ERROR"]
    spec = {"argv": argv, "display_name": "graded", "language": "python", "env": theirs}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    marks = Marks(line, examiner, job["settled"])
    threading.Thread(target=_watch, args=(marks, line), daemon=True).start()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        nbval = ["-p", "nbval.plugin", "--nbval-lax", "--nbval-kernel-name=graded"]
        quiet = ["-p", "no:cacheprovider", "-c", os.devnull, "-q", "--color=no", "--capture=no"]
        where = [str(scratch / "lifted.ipynb"), f"--rootdir={scratch}"]
        pytest.main([*where, *nbval, f"--nbval-cell-timeout={job['cell_seconds']}", *quiet], plugins=[marks])
    line.end(trouble="", question="")


if __name__ == "__main__":
    main()
