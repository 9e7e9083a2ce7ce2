"""What comes in as a submission: broken files have a named outcome, odd ones are read, and answers are lifted by id."""

import json
import os
import subprocess
import sys

import nbformat
import pytest
from classroom_answers import WRONG
from classroom_files import ROOT, answer_id, cell, notebook, submit

from specdec_core.classroom import lift as lifting
from specdec_core.classroom import sheets
from specdec_core.classroom.folder import find_notebooks, grade_all
from specdec_core.classroom.grader import GRADED, GradeError, Limits, grade
from specdec_core.classroom.lift import lift, notebook_of
from specdec_core.classroom.reports import as_csv, as_html, as_json, feedback
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
    assert {p.name: lift(p).outcome for p in find_notebooks(tmp_path)} == dict.fromkeys(
        ["folder.ipynb", "pipe.ipynb"], lifting.NOT_READ
    )


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


def test_answers_are_found_without_ids_by_what_nbgrader_keeps(tmp_path):
    found = outcome(tmp_path / "x.ipynb", edited(lambda content: strip(content, exercise=True)))
    assert found.exercise == EX and len(found.answers) == 6
    assert "01.1: the cell had lost its id and was found by its metadata" in found.notes


def test_without_ids_and_metadata_there_is_nothing_to_lift_and_it_says_so(tmp_path):
    found = outcome(tmp_path / "ex01_me.ipynb", edited(lambda content: strip(content, metadata=True, exercise=True)))
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


def test_what_is_run_is_ours_but_for_the_answers(tmp_path):
    path = submit(tmp_path, EX, {"01.1": "# NBVAL_SKIP\n  #nbval_skip\n## NBVAL_RAISES_EXCEPTION\naccept = max"})
    lifted = notebook_of(EX, lift(path).answers)
    sources = {item["id"]: item["source"] for item in lifted["cells"]}
    assert sources["ex01-1-answer"] == "  #nbval_skip\naccept = max"
    assert sources["ex01-1-check"] == 'check("01.1", accept)'
    assert "tags" not in json.dumps(lifted)
    missing = notebook_of(EX, {})
    assert "not answered yet" in missing["cells"][1]["source"]
    nbformat.validate(nbformat.from_dict(lifted))


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


# The command


@posix
def test_a_folder_is_graded_reported_and_written(tmp_path, capsys):
    folder = tmp_path / "submissions"
    folder.mkdir()
    submit(folder, EX, {"01.1": "accept = '<script>alert(1)</script>'"}, name="=ada")
    (folder / "broken.ipynb").write_text("{", encoding="utf-8")
    out = tmp_path / "new" / "scores.csv"
    assert cli.main(["grade", str(folder), "--out", str(out), "--report", "html", "--jobs", "1", "--seed", "5"]) == 1
    rows = out.read_text(encoding="utf-8").splitlines()
    assert rows[0] == "file,exercise,outcome,points,of,percent,01.1,01.2,01.3,01.4,01.5,01.6,notes"
    assert rows[1].startswith(f"'=ada.ipynb,{EX},graded,11,12,91.7,0,2,1,3,3,2")
    assert rows[2] == "broken.ipynb,,not JSON,0,0,,,,,,,,is it whole?"
    page = out.with_suffix(".html").read_text(encoding="utf-8")
    assert "<script>" not in page and "not JSON" in page and "01.1" in page
    said = capsys.readouterr().out
    assert "2 submissions in" in said and "MB for one" in said
    assert not list(out.parent.glob(".*"))  # no journal is left


def test_reports_agree_and_escape(tmp_path):
    result = grade_all(outcome(tmp_path / "x.ipynb", "{").path, Limits(), 1)[0]
    result.questions = {"01.1": {"points": 0, "of": 1, "state": "wrong", "message": "<b>&"}}
    assert "<b>" not in as_html([result], "<i>") and "&lt;b&gt;&amp;" in as_html([result], "")
    assert json.loads(as_json([result], {"jobs": 1}))["results"][0]["outcome"] == lifting.NOT_JSON
    assert "0/1  <b>&" in feedback(result)
    assert as_csv([result]).count("\n") == 2


def test_what_cannot_be_graded_is_refused_before_it_begins(tmp_path, capsys):
    with pytest.raises(GradeError, match="does not exist"):
        find_notebooks(tmp_path / "nothing")
    with pytest.raises(GradeError, match="no .ipynb file"):
        find_notebooks(tmp_path)
    assert cli.main(["grade", str(ROOT / "exercises"), "--out", str(tmp_path / "scores.xlsx")]) == 2
    assert "ends in .csv or .json" in capsys.readouterr().err


def test_the_answer_of_a_cell_is_what_was_typed(tmp_path):
    path = submit(tmp_path, EX, {"01.2": "residual = min"}, start="exercises")
    assert lift(path).answers["01.2"] == cell(nbformat.read(path, 4), answer_id("01.2")).source == "residual = min"
