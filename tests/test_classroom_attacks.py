"""Submissions that want points without an answer, or harm: no point, a bounded time, and the rest graded as ever.

One notebook carries several attacks, a question each, so that this stays quick; every one leaves at least one
question answered rightly, which must keep its points.
"""

import contextlib
import hashlib
import json
import re
import sys

import psutil
import pytest
from classroom_files import ROOT, answer_id, submit

from specdec_core.classroom import fence, grader
from specdec_core.classroom import folder as folders
from specdec_core.classroom.fence import landlock_version
from specdec_core.classroom.folder import grade_all
from specdec_core.classroom.grader import Limits, Result, grade
from specdec_core.classroom.reports import as_csv, as_html, feedback

EX = "ex01_rejection_sampling"
WRONG = "def {name}(*arguments):\n    return 0.123\n"
QUICK = Limits(cell_seconds=5, seconds=90)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="grading needs Linux or macOS")


def wrong(name, *lines):
    return "\n".join([*lines, WRONG.format(name=name)])


def states(result):
    return {question: entry["state"] for question, entry in result.questions.items()}


def test_checks_that_are_shadowed_silenced_or_forged_win_nothing(tmp_path):
    answers = {
        "01.1": wrong(
            "accept",
            "import specdec_core.classroom.client as client",
            "def check(question, function):",
            "    print(question, 'right.', 'f' * 32)",
        ),
        "01.2": wrong("residual", "# NBVAL_SKIP", "# NBVAL_RAISES_EXCEPTION", "# NBVAL_IGNORE_OUTPUT"),
        "01.3": wrong(
            "acceptance_rate",
            "import specdec_core.classroom as classroom",
            "from IPython.core.interactiveshell import InteractiveShell",
            "InteractiveShell.showtraceback = lambda *a, **k: None",
            "get_ipython().showtraceback = lambda *a, **k: None",
        ),
        # from here on a check that lies: the messenger believes that every verdict is good
        "01.4": wrong(
            "one_round",
            "true_receive = client.receive",
            "def receive(stream):",
            "    message = true_receive(stream)",
            "    if message.get('passed') is False:",
            "        message = {'passed': True, 'message': 'right ' + 'f' * 32}",
            "    return message",
            "client.receive = receive",
            "del check",
            "from specdec_core.classroom import check",
        ),
    }
    result = grade(submit(tmp_path, EX, answers), limits=QUICK)
    assert result.outcome == grader.GRADED
    assert {q for q, state in states(result).items() if state == "wrong"} == set(answers)
    assert "the check was never made" in result.questions["01.1"]["message"]
    assert result.points == result.questions["01.5"]["points"] + result.questions["01.6"]["points"] == 5


def test_an_examination_cannot_be_had_before_its_time_or_twice(tmp_path):
    early = ["from specdec_core.classroom.client import check as examine", "told = []"]
    early += [
        f"try:\n    examine('{question}', lambda *a: 0.5)\nexcept Exception as error:\n    told.append(str(error))"
        for question in ("01.1", "01.2", "01.3")
    ]
    answers = {
        "01.1": wrong("accept", *early, "assert told == ['this question is not being examined'] * 3, told"),
        # a function that, being examined, asks for another examination of itself
        "01.3": "from specdec_core.classroom.client import check as examine\n"
        "def acceptance_rate(p, q):\n    examine('01.3', lambda p, q: 0.5)\n    return 0.5",
    }
    result = grade(submit(tmp_path, EX, answers), limits=QUICK)
    assert {q for q, state in states(result).items() if state == "wrong"} == set(answers)
    assert "answer cell failed" not in result.questions["01.1"]["message"]
    assert "this question is not being examined" in result.questions["01.3"]["message"]


def test_what_is_stuck_dies_or_grows_loses_its_question_and_no_other(tmp_path):
    answers = {
        "01.1": "import os\ndef accept(p_x, q_x):\n    os._exit(0)",
        "01.2": "def residual(p, q):\n    while True:\n        pass",
        "01.3": "import numpy as np\ndef acceptance_rate(p, q):\n    return float(np.ones((10 << 30) // 8).sum())",
        "01.4": "import ctypes, time\nfor _ in range(40):\n    if ctypes.CDLL(None).fork() == 0:\n"
        "        time.sleep(30)\n"
        "time.sleep(30)",
    }
    result = grade(submit(tmp_path, EX, answers), limits=QUICK)
    assert result.outcome == grader.GRADED
    assert states(result) == {q: "wrong" if q in answers else "right" for q in result.questions}
    said = {question: result.questions[question]["message"] for question in answers}
    assert "the kernel died" in said["01.1"]
    assert "it took longer than a cell may" in said["01.2"]
    assert "MemoryError" in said["01.3"] or "GiB of memory" in said["01.3"]
    assert "it started more than 16 processes" in said["01.4"]
    assert result.seconds < QUICK.seconds + 10


