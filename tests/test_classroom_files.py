"""What comes in as a submission: broken files have a named outcome, odd ones are read, and answers are lifted by id."""

import copy
import json
import os
import subprocess
import sys

import nbformat
import pytest
from classroom_answers import WRONG
from classroom_files import ROOT, answer_id, cell, notebook, submit
from nbclient import NotebookClient

from specdec_core.book.build import how_to_run
from specdec_core.classroom import lift as lifting
from specdec_core.classroom import sheets
from specdec_core.classroom.alone import mark
from specdec_core.classroom.folder import find_notebooks
from specdec_core.classroom.grader import GRADED, GradeError, grade
from specdec_core.classroom.handin import collect
from specdec_core.classroom.lift import lift, notebook_of
from specdec_core.commands import cli

EX = "ex01_rejection_sampling"
EXERCISES = list(sheets.sheets())
posix = pytest.mark.skipif(sys.platform == "win32", reason="grading needs Linux or macOS")


def text_of(exercise, folder="solutions"):
    return (ROOT / folder / f"{exercise}.ipynb").read_text(encoding="utf-8")


def outcome(path, content):
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return lift(path)


# Broken files


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", lifting.NOT_JSON),
        ("{", lifting.NOT_JSON),
        (b"\x00\xff\xfe\x80", lifting.NOT_JSON),
        ("[" * 100_000, lifting.NOT_JSON),
        (b"PK\x03\x04 a zip", lifting.NOT_JSON),
        ("[]", lifting.NOT_NOTEBOOK),
        ('{"cells": []}', lifting.NOT_NOTEBOOK),
        ('{"nbformat": 4, "cells": 7}', lifting.NOT_NOTEBOOK),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": 3}]}', lifting.NOT_NOTEBOOK),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": "", "metadata": []}]}', lifting.NOT_NOTEBOOK),
        ('{"nbformat": 3, "worksheets": []}', lifting.OTHER_VERSION),
        ('{"nbformat": 5, "cells": []}', lifting.OTHER_VERSION),
        ('{"nbformat": 4, "cells": []}', lifting.UNKNOWN),
        ('{"nbformat": 4, "cells": [], "metadata": {"specdec": {"exercise": ["ex01"]}}}', lifting.UNKNOWN),
    ],
)
def test_a_broken_file_has_a_named_outcome(tmp_path, content, name):
    found = outcome(tmp_path / "submission.ipynb", content)
    assert (found.outcome, found.answers) == (name, {})


def test_a_file_that_is_not_there_or_too_large_is_named(tmp_path):
    assert lift(tmp_path / "nothing.ipynb").outcome == lifting.NOT_READ
    huge = tmp_path / "huge.ipynb"
    with open(huge, "wb") as out:
        out.truncate(lifting.MOST_BYTES + 1)  # a hole, not a quarter of a gigabyte
    assert lift(huge).outcome == lifting.TOO_LARGE


@posix
def test_a_pipe_or_a_folder_by_the_name_of_a_notebook_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    papers = {paper.key: paper.refused for paper in collect(tmp_path, tmp_path).papers}
    assert papers == {"folder.ipynb": "an empty folder", "pipe.ipynb": "not a file"}
    assert lift(tmp_path / "pipe.ipynb").outcome == lift(tmp_path / "folder.ipynb").outcome == lifting.NOT_READ


@pytest.mark.parametrize(
    "how",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
    ],
)
def test_other_encodings_and_line_ends_are_read(tmp_path, how):
    found = outcome(tmp_path / "submission.ipynb", how(text_of(EX)))
    assert (found.outcome, found.notes) == ("", [])
    assert found.answers == lift(ROOT / "solutions" / f"{EX}.ipynb").answers


def test_bytes_that_are_not_utf8_are_read_and_noted(tmp_path):
    path = submit(tmp_path, EX, {"01.1": "accept = lambda p_x, q_x: min(1, p_x / q_x)  # caf\u00e9"})
    data = path.read_text(encoding="utf-8").encode("cp1252", errors="replace")
    found = outcome(path, data)
    assert found.answers["01.1"].endswith("# caf\u00e9") and found.notes == ["not UTF-8; read as Windows-1252"]


def test_windows_line_ends_inside_a_cell_are_read(tmp_path):
    path = submit(tmp_path, EX, {"01.1": "def accept(p_x, q_x):\r\n    return 1\r\n"})
    assert lift(path).answers["01.1"] == "def accept(p_x, q_x):\n    return 1\n"


def test_large_outputs_are_ignored(tmp_path):
    content = json.loads(text_of(EX))
    code = next(c for c in content["cells"] if c["cell_type"] == "code")
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 50_000_000}]
    found = outcome(tmp_path / "submission.ipynb", json.dumps(content))
    assert found.outcome == "" and len(found.answers) == 6 and "outputs were ignored" in found.notes[0]


def edited(change):
    content = json.loads(text_of(EX))
    change(content)
    return json.dumps(content)


def strip(content, ids=True, metadata=False, exercise=False):
    for item in content["cells"]:
        if ids:
            item.pop("id", None)
        if metadata:
            item["metadata"] = {}
    if exercise:
        content["metadata"].pop("specdec")


