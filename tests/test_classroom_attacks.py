"""Submissions that want points without an answer, or harm: no point, a bounded time, and the rest graded as ever.

One notebook carries several attacks, a question each, so that this stays quick; every one leaves at least one
question answered rightly, which must keep its points.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from classroom_files import ROOT, answer_id, submit
from classroom_thieves import ATTACKS

from specdec_core.classroom import folder as folders
from specdec_core.classroom import grader, scratch, walls
from specdec_core.classroom.apart import apart
from specdec_core.classroom.folder import grade_all
from specdec_core.classroom.grader import Result, grade
from specdec_core.classroom.layouts import rows_of
from specdec_core.classroom.lift import TOO_LARGE, lift_apart
from specdec_core.classroom.reports import as_csv, as_html, feedback
from specdec_core.classroom.watch import Limits, Watcher

EX = "ex01_rejection_sampling"
WRONG = "def {name}(*arguments):\n    return 0.123\n"
QUICK = Limits(cell_seconds=5, seconds=90)
# Our own modules, as an answer gets at them that does not name them.
OURS = 'import sys\nclient = sys.modules["specdec" + "_core.classroom.client"]'

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="grading needs Linux or macOS")
walled = pytest.mark.skipif(not (walls.landlock_version() >= 6 and walls.has_seccomp()), reason="no such walls here")
THIEVES = Path(__file__).with_name("classroom_thieves.py")


def attack(name, holes, plan):
    command = [sys.executable, str(THIEVES), name, " ".join(holes), json.dumps(plan)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


@pytest.fixture
def plan(tmp_path):
    """A graded root with a victim, a desk beside it, and servers that listen."""
    root, desk = tmp_path / "handed-in", tmp_path / "desk"
    root.mkdir(), desk.mkdir()
    (root / "victim.ipynb").write_text("{}")
    with tempfile.NamedTemporaryFile() as file, socket.socket(socket.AF_UNIX) as service, socket.socket() as other:
        service.bind(str(tmp_path / "service"))
        other.bind(("127.0.0.1", 0))
        service.listen(), other.listen()
        yield {
            "scratch": str(desk),
            "hidden": [str(root)],
            "port": 9,
            "bytes": 1 << 30,
            "seconds": 20,
            "victim": str(root / "victim.ipynb"),
            "temporary": file.name,
            "service": str(tmp_path / "service"),
            "other_port": other.getsockname()[1],
            "solution": str(ROOT / "solutions" / f"{EX}.py"),
            "examiner": str(ROOT / "specdec_core" / "classroom" / "questions" / "ch01.py"),
        }


@walled
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_lost_and_would_be_won_through_a_hole(name, plan):
    holes, _ = ATTACKS[name]
    assert attack(name, [], plan) == "lost"
    if not os.geteuid() or name not in ("the name of the machine", "another root", "a device of the machine"):
        assert attack(name, holes, plan) == "won"


@walled
@pytest.mark.skipif(not os.geteuid(), reason="root without its privileges may not look at root with them anyway")
def test_without_privileges_nothing_reads_the_environment_of_one_that_is_out_of_sight(plan):
    """The second wall before the grader's environment: this very process, hidden as a grader hides itself."""
    folders.out_of_sight()
    try:
        assert attack("the grader's environment", ["landlock"], plan) == "lost"
    finally:
        folders.out_of_sight(False)


def test_only_the_interpreter_and_libraries_can_be_read(tmp_path, monkeypatch):
    """Even with a course, its solutions and its hand-ins among the packages, as a careless image has them."""
    site = tmp_path / "python" / "site-packages"
    for name in ("numpy/core.py", "specdec_core/classroom/questions/ch01.py", "handed-in/ada.ipynb"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    (tmp_path / "course" / "solutions").mkdir(parents=True)
    monkeypatch.setattr(walls, "_PACKAGE", site / "specdec_core")
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "course"), ""])
    allowed = walls.readable([str(site / "handed-in")])

    def may(place):
        return any(place == root or root in place.parents for root in allowed)

    assert may(site / "numpy" / "core.py")
    for place in ("specdec_core/classroom/questions/ch01.py", "handed-in/ada.ipynb", "../../course/solutions"):
        assert not may((site / place).resolve()), place
    for place in (ROOT / "solutions", *map(Path, ("/etc/passwd", "/home/a", "/proc/1", "/tmp/x", "/opt/a", "/srv"))):
        assert not may(place), place


