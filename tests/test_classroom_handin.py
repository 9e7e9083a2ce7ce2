"""Hand-in and hand-back: nothing that was handed in vanishes, each student has a row, systems read what they get."""

import csv
import io
import json
import os
import stat
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path

import pytest
from classroom_files import ROOT, submit

from specdec_core.classroom import folder as folders
from specdec_core.classroom import handback, handin, reports, scratch
from specdec_core.classroom.folder import find_notebooks, gathered, grade_all
from specdec_core.classroom.grader import GradeError, Result
from specdec_core.classroom.handin import collect, unpack
from specdec_core.classroom.layouts import owner, read_roster, rows_of
from specdec_core.classroom.watch import Limits
from specdec_core.commands import cli

EX = "ex01_rejection_sampling"
_STORE = ".DS_Store"
SOLVED = (ROOT / "solutions" / f"{EX}.ipynb").read_bytes()
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="grading needs Linux or macOS")


def zipped(path, members):
    """A zip file of (name, content) pairs."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members:
            out.writestr(name, content)
    return path


def papers(root, tmp_path):
    """key -> why it is not graded, and the litter; every file of the folder is in one of the two."""
    (tmp_path / "scratch").mkdir(exist_ok=True)
    found = collect(root, tmp_path / "scratch")
    return {paper.key: paper.refused for paper in found.papers}, sorted(found.litter)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_every_file_is_graded_or_named_with_its_reason(root, tmp_path):
    for name in ("a.ipynb", "UPPER.IPYNB", "b.ipynb.txt", "c.ipynb.json", "essay.pdf", "d.py", "._a.ipynb", _STORE):
        (root / name).write_bytes(SOLVED)
    for name in ("empty", "__MACOSX", ".ipynb_checkpoints", "deep" + "/d" * 45):
        (root / name).mkdir(parents=True)
    (root / "__MACOSX" / "._x.ipynb").write_bytes(b"\0\5\x16\7")
    (root / "deep" / "x.ipynb").write_bytes(SOLVED)
    (root / "link.ipynb").symlink_to(root / "a.ipynb")
    (root / "late").symlink_to(ROOT / "solutions")
    os.mkfifo(root / "pipe.ipynb")
    zipped(root / "z.zip", [("in/z.ipynb", SOLVED), ("__MACOSX/in/._z.ipynb", b""), ("notes.txt", b"")])
    (root / "broken.zip").write_bytes(b"PK\3\4 no more")
    zipped(root / "none.zip", [("a.txt", b"")])
    zipped(root / "void.zip", [])
    found, litter = papers(root, tmp_path)
    assert [name for name, why in found.items() if not why] == [
        "UPPER.IPYNB",
        "a.ipynb",
        "b.ipynb.txt",
        "c.ipynb.json",
        "deep/x.ipynb",
        "z.zip/in/z.ipynb",
    ]
    deepest = next(name for name in found if name.startswith("deep/d"))
    assert {name: why for name, why in found.items() if why} == {
        "essay.pdf": "not a notebook",
        "d.py": "not a notebook",
        "z.zip/notes.txt": "not a notebook",
        "none.zip/a.txt": "not a notebook",
        "empty": "an empty folder",
        "link.ipynb": handin.LINK,
        "late": handin.LINK,
        "pipe.ipynb": "not a file",
        "broken.zip": "not opened: File is not a zip file",
        "none.zip": "an archive with no notebook in it",
        "void.zip": "not opened: there is nothing in it",
        deepest: "below 40 folders, and not looked into",
    }
    assert litter == [".DS_Store", "._a.ipynb", ".ipynb_checkpoints", "__MACOSX", "z.zip/__MACOSX/in/._z.ipynb"]
    line = reports.left_out([Result(name, outcome=why or "graded") for name, why in found.items()], litter)
    assert line.startswith("not graded: 12 (") and all(why in line for why in found.values())
    assert "litter of systems and editors: 5 (" in line


def test_a_folder_of_thousands_of_folders_is_walked(root, tmp_path):
    """3,000 within one another: more than Python's recursion, and more than a path can be long."""
    code = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
    (root / "a.ipynb").write_bytes(SOLVED)
    found, _ = papers(root, tmp_path)
    scratch.clear(root)  # or nothing else does
    assert list(found.values()).count("") == 1 and len(found) == 2 and not root.exists()