def test_other_files_processes_and_the_network_are_out_of_reach(tmp_path):
    victim = submit(tmp_path, EX, name="victim")
    before = victim.read_bytes()
    solution = ROOT / "solutions" / f"{EX}.py"
    library = "import os, signal, socket, subprocess, numpy as np\n"
    attempt = (
        "import ctypes\nwon = []\n"
        "def attempt(what):\n    try:\n        won.append(what())\n    except (OSError, ImportError):\n        pass\n"
    )
    reads = [
        f"attempt(lambda: open({str(victim)!r}).read())",
        f"attempt(lambda: os.open({str(victim)!r}, os.O_RDONLY))",
        f"attempt(lambda: open({str(solution)!r}).read())",
        "attempt(lambda: __import__('specdec_core.classroom.questions.ch01'))",
        "attempt(lambda: __import__('specdec_core.core.rules'))",
        "attempt(lambda: open(f'/proc/{os.getppid()}/environ').read() and open(f'/proc/{os.getppid()}/mem'))",
    ]
    harms = [
        f"attempt(lambda: open({str(victim)!r}, 'w'))",
        f"attempt(lambda: os.remove({str(victim)!r}))",
        f"attempt(lambda: os.rename({str(victim)!r}, 'mine'))",
        "attempt(lambda: subprocess.run(['true']))",
        "attempt(lambda: os.fork())",
        "attempt(lambda: os.kill(os.getppid(), signal.SIGKILL))",
        "attempt(lambda: socket.create_connection(('127.0.0.1', 9), timeout=1))",
    ]
    control: dict = {}
    exec("\n".join([library, attempt, *reads[:5]]), control)
    assert len(control["won"]) == 5  # without the fence, each of them wins
    end = "assert not won, [str(w)[:40] for w in won]"
    answers = {
        "01.1": "\n".join([library, attempt, *reads, end, WRONG.format(name="accept")]),
        "01.2": "\n".join([library, attempt, *harms, end, WRONG.format(name="residual")]),
        "01.3": "import torch\n"
        + "def acceptance_rate(p, q):\n    return torch.minimum(*map(torch.from_numpy, (p, q))).sum()",
    }
    if landlock_version():  # not Python's word but the system's: C asks the same, and gets no further
        answers["01.4"] = wrong(
            "one_round",
            "import ctypes, os",
            "libc = ctypes.CDLL(None, use_errno=True)",
            f"assert libc.open({str(victim).encode()!r}, 0) == -1",
            f"assert libc.open({str(solution).encode()!r}, 0) == -1",
            f"assert libc.unlink({str(victim).encode()!r}) == -1",
            *(["assert libc.kill(os.getppid(), 9) == -1"] if landlock_version() >= 6 else []),
        )
    result = grade(submit(tmp_path, EX, answers, name="thief"), limits=QUICK)
    for question in answers.keys() - {"01.3"}:
        assert states(result)[question] == "wrong"
        assert "0.123" in result.questions[question]["message"]  # its cell ran to the end, every attempt refused
    assert states(result)["01.3"] == "right"  # torch may still be used, though it is loaded behind the fence
    assert victim.read_bytes() == before


def test_what_a_submission_says_cannot_break_the_report(tmp_path):
    """Letters that no file can hold, and codes that would clear the teacher's terminal."""
    answers = {
        "01.1": "def accept(p_x, q_x):\n    raise ValueError('\\ud800\\x1b[2J' + 'x' * 5000)",
        "01.2": "residual = '\ud800'",
        "01.3": "print('y' * 30_000_000)\nacceptance_rate = print",
    }
    path = submit(tmp_path, EX, name="loud")
    content = json.loads(path.read_text(encoding="utf-8"))
    for item in content["cells"]:
        for question, source in answers.items():
            if item["id"] == answer_id(question):
                item["source"] = source
    path.write_text(json.dumps(content), encoding="utf-8")
    result = grade(path, limits=QUICK)
    assert {q for q, state in states(result).items() if state == "wrong"} == set(answers)
    said = result.questions["01.1"]["message"]
    assert "raised ValueError: ??[2Jxxx" in said and len(said) < 700
    (feedback(result) + as_csv([result]) + as_html([result], "")).encode("utf-8")