def test_answers_are_found_without_ids_by_metadata_or_by_their_first_line(tmp_path):
    def kept_by_colab(content):
        for item in content["cells"]:
            item["metadata"] = {"id": item["id"]}
        strip(content, exercise=True)

    for change, by in (
        (kept_by_colab, "metadata"),
        (lambda content: strip(content, metadata=True, exercise=True), "first line"),
    ):
        found = outcome(tmp_path / "x.ipynb", edited(change))
        assert found.exercise == EX and len(found.answers) == 6
        assert f"01.1: the cell had lost its id and was found by its {by}" in found.notes


def test_without_ids_metadata_and_first_lines_there_is_nothing_to_lift_and_it_says_so(tmp_path):
    def bare(content):
        strip(content, metadata=True, exercise=True)
        for item in content["cells"]:
            item["source"] = [line for line in item["source"] if not line.startswith("# Answer")]

    found = outcome(tmp_path / "ex01_me.ipynb", edited(bare))
    assert (found.exercise, found.outcome) == (EX, lifting.NO_ANSWERS)


def with_cells(change):
    def do(content):
        places = {item["id"]: item for item in content["cells"]}
        change(content["cells"], places)

    return edited(do)


def test_deleted_duplicate_retyped_and_copied_answers(tmp_path):
    def change(cells, places):
        cells.remove(places["ex01-1-answer"])
        cells.append(dict(places["ex01-2-answer"]))
        places["ex01-3-answer"]["cell_type"] = "markdown"
        cells.append({**places["ex01-4-answer"], "id": "fresh", "source": "one_round = None"})  # copied in JupyterLab
        cells.remove(places["ex01-5-check"])
        places["ex01-6-check"]["source"] = "print('right')"

    found = outcome(tmp_path / "submission.ipynb", with_cells(change))
    assert found.states == {"01.1": "missing", "01.2": "duplicate", "01.3": "not a code cell"}
    assert set(found.answers) == {"01.4", "01.5", "01.6"} and "rng" in found.answers["01.4"]
    assert "01.5: its check cell is gone; ours was run" in found.notes
    assert "01.6: its check cell was edited; ours was run" in found.notes
    assert "01.4: another cell says" not in str(found.notes)  # it says nothing of the kind


def test_a_second_cell_that_says_it_is_the_answer_is_named(tmp_path):
    def change(cells, places):
        cells.append({**places["ex01-4-answer"], "id": "fresh", "source": "# Answer 01.4: mine\none_round = None"})

    found = outcome(tmp_path / "submission.ipynb", with_cells(change))
    assert len(found.answers) == 6 and "01.4: another cell says that it is the answer" in found.notes[0]


def test_what_is_run_is_ours_but_for_the_answers(tmp_path):
    path = submit(tmp_path, EX, {"01.1": "# NBVAL_SKIP\n  #nbval_skip\n## NBVAL_RAISES_EXCEPTION\naccept = max"})
    lifted = notebook_of(EX, lift(path).answers)
    sources = {item["id"]: item["source"] for item in lifted["cells"]}
    assert sources["ex01-1-answer"] == f"{mark('01.1')}\n  #nbval_skip\naccept = max"
    assert sources["ex01-1-check"] == 'from specdec_core.classroom import check\ncheck("01.1", accept)'
    assert "tags" not in json.dumps(lifted)
    missing = notebook_of(EX, {})
    assert "not answered yet" in missing["cells"][1]["source"]
    nbformat.validate(nbformat.from_dict(lifted))


# Home and grading

HELPED = "def accept(p_x, q_x):\n    return least(1.0, p_x / q_x)"
TORCH = "def residual(p, q):\n    r = torch.relu(torch.tensor(p - q))\n    return r / r.sum() if r.sum() > 0 else p"
RATE = "acceptance_rate = lambda p, q: np.minimum(p, q).sum()"
AT_HOME = [  # answers, and which of them pass; in "outside" stands what a cell of the student's own has
    (
        "",
        {
            "01.1": HELPED,
            "01.2": TORCH,
            "01.3": "!pip install -q numpy\n" + RATE,
            "01.4": "from specdec_core.core.rules import residual\none_round = max",
            "01.6": None,
        },
        ["01.5"],
    ),
    (
        "least = min\nimport torch\nnp = None",
        {
            "01.1": HELPED,
            "01.2": TORCH,
            "01.3": RATE,
            "01.4": "import importlib\nrules = importlib.import_module('specdec_core.core.rules')\none_round = max",
            "01.5": "%timeit 1\nblock = max",
            "01.6": "decode = lambda *a: residual(*a)",
        },
        ["01.3"],
    ),
    (
        "",
        {
            "01.1": "least = min\n" + HELPED,
            "01.2": "import torch\n" + TORCH,
            "01.3": "class Rate:\n    def __call__(self, p, q):\n        return np.minimum(p, q).sum()\n"
            "acceptance_rate = Rate()",
            "01.4": "one_round = one_round",
            "01.5": "import missing_package\nblock = max",
            "01.6": "decode = __import__('specdec_core.core.rules')",
        },
        ["01.1", "01.2", "01.3"],
    ),
]