# Archives


def member(name, **about):
    info = zipfile.ZipInfo(name)
    for key, value in about.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (member("/etc/x.ipynb"), "its path leads out of the archive"),
        (member("C:/x.ipynb"), "its path leads out of the archive"),
        (member("a/../../x.ipynb"), "its path leads out of the archive"),
        (member("..\\x.ipynb"), "its path leads out of the archive"),
        (member("x.ipynb", external_attr=(stat.S_IFLNK | 0o777) << 16), handin.LINK),
        (member("x.ipynb", external_attr=(stat.S_IFIFO | 0o666) << 16), "not a file"),
        (member("x.ipynb", external_attr=(stat.S_IFREG | 0o644) << 16), ""),
    ],
)
def test_a_member_that_leads_elsewhere_is_refused_and_the_others_are_read(root, tmp_path, info, why):
    zipped(root / "a.zip", [(info, b"/etc/passwd"), ("good.ipynb", SOLVED)])
    found, _ = papers(root, tmp_path)
    assert found["a.zip/good.ipynb"] == ""
    assert [reason for name, reason in found.items() if name != "a.zip/good.ipynb"] == [why]
    written = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path / "scratch")) for path in written} <= {"archive-0/0", "archive-0/1"}
    assert not (tmp_path / "x.ipynb").exists()


def test_archives_are_bounded_in_size_ratio_and_number(root, tmp_path, monkeypatch):
    zipped(tmp_path / "bomb.zip", [("x.ipynb", bytes(80 << 20)), ("y.ipynb", SOLVED)])
    (tmp_path / "to").mkdir()
    (bomb, good) = unpack(tmp_path / "bomb.zip", tmp_path / "to")["members"]
    assert bomb[2] == "it expands to more than an archive may" and good[2] == ""
    assert sum(path.stat().st_size for path in (tmp_path / "to").iterdir()) < 2 << 20
    noise = os.urandom(1 << 20)
    monkeypatch.setattr(handin, "MOST_ALL_BYTES", 3 << 20)
    zipped(tmp_path / "many.zip", [(f"{i}.ipynb", noise) for i in range(5)])
    assert [why for _, _, why, _ in unpack(tmp_path / "many.zip", tmp_path / "to")["members"]].count("") == 3
    zipped(tmp_path / "crowd.zip", [(f"{i}.ipynb", b"") for i in range(2_001)])
    assert unpack(tmp_path / "crowd.zip", tmp_path / "to") == {"refused": "2,001 files; at most 2,000"}


def test_archives_within_archives_are_opened_twice_and_no_more(root, tmp_path):
    inner = [("x.ipynb", SOLVED)]
    for depth in range(4):
        inner = [(f"{depth}.zip", zipped(tmp_path / "made.zip", inner).read_bytes())]
    (root / "top.zip").write_bytes(inner[0][1])
    found, _ = papers(root, tmp_path)
    assert found == {"top.zip/2.zip/1.zip": "an archive within an archive within an archive"}