def running(pid):
    """Whether a process is there and is more than an entry that nobody has asked for."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere orphans are nobody's children")
def test_no_process_outlives_its_grading(tmp_path):
    hide = """
import ctypes, os, time
libc = ctypes.CDLL(None)
if libc.fork() == 0:
    libc.setsid()
    if libc.fork() == 0:  # its parent is gone at once
        with open("hidden", "w") as out:
            out.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists("hidden") or not open("hidden").read():
    time.sleep(0.01)
def accept(p_x, q_x):
    raise ValueError(f"{os.getpid()} {open('hidden').read()}")
"""
    result = grade(submit(tmp_path, EX, {"01.1": hide}), limits=QUICK)
    pids = [int(pid) for pid in re.findall(r"\d+", result.questions["01.1"]["message"].partition("ValueError")[2])]
    assert len(pids) == 2, result.questions["01.1"]  # the kernel, and the one that hid
    assert not any(map(running, pids))
    assert result.points == result.of - 1


def test_what_lies_among_readable_folders_stays_hidden(tmp_path, monkeypatch):
    """A course in a folder that is readable otherwise, as in many images: /opt/course, with the submissions in it."""
    ours = "course/specdec_core/base/errors.py"
    for name in ("python/lib.py", "course/pyproject.toml", "course/solutions/ex.py", ours, "handed-in/ada.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(fence, "_SYSTEM", (str(tmp_path),))
    monkeypatch.setattr(fence, "_PACKAGE", tmp_path / "course" / "specdec_core")
    allowed = fence.readable([str(tmp_path / "handed-in")])

    def may(name):
        place = tmp_path / name
        return any(place == root or root in place.parents for root in allowed)

    assert may("python/lib.py") and may(ours)
    assert not may("course/solutions/ex.py") and not may("handed-in/ada.ipynb")
    assert not may("course/specdec_core/classroom/questions/ch01.py")


def test_a_submission_that_fells_its_grader_is_not_tried_for_ever(tmp_path):
    """Two starts without an end, then it is named and left; a run stopped by hand is not held against it."""
    submit(tmp_path, EX, name="felon", start="exercises")
    journal = tmp_path / "journal"
    begun = json.dumps({"begun": "felon.ipynb"}) + "\n"
    journal.write_text(begun * 2)
    (result,) = grade_all(tmp_path, QUICK, 1, journal)
    assert result.outcome == grader.FELLED
    journal.write_text(begun * 2 + json.dumps({"interrupted": True}) + "\n")
    assert folders._read_journal(journal, {})[1] == {}


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / f"{name}.ipynb").write_text(name)
    journal, graded = tmp_path / "journal", []

    def quickly(path, name, limits, seed, stop):
        graded.append(name)
        return Result(name, hashlib.sha256(path.read_bytes()).hexdigest())

    def interrupt(result):
        if result.file == "b.ipynb":
            raise KeyboardInterrupt

    monkeypatch.setattr(folders, "grade", quickly)
    with pytest.raises(KeyboardInterrupt):
        grade_all(tmp_path, QUICK, 1, journal, progress=interrupt)
    before = list(graded)
    with open(journal, "a") as out:
        out.write('{"result": {"file": "c.ip')  # as if the power had failed there
    (tmp_path / "a.ipynb").write_text("another")  # handed in again meanwhile
    results = grade_all(tmp_path, QUICK, 1, journal)
    assert [result.file for result in results] == ["a.ipynb", "b.ipynb", "c.ipynb"]
    again = graded[len(before) :]
    assert "a.ipynb" in again and "b.ipynb" not in again


def test_one_submission_that_breaks_the_grader_does_not_stop_the_rest(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.ipynb").write_text(name)

    def fragile(path, name, limits, seed, stop):
        if name == "a.ipynb":
            raise RuntimeError("no such luck")
        return Result(name)

    monkeypatch.setattr(folders, "grade", fragile)
    first, second = grade_all(tmp_path, QUICK, 2)
    assert (first.outcome, first.notes) == (grader.BROKE_OFF, ["RuntimeError: no such luck"])
    assert second.outcome == grader.GRADED
