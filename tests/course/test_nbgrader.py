"""A course in nbgrader, from release to export: `make nbgrader` runs this, and `make test` never does."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("nbgrader")
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from specdec_core.commands import cli

ROOT = Path(__file__).parents[2]
NAME = "ex01_rejection_sampling"
FORGED = "check = print\ndef check(*arguments):\n    print('right')\n"
# student -> the answers, where they are not the solution's
STUDENTS = {
    "ada": {},
    "bob": {"01.1": "accept = lambda p_x, q_x: p_x / q_x", "01.4": "one_round = None", "01.5": "import torch, nowhere"},
    "eve": {
        "01.1": FORGED + "accept = max",
        "01.2": FORGED + "from specdec_core.core.rules import residual",
        "01.3": "!pip install -q numpy\nacceptance_rate = lambda p, q: np.minimum(p, q).sum()",
        "01.6": "decode = lambda p, q, t, rng, settle: rng.pick(np.exp(p / t))",
    },
}


def answers(path):
    """question -> the source of its answer's cell."""
    cells = nbformat.read(path, 4).cells
    return {cell.id[2:6].replace("-", "."): cell.source for cell in cells if cell.id.endswith("-answer")}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course, released, handed in and graded."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader starts alembic
    root = tmp_path_factory.mktemp("course")
    (root / "source" / "ex01").mkdir(parents=True)
    (root / "source" / "ex01" / f"{NAME}.ipynb").write_bytes((ROOT / "exercises" / f"{NAME}.ipynb").read_bytes())
    config = Config()
    config.CourseDirectory.root = str(root)
    api = NbGraderAPI(config=config)

    def done(report):
        assert report["success"], report.get("log") or report["error"]

    done(api.generate_assignment("ex01"))
    solved = answers(ROOT / "solutions" / f"{NAME}.ipynb")
    for student, own in STUDENTS.items():
        made = nbformat.read(root / "release" / "ex01" / f"{NAME}.ipynb", 4)
        for cell in made.cells:
            if cell.id.endswith("-answer"):
                question = cell.id[2:6].replace("-", ".")
                first = cell.source.partition("\n")[0]
                cell.source = f"{first}\n{own[question]}" if question in own else solved[question]
        folder = root / "submitted" / student / "ex01"
        folder.mkdir(parents=True)
        nbformat.write(made, folder / f"{NAME}.ipynb")
        done(api.autograde("ex01", student))
        done(api.generate_feedback("ex01", student))
    return root


def run(course, *arguments):
    subprocess.run([sys.executable, "-m", "nbgrader", *arguments], cwd=course, check=True)


def test_a_release_has_the_stubs_whole(course):
    released = course / "release" / "ex01" / f"{NAME}.ipynb"
    assert answers(released) == answers(ROOT / "exercises" / f"{NAME}.ipynb")
    assert "e = np.exp" in answers(released)["01.6"]  # the code that is to be mended


def test_points_are_those_of_specdec_grade(course):
    out = course / "scores.csv"
    assert cli.main(["grade", str(course / "submitted"), "--layout", "nbgrader", "--out", str(out)]) == 0
    graded = {line["student"]: line for line in csv.DictReader(out.open(encoding="utf-8"))}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for student in STUDENTS:
            notebook = book.find_submission_notebook(NAME, "ex01", student)
            points = {grade.name[2:6].replace("-", "."): grade.score for grade in notebook.grades}
            assert points == {question: float(graded[student][question]) for question in points}
            assert all(not points[question] for question in STUDENTS[student])
    assert [graded[student]["points"] for student in STUDENTS] == ["12", "5", "6"]


def test_feedback_has_the_diagnosis(course):
    text = (course / "feedback" / "bob" / "ex01" / f"{NAME}.html").read_text(encoding="utf-8")
    assert "which exceeds 1" in text
    assert "min(1.0, p_x" not in re.sub(r"<[^>]*>", "", text)


def test_the_exported_columns_are_ours_and_ours_are_imported(course):
    run(course, "export", "--to", "grades.csv")
    lines = list(csv.DictReader((course / "grades.csv").open(encoding="utf-8")))
    assert {line["student_id"]: float(line["score"]) for line in lines} == {"ada": 12, "bob": 5, "eve": 6}
    students = "id,first_name,last_name,email\nada,Ada,Lovelace,a@x\nbob,,,\neve,,,\nfay,Fay,,\n"
    (course / "students.csv").write_text(students)
    options = ["--layout", "nbgrader", "--roster", str(course / "students.csv"), "--out", str(course / "all.csv")]
    assert cli.main(["grade", str(course / "submitted"), *options]) == 0
    ours = list(csv.DictReader((course / "all.nbgrader.csv").open(encoding="utf-8")))
    assert list(ours[0]) == [*lines[0], "id"]
    assert {line["id"]: line["score"] for line in ours} == {"ada": "12", "bob": "5", "eve": "6", "fay": ""}
    run(course, "db", "student", "import", "all.nbgrader.csv")
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        assert (book.find_student("ada").last_name, book.find_student("fay").first_name) == ("Lovelace", "Fay")