def test_two_members_of_one_name_are_two_papers(root, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(root / "a.zip", [("x.ipynb", SOLVED), ("x.ipynb", b"{")])
    found, _ = papers(root, tmp_path)
    assert list(found) == ["a.zip/x.ipynb", "a.zip/x.ipynb'"]


# Students


def fake(name, points, exercise=EX, **about):
    entry = {"points": points, "of": 12, "state": "right" if points else "wrong", "message": f"<{points}>"}
    about |= {"exercise": exercise, "points": points, "of": 12, "questions": {"01.1": entry}, "key": name}
    return Result(name, f"digest of {name}", **about)


@pytest.mark.parametrize(
    ("layout", "key", "student"),
    [
        ("canvas", "lovelaceada_98765_4321_ex01.ipynb", "98765"),
        ("canvas", "lovelaceada_LATE_98765_4321_ex01-1.ipynb", "98765"),
        ("canvas", "submissions.zip/lovelaceada_98765_4321_work.zip/ex01.ipynb", "98765"),
        ("canvas", "müller_5_6_a_b_c.ipynb", "5"),
        ("canvas", "ex01.ipynb", ""),
        ("moodle", "Ada Lovelace_1234567_assignsubmission_file_/ex01.ipynb", "1234567"),
        ("moodle", "Ada_Lovelace_1234567_assignsubmission_file/a/ex01.ipynb", "1234567"),
        ("moodle", "Ada Lovelace_1234567_assignsubmission_file_ex01.ipynb", "1234567"),
        ("moodle", "Participant_12_assignsubmission_file_/ex01.ipynb", "12"),
        ("nbgrader", "ada/ex01/ex01.ipynb", "ada"),
        ("nbgrader", "ex01.ipynb", ""),
        ("plain", "ada/ex01.ipynb", ""),
    ],
)
def test_a_file_belongs_to_whom_its_system_says(layout, key, student):
    assert owner(key, layout)[0] == student


def test_the_last_submission_counts_and_the_others_are_named():
    results = [
        fake("a_1_30_ex01.ipynb", 3),
        fake("a_1_200_ex01.ipynb", 5),
        fake("a_1_31_ex01.ipynb", 12),
        fake("b_2_7_ex01.ipynb", 4),
        fake("b_2_8_ex01.ipynb", 0, "", outcome="not JSON"),
        fake("c_3_9_ex01.ipynb", 0, "", outcome="not JSON"),
        fake("odd.ipynb", 1),
        fake("a_1_5_ex02.ipynb", 2, "ex02_draft_models"),
    ]
    rows = {row.student: row for row in rows_of(results, "canvas")}
    assert list(rows) == ["odd.ipynb", "1", "2", "3"]
    assert rows["1"].points == 5 + 2 and len(rows["1"].others) == 2
    assert rows["1"].notes == [
        "a_1_30_ex01.ipynb is not counted: handed in before",
        "a_1_31_ex01.ipynb is not counted: handed in before",
    ]
    assert rows["2"].points == 4 and "b_2_8_ex01.ipynb is not counted: not JSON" in rows["2"].notes
    assert rows["3"].counted[0].outcome == "not JSON"
    assert "not the form that canvas gives" in rows["odd.ipynb"].notes[0]
    assert {result.key for row in rows.values() for result in (*row.counted, *row.others)} == {r.key for r in results}


def test_files_of_the_same_bytes_are_noted_between_students_alone():
    results = [fake(f"{name}_{i}_{i}{j}_ex01.ipynb", 3) for i, name in enumerate("ab") for j in range(2)]
    for result in results:
        result.digest = "same"
    ada, bob = rows_of(results, "canvas")
    assert sum("same file" in note for note in bob.notes) == 2 and "a_0_01_ex01.ipynb" not in str(bob.notes)
    for result in results:
        result.points = 0  # the exercise as it was handed out
    assert "same file" not in str([row.notes for row in rows_of(results, "canvas")])


def test_a_moodle_resubmission_is_told_by_its_time():
    keys = [f"Ada_7_assignsubmission_file_/{name}" for name in ("b.ipynb", "a.ipynb")]
    moments = dict(zip(keys, (1.0, 2.0), strict=True))
    (row,) = rows_of([fake(key, 3 * i) for i, key in enumerate(keys)], "moodle", {}, moments)
    assert [result.key for result in row.counted] == [keys[1]]


def test_a_roster_names_who_handed_in_nothing_and_who_is_not_in_it(tmp_path):
    """The two spellings of an umlaut are one letter; in file names they are still two files."""
    table = "id,first_name,last_name,email\nmüller,Max,Müller,m@x\nnobody,No,Body,\n"
    (tmp_path / "students.csv").write_text(table, encoding="utf-8-sig")
    roster = read_roster(tmp_path / "students.csv", "nbgrader")
    spelled = [unicodedata.normalize(form, "müller") for form in ("NFC", "NFD")]
    results = [fake(f"{name}/ex01/ex01.ipynb", i) for i, name in enumerate([*spelled, "guest"])]
    rows = {row.student: row for row in rows_of(results, "nbgrader", roster)}
    assert len(rows) == 3 and rows["guest"].notes == ["not in the roster"]
    assert rows["nobody"].notes == ["nothing was handed in"] and rows["nobody"].name == "No Body"
    (both,) = (row for row in rows.values() if row.name == "Max Müller")
    assert len(both.counted) == len(both.others) == 1
    assert len(rows_of(results, "nbgrader")) == 3  # with no roster to say so, nobody is taken for another
    (tmp_path / "students.csv").write_text("name;mail\n")
    with pytest.raises(GradeError, match=r"expected a column 'ID'; its columns are \['name', 'mail'\]"):
        read_roster(tmp_path / "students.csv", "canvas")


# What goes back


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_reports_say_all_and_escape_it(tmp_path):
    results = [fake("=a.ipynb", 0), fake("b.pdf", 0, "", outcome="not a notebook"), fake("M\udcfc.ipynb", 12)]
    results[0].questions["01.2"] = {"points": 0, "of": 2, "state": "unanswered", "message": "<b>&"}
    results[1].questions, results[1].of = {}, 0
    rows = rows_of(results)
    lines = read(reports.as_csv(rows))
    assert [line["file"] for line in lines] == ["'=a.ipynb", "M\\udcfc.ipynb", "b.pdf"]
    assert lines[0]["messages"] == "<0>\n<b>&" and lines[2]["outcome"] == "not a notebook"
    page = reports.as_html(rows, ["__MACOSX/._x"], "<i>")
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page and "<i>" not in page and "b.pdf: not a notebook" in page
    assert "__MACOSX/._x" in page
    assert "<td>01.2</td><td>0</td><td>0 of 1</td>" in page  # not answered yet is not answered
    content = json.loads(reports.as_json(rows, ["__MACOSX/._x"], {"jobs": 1}))
    outcomes = [student["counted"][0]["outcome"] for student in content["students"]]
    assert outcomes == ["graded", "graded", "not a notebook"]
    assert content["litter"] == ["__MACOSX/._x"]


def test_a_page_for_each_student_holds_that_student_alone(tmp_path):
    keys = ("ada_1_2_ex01.ipynb", "bob_2_3_all.zip/../ex01.ipynb", "bob_2_1_ex01.ipynb")
    rows = rows_of([fake(key, points) for key, points in zip(keys, (3, 4, 12), strict=True)], "canvas")
    rows[0].notes.append("a note to the teacher")
    written = handback.pages(rows, tmp_path)
    places = [str(path.relative_to(tmp_path)) for path in written]
    assert places == ["ada_1_2_ex01.html", "bob_2_3_all.zip/.._/ex01.html"]
    ada, bob = (path.read_text(encoding="utf-8") for path in written)
    assert "&lt;3&gt;" in ada and "bob" not in ada and "teacher" not in ada
    assert "&lt;4&gt;" in bob and "ada" not in bob and "bob_2_1_ex01.ipynb is not counted" in bob


def test_canvas_moodle_and_nbgrader_get_the_columns_that_they_read(tmp_path):
    title = "Exercises 01 · Rejection sampling"
    known = {"Student": "Lovelace, Ada", "ID": "98", "SIS User ID": "u9", "SIS Login ID": "ada", "Section": "A"}
    (row,) = rows_of([fake("ada_98_2_ex01.ipynb", 3)], "canvas", {"98": known})
    possible, line = read(handback.for_canvas([row]))
    assert list(line) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", title]
    assert list(line.values()) == ["Lovelace, Ada", "98", "u9", "ada", "A", "3"]
    assert possible["Student"] == "    Points Possible" and possible[title] == "12"
    sheet = (
        "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,Last modified (submission),"
        "Last modified (grade),Feedback comments\n"
    )
    (tmp_path / "worksheet.csv").write_text(sheet + "Participant 7,Ada,a@x,Submitted,,100,Yes,Monday,-,\n")
    roster = read_roster(tmp_path / "worksheet.csv", "moodle")
    (row,) = rows_of([fake("Ada_7_assignsubmission_file_/a.ipynb", 0)], "moodle", roster)
    (line,) = read(handback.for_moodle([row]))
    assert ",".join(line) + "\n" == sheet
    assert (line["Identifier"], line["Grade"], line["Maximum Grade"]) == ("Participant 7", "0", "100")
    assert line["Feedback comments"] == "&lt;0&gt;" and line["Last modified (submission)"] == "Monday"
    (row,) = rows_of([fake("submitted/ada/hw1/ex01.ipynb", 3)], "nbgrader")
    (line,) = read(handback.for_nbgrader([row]))
    assert (line["assignment"], line["student_id"], line["score"], line["max_score"]) == ("hw1", "ada", "3", "12")


# The command


def test_files_of_one_name_to_the_eye_are_two(root):
    """Undecodable bytes; and ü of one letter or of two: what is shown is alike, the keys are not."""
    for number, name in enumerate((b"M\xfcller.ipynb", b"M\xf6ller.ipynb")):
        with open(os.path.join(os.fsencode(root), name), "wb") as out:
            out.write(b"{" * number)
    for form in ("NFC", "NFD"):
        (root / f"{unicodedata.normalize(form, 'Jürgen')}.ipynb").write_text("{")
    results = grade_all(root, Limits(), 1)
    assert len({result.key for result in results}) == 4 == len(rows_of(results))


def test_a_folder_is_graded_reported_and_written(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    submit(root, EX, {"01.1": "accept = '<script>alert(1)</script>'"}, name="=ada")
    submit(root, EX, start="exercises", name="stub")
    (root / "broken.ipynb").write_text("{", encoding="utf-8")
    (root / "twin.ipynb").write_bytes((root / "=ada.ipynb").read_bytes())
    out = tmp_path / "new" / "scores.csv"
    options = f"--report html --jobs 2 --seed 5 --feedback {tmp_path / 'back'} --out {out}"
    assert cli.main(["grade", str(root), *options.split()]) == 1
    lines = {line["file"]: line for line in read(out.read_text(encoding="utf-8"))}
    assert lines["'=ada.ipynb"]["points"] == "11" and lines["'=ada.ipynb"]["percent"] == "91.7"
    assert [lines["'=ada.ipynb"][f"01.{i}"] for i in range(1, 7)] == ["0", "2", "1", "3", "3", "2"]
    assert "'str' object is not callable" in lines["'=ada.ipynb"]["messages"]
    assert lines["'=ada.ipynb"]["notes"] == "'=ada.ipynb is the same file as twin.ipynb"
    assert lines["broken.ipynb"]["outcome"] == "not JSON"
    page = out.with_suffix(".html").read_text(encoding="utf-8")
    assert "<script>" not in page and "not JSON" in page
    assert "<td>01.1</td><td>0</td><td>2 of 3</td>" in page
    back = {path.name for path in (tmp_path / "back").iterdir()}
    assert back == {"=ada.html", "stub.html", "broken.html", "twin.html"}
    shown = capsys.readouterr().out
    assert "4 submissions in" in shown and "not graded: 1 (broken.ipynb: not JSON)" in shown
    assert ("RUN AS ROOT" in shown) == (os.geteuid() == 0)
    assert not list(out.parent.glob(".*"))  # no journal is left


def test_a_run_without_out_is_journalled_too(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (root / f"{name}.ipynb").write_text("{")

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "grade", stopped)
    with pytest.raises(KeyboardInterrupt):
        folders.grade_all(root, Limits(), 1, Path(".grades.csv.unfinished"))
    assert (tmp_path / ".grades.csv.unfinished").read_text().count('"begun"') >= 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    seen = []
    whole = folders.grade_all
    monkeypatch.setattr(folders, "grade_all", lambda *about: seen.append(about[3]) or whole(*about))
    assert cli.main(["grade", str(root)]) == 1
    assert seen == [Path(".grades.csv.unfinished")] and not seen[0].exists()


def test_what_is_the_teachers_own_is_no_submission(root, tmp_path):
    for name in ("a.ipynb", "scores.csv"):
        (root / name).write_bytes(SOLVED)
    keys = [paper.key for paper in gathered(root, tmp_path, (root / "scores.csv",)).papers]
    assert keys == ["a.ipynb"]
    assert find_notebooks(root) == [root / "a.ipynb"]