@posix
@pytest.mark.parametrize(("outside", "answers", "right"), AT_HOME)
def test_what_passes_at_home_passes_at_grading_and_the_reverse(tmp_path, outside, answers, right):
    """Helpers and imports elsewhere, instructions to the notebook, the package's own functions, all that is allowed."""
    start = notebook("exercises", EX)
    given = {question: source for question, source in answers.items() if source is not None}
    path = submit(tmp_path, EX, {question: f"{mark(question)}\n{source}" for question, source in given.items()})
    made = nbformat.read(path, 4)
    made.cells.insert(2, nbformat.v4.new_code_cell(outside))
    for question in set(answers) - set(given):
        cell(made, answer_id(question)).source = cell(start, answer_id(question)).source
    nbformat.write(made, path)
    run = NotebookClient(copy.deepcopy(made), allow_errors=True, **how_to_run(ROOT / "exercises" / "x.py")).execute()
    home = {}
    for item in run.cells:
        if item.id.endswith("-check"):
            home[f"01.{item.id[5]}"] = any(": right." in out.get("text", "") for out in item.outputs)
    graded = grade(path)
    assert {question for question, passed in home.items() if passed} == set(right)
    assert {question for question, entry in graded.questions.items() if entry["points"]} == set(right)
    for entry in graded.questions.values():
        if "NameError" in entry["message"]:
            assert "its imports and helpers go into its own cell" in entry["message"]


def test_an_answer_that_was_never_run_is_asked_for(tmp_path):
    made = notebook("solutions", EX)
    item = cell(made, answer_id("01.1"))
    item.source = item.source.partition("\n")[2]  # without its first line
    run = NotebookClient(made, allow_errors=True, **how_to_run(ROOT / "exercises" / "x.py")).execute()
    (error,) = (out for item in run.cells for out in item.get("outputs", ()) if out.output_type == "error")
    assert "no cell that begins with '# Answer 01.1' has been run" in error.evalue


# Graded


@posix
@pytest.mark.parametrize("exercise", EXERCISES)
def test_solutions_score_all_points(exercise):
    result = grade(ROOT / "solutions" / f"{exercise}.ipynb")
    asked = sheets.sheets()[exercise]["questions"]
    assert result.outcome == GRADED and result.notes == []
    assert {q: entry["state"] for q, entry in result.questions.items()} == dict.fromkeys(asked, "right")
    assert result.points == result.of == sum(about["points"] for about in asked.values())


@posix
def test_untouched_exercises_score_nothing_and_fail_at_the_checks_alone(tmp_path):
    """All exercises by nbval itself, as anybody can run it: the cells that fail are the check cells."""
    paths = [ROOT / "exercises" / f"{exercise}.ipynb" for exercise in EXERCISES]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--nbval-lax", "--nbval-current-env", "-q", "-rA",
               "-p", "no:cacheprovider", *map(str, paths)]  # fmt: skip
    with open(tmp_path / "said", "w+", encoding="utf-8") as said:  # no pipe: the kernels hold it open as well
        subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
        said.seek(0)
        said = said.read()
    for exercise in EXERCISES:
        code = [c for c in notebook("exercises", exercise).cells if c.cell_type == "code"]
        for place, item in enumerate(code):
            wanted = "FAILED" if item.id.endswith("-check") else "PASSED"
            assert f"{wanted} exercises/{exercise}.ipynb::Cell {place}" in said
        for question, about in sheets.sheets()[exercise]["questions"].items():
            assert f"CheckFailed: {question} {about['title']}:" in said


@posix
@pytest.mark.parametrize("exercise", EXERCISES[:2])  # of all of them in test_classroom.py, without nbval
def test_wrong_answers_lose_their_question_and_no_other(tmp_path, exercise):
    asked = list(sheets.sheets()[exercise]["questions"])
    wrong = {question: WRONG[question][0] for question in asked[::2]}
    path = submit(
        tmp_path, exercise, {question: "import numpy as np\n" + source for question, (source, _) in wrong.items()}
    )
    result = grade(path)
    for question, entry in result.questions.items():
        assert entry["state"] == ("wrong" if question in wrong else "right")
        if question in wrong:
            assert wrong[question][1] in entry["message"]


def test_what_cannot_be_graded_is_refused_before_it_begins(tmp_path, capsys):
    with pytest.raises(GradeError, match="does not exist"):
        find_notebooks(tmp_path / "nothing")
    with pytest.raises(GradeError, match="no notebook"):
        find_notebooks(tmp_path)
    assert cli.main(["grade", str(ROOT / "exercises"), "--out", str(tmp_path / "scores.xlsx")]) == 2
    assert "ends in .csv or .json" in capsys.readouterr().err


def test_the_answer_of_a_cell_is_what_was_typed(tmp_path):
    path = submit(tmp_path, EX, {"01.2": "residual = min"}, start="exercises")
    assert lift(path).answers["01.2"] == cell(nbformat.read(path, 4), answer_id("01.2")).source == "residual = min"