def wrong(name, *lines):
    return "\n".join([*lines, WRONG.format(name=name)])


def states(result):
    return {question: entry["state"] for question, entry in result.questions.items()}


def test_checks_that_are_shadowed_silenced_or_forged_win_nothing(tmp_path):
    answers = {
        "01.1": wrong(
            "accept",
            OURS,
            "def check(question, function):",
            "    print(question, 'right.', 'f' * 32)",
        ),
        "01.2": wrong("residual", "# NBVAL_SKIP", "# NBVAL_RAISES_EXCEPTION", "# NBVAL_IGNORE_OUTPUT"),
        "01.3": wrong(
            "acceptance_rate",
            "from IPython.core.interactiveshell import InteractiveShell",
            "InteractiveShell.showtraceback = lambda *a, **k: None",
            "get_ipython().showtraceback = lambda *a, **k: None",
        ),
        # from here on a check that lies: the messenger believes that every verdict is good
        "01.4": wrong(
            "one_round",
            OURS,
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
    assert "0.123" in result.questions["01.1"]["message"]  # the true check has been asked
    assert result.points == result.questions["01.5"]["points"] + result.questions["01.6"]["points"] == 5


def test_an_examination_cannot_be_had_before_its_time_or_twice(tmp_path):
    early = [OURS, "examine, told = client.check, []"]
    early += [
        f"try:\n    examine('{question}', lambda *a: 0.5)\nexcept Exception as error:\n    told.append(str(error))"
        for question in ("01.1", "01.2", "01.3")
    ]
    answers = {
        "01.1": wrong("accept", *early, "assert told == ['this question is not being examined'] * 3, told"),
        # a function that, being examined, asks for another examination of itself
        "01.3": f"{OURS}\ndef acceptance_rate(p, q):\n    client.check('01.3', lambda p, q: 0.5)\n    return 0.5",
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
        # files that have no name any more, and hold what they held
        "01.4": "import os, time\nfor i in range(70):\n    out = open(str(i), 'wb', 0)\n    os.remove(str(i))\n"
        "    [out.write(bytes(1 << 20)) for _ in range(63)]\n    globals()[f'kept{i}'] = out\ntime.sleep(30)",
    }
    result = grade(submit(tmp_path, EX, answers), limits=QUICK)
    assert result.outcome == grader.GRADED
    assert states(result) == {q: "wrong" if q in answers else "right" for q in result.questions}
    said = {question: result.questions[question]["message"] for question in answers}
    assert "the kernel died" in said["01.1"]
    assert "it took longer than a cell may" in said["01.2"]
    assert "MemoryError" in said["01.3"] or "GiB of memory" in said["01.3"]
    assert "GiB of files" in said["01.4"]
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
        "attempt(lambda: __import__('specdec' + '_core.classroom.questions.ch01'))",
        "attempt(lambda: __import__('specdec' + '_core.core.rules'))",
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
    if walls.landlock_version():  # not Python's word but the system's: C asks the same, and gets no further
        answers["01.4"] = wrong(
            "one_round",
            "import ctypes, os",
            "libc = ctypes.CDLL(None, use_errno=True)",
            f"assert libc.open({str(victim).encode()!r}, 0) == -1",
            f"assert libc.open({str(solution).encode()!r}, 0) == -1",
            f"assert libc.unlink({str(victim).encode()!r}) == -1",
            *(["assert libc.kill(os.getppid(), 9) == -1"] if walls.landlock_version() >= 6 else []),
        )
    patient = Limits(cell_seconds=40)  # torch is loaded behind the fence, on a machine that may be busy
    result = grade(submit(tmp_path, EX, answers, name="thief"), limits=patient)
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
    assert "raised ValueError: \\ud800?[2Jxxx" in said and len(said) < 700
    rows = rows_of([result])
    (feedback(result) + as_csv(rows) + as_html(rows, [], "")).encode("utf-8")


def running(pid):
    """Whether a process is there and is more than an entry that nobody has asked for."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


BROOD = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as the worker: what its children leave behind is its own
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:  # its parent is gone at once
            os.write(1, b"%d\\n" % os.getpid())
            time.sleep(600)
        os._exit(0)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere orphans are nobody's children")
@pytest.mark.parametrize(("children", "reason"), [(1, "longer than"), (20, "more than 16 processes")])
def test_no_process_outlives_its_grading(tmp_path, children, reason):
    """Where system calls cannot be denied a kernel may have children that hide; they are found and ended."""
    process = subprocess.Popen([sys.executable, "-c", BROOD, str(children)], stdout=subprocess.PIPE, text=True)
    hidden = [int(process.stdout.readline()) for _ in range(children)]
    watcher = Watcher(process.pid, Limits(), 2.0, tmp_path)
    watcher.run()
    process.wait()
    for _ in range(100):
        if not any(map(running, hidden)):
            break
        time.sleep(0.1)  # what was killed may take a moment to be gone
    assert reason in watcher.reason and not any(map(running, hidden))


def test_a_grader_that_is_killed_leaves_no_process_and_the_next_one_clears_up(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    path = submit(tmp_path, EX, {"01.1": "import time\ntime.sleep(600)"})
    code = "import sys, pathlib; from specdec_core.classroom.grader import grade; grade(pathlib.Path(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    seen: dict = {}
    for _ in range(300):
        seen |= {child.pid: child for child in psutil.Process(process.pid).children(recursive=True)}
        if len([pid for pid in seen if running(pid)]) >= 2:  # the worker and the kernel
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = list((tmp_path / "tmp").iterdir())
    assert left
    psutil.wait_procs(list(seen.values()), timeout=20)
    assert not any(map(running, seen))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with scratch.workplace() as held:
        assert [place for place in left if place.exists()] == []
        with scratch.workplace():
            assert held.exists()  # one that is in use stays
    assert not list((tmp_path / "tmp").iterdir())


NEST = """
import ctypes, os
libc, top, name = ctypes.CDLL(None), os.getcwd().encode(), b"d%d" % len(os.listdir())
for _ in range(3000):
    assert libc.mkdir(name, 0o700) == libc.chdir(name) == 0
libc.chdir(top)
def accept(p_x, q_x):
    return min(1.0, p_x / q_x)
"""


def test_clearing_up_changes_no_mark(tmp_path, monkeypatch):
    """3,000 folders within folders, and one that may not be looked into; a hole: to clear up as one usually does."""
    closed = wrong("residual", "import os", "os.mkdir(f'closed{os.times()}', 0)")
    path = submit(tmp_path, EX, {"01.1": NEST, "01.2": closed})
    result = grade(path, limits=QUICK)
    assert states(result)["01.1"] == states(result)["01.3"] == "right", result
    assert result.points == result.of - 2
    deep = tmp_path / "deep"
    deep.mkdir()
    subprocess.run([sys.executable, "-c", NEST.replace("3000", "1500")], cwd=deep, check=True)
    with monkeypatch.context() as hole:
        hole.setattr(sys, "setrecursionlimit", None)
        with pytest.raises((RecursionError, OSError)):
            shutil.rmtree(deep)
    scratch.clear(deep)
    assert not deep.exists()


def test_neighbours_links_and_secrets_are_out_of_reach_in_a_whole_class(tmp_path, monkeypatch):
    """Folders as systems hand them out, a neighbour's beside one's own; links; a token in the grader's environment."""
    monkeypatch.setenv("SPECDEC_TEST_TOKEN", "sesame")
    for name in ("alice+ex01", "bob+ex01"):
        (tmp_path / name).mkdir()
    bob = submit(tmp_path / "bob+ex01", EX)
    read = (
        "import json, os, sys\nfound = []\n"
        f"def look(path):\n    try:\n        found.append(open(path, 'rb').read())\n    except OSError:\n        pass\n"
        f"look({str(bob)!r})\nlook({str(ROOT / 'solutions' / f'{EX}.ipynb')!r})\n"
        f"for pid in (1, os.getppid(), {os.getpid()}):\n    look(f'/proc/{{pid}}/environ')\n"
        "assert not found, found\nassert 'sesame' not in str(os.environ)\n"
    )
    submit(tmp_path / "alice+ex01", EX, {"01.1": read + WRONG.format(name="accept")}, start="exercises")
    (tmp_path / "linked.ipynb").symlink_to(bob)
    (tmp_path / "folder").symlink_to(ROOT / "solutions")
    results = {result.key: result for result in grade_all(tmp_path, QUICK, 2)}
    assert "0.123" in results["alice+ex01/submission.ipynb"].questions["01.1"]["message"]  # its cell ran to the end
    assert results["bob+ex01/submission.ipynb"].points == 12
    assert {results[name].outcome for name in ("linked.ipynb", "folder")} == {"a link: hand in the file itself"}


def test_a_file_that_is_costly_to_read_is_read_within_bounds(tmp_path, monkeypatch):
    """60 MB of nested lists; the bounds are of the process that reads it, not the grader's."""
    costly = tmp_path / "costly.ipynb"
    costly.write_text('{"nbformat": 4, "cells": [' + "[[[[[]]]]]," * 5_500_000 + "[]]}")
    before = psutil.Process().memory_info().rss
    found = lift_apart(costly)
    assert found.outcome == TOO_LARGE and "GiB of memory" in found.notes[0]
    assert psutil.Process().memory_info().rss - before < 100 << 20
    assert apart("nowhere") == "our nowhere ended with status 1"  # and is not taken for the file's fault


def test_a_submission_that_fells_its_grader_is_not_tried_for_ever(tmp_path):
    """Two starts without an end, then it is named and left; a run stopped by hand is not held against it."""
    submit(tmp_path, EX, name="felon", start="exercises")
    journal = tmp_path / "journal"
    begun = json.dumps({"begun": "felon.ipynb"}) + "\n"
    sheet = folders._digest(folders.SHEETS)
    head = {"root": str(tmp_path), "limits": dataclasses.asdict(QUICK), "seed": None, "sheets": sheet}
    journal.write_text(json.dumps(head) + "\n" + begun * 2)
    result = next(result for result in grade_all(tmp_path, QUICK, 1, journal) if result.key == "felon.ipynb")
    assert result.outcome == grader.FELLED
    journal.write_text(json.dumps(head) + "\n" + begun * 2 + json.dumps({"interrupted": True}) + "\n")
    assert folders._read_journal(journal, {}, head)[1] == {}


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    """Unless a file, the limits, or the seed is another one."""
    root = tmp_path / "root"
    root.mkdir()
    for name in "abc":
        (root / f"{name}.ipynb").write_text(name)
    journal, graded = tmp_path / "journal", []

    def quickly(path, name, limits, seed, stop, hidden):
        graded.append(name)
        return Result(name, hashlib.sha256(path.read_bytes()).hexdigest(), key=name)

    def interrupt(result):
        if result.file == "b.ipynb":
            raise KeyboardInterrupt

    monkeypatch.setattr(folders, "grade", quickly)
    with pytest.raises(KeyboardInterrupt):
        grade_all(root, QUICK, 1, journal, progress=interrupt)
    before = list(graded)
    with open(journal, "a") as out:
        out.write('{"result": {"file": "c.ip')  # as if the power had failed there
    (root / "a.ipynb").write_text("another")  # handed in again meanwhile
    results = grade_all(root, QUICK, 1, journal)
    assert [result.file for result in results] == ["a.ipynb", "b.ipynb", "c.ipynb"]
    again = graded[len(before) :]
    assert "a.ipynb" in again and "b.ipynb" not in again
    for limits, seed in ((Limits(cell_seconds=6), None), (Limits(cell_seconds=6), 3)):
        graded.clear()
        grade_all(root, limits, 1, journal, seed)
        assert sorted(graded) == ["a.ipynb", "b.ipynb", "c.ipynb"]
    graded.clear()
    grade_all(root, Limits(cell_seconds=6), 1, journal, 3)
    assert not graded


def test_one_submission_that_breaks_the_grader_does_not_stop_the_rest(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.ipynb").write_text(name)

    def fragile(path, name, limits, seed, stop, hidden):
        if name == "a.ipynb":
            raise RuntimeError("no such luck")
        return Result(name, key=name)

    monkeypatch.setattr(folders, "grade", fragile)
    first, second = grade_all(tmp_path, QUICK, 2)
    assert (first.outcome, first.notes) == (grader.BROKE_OFF, ["RuntimeError: no such luck"])
    assert second.outcome == grader.GRADED
