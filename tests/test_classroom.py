"""The exercises: generated from their sources alone, solutions right, usual mistakes named, other forms accepted."""

import ast
import copy
import re

import numpy as np
import pytest
from classroom_answers import RIGHT, WRONG
from classroom_files import ROOT, answer_id, cell, notebook

from specdec_core.base.errors import SpecdecError
from specdec_core.book import contents as book
from specdec_core.classroom import CheckFailed, alone, check, sheets
from specdec_core.classroom.examiner import VISIBLE_SEED, examine, here, law_of
from specdec_core.classroom.questions import everything, find

FRESH = 977
EXERCISES = list(sheets.sheets())
QUESTIONS = {question.id: question for question in everything()}
ABOUT = {name: about for sheet in sheets.sheets().values() for name, about in sheet["questions"].items()}


def sheet_of(question):
    return next(name for name, sheet in sheets.sheets().items() if question in sheet["questions"])


def define(source, question):
    """What an answer's source defines."""
    space = {"np": np}
    exec(source, space)
    return space[QUESTIONS[question].name]


def verdict(question, source, seeds=(VISIBLE_SEED, FRESH)):
    return examine(QUESTIONS[question], here(define(source, question)), seeds)


def solution(question):
    return cell(notebook("solutions", sheet_of(question)), answer_id(question)).source


# What is committed is what the sources give


def test_notebooks_regenerate_byte_for_byte():
    wanted = sheets.wanted(ROOT)
    assert {path.name for path in wanted} == {"sheets.json"} | {f"{name}.ipynb" for name in EXERCISES}
    for path, text in wanted.items():
        assert path.read_bytes() == text.encode("utf-8"), path.name
    made = {path for folder in ("solutions", "exercises") for path in (ROOT / folder).glob("*.ipynb")}
    assert made == set(wanted) - {sheets.SHEETS}


@pytest.mark.parametrize("fails", [False, True])
def test_a_solution_is_run_with_the_sheet_that_is_being_written(fails, tmp_path, monkeypatch):
    """Its checks print titles of the sheet; an old one is put back if a solution fails."""
    (tmp_path / "sheets.json").write_text("{}")
    monkeypatch.setattr(sheets, "SHEETS", tmp_path / "sheets.json")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sheets, "write", lambda path, text: path.write_text(text) if path.parent == tmp_path else None)

    def run(notebook, source):
        assert source.stem in (tmp_path / "sheets.json").read_text()
        if fails:
            raise sheets.SheetError("no")

    monkeypatch.setattr(sheets, "_execute", run)
    assert sheets.main([]) == 2 * fails
    assert ((tmp_path / "sheets.json").read_text() == "{}") == fails


@pytest.mark.parametrize("exercise", EXERCISES)
def test_solutions_are_committed_executed_and_pass_their_checks(exercise):
    code = [c for c in notebook("solutions", exercise).cells if c.cell_type == "code"]
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
    checks = [c for c in code if c.id.endswith("-check")]
    assert checks and all(": right." in c.outputs[0].text and len(c.outputs) == 1 for c in checks)


def test_every_question_has_an_examiner_and_every_examiner_a_question():
    assert list(QUESTIONS) == list(ABOUT)
    for exercise, sheet in sheets.sheets().items():
        assert 3 <= len(sheet["questions"]) <= 6, exercise


def test_the_readme_has_the_table_of_points():
    assert sheets.table() in (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")


def statements(source):
    """The statements of a source below its definitions, each as one line; a docstring is none."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not text:
            found.add(ast.unparse(node))
    return found


@pytest.mark.parametrize("exercise", EXERCISES)
def test_no_statement_of_a_solution_is_in_the_exercise(exercise):
    solved, bare = notebook("solutions", exercise), notebook("exercises", exercise)
    shown = "\n".join(c.source for c in bare.cells)
    squeezed = re.sub(r"\s+", "", shown)
    for question in sheets.sheets()[exercise]["questions"]:
        kept = statements(cell(bare, answer_id(question)).source)
        secret = statements(cell(solved, answer_id(question)).source) - kept
        assert secret, question
        for statement in secret:
            assert re.sub(r"\s+", "", statement) not in squeezed, (question, statement)
    assert all(not c.outputs and c.execution_count is None for c in bare.cells if c.cell_type == "code")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_exercises_are_the_solutions_but_for_the_answers(exercise):
    solved, bare = notebook("solutions", exercise), notebook("exercises", exercise)
    assert [c.id for c in solved.cells] == [c.id for c in bare.cells]
    assert "jupytext" not in solved.metadata and "jupytext" not in bare.metadata  # or saving one would write a source
    for a, b in zip(solved.cells, bare.cells, strict=True):
        assert (a.source == b.source) != a.id.endswith("-answer"), a.id
        assert a.metadata == b.metadata
        assert max(map(len, a.source.splitlines())) < 400
    grade_ids = [c.metadata.nbgrader.grade_id for c in bare.cells if "nbgrader" in c.metadata]
    assert len(set(grade_ids)) == len(grade_ids) == len(sheets.sheets()[exercise]["questions"])
    for c in bare.cells:
        assert ("nbgrader" in c.metadata) == c.id.endswith("-check")
        if "nbgrader" in c.metadata:
            mark = c.metadata.nbgrader
            assert re.fullmatch(r"[a-zA-Z0-9_\-]*", mark.grade_id) and mark.schema_version == 3
            assert (mark.grade, mark.solution, mark.locked) == (True, False, True) and mark.points >= 1
            assert c.source.startswith("from specdec_core.classroom import check\n")  # whatever an answer calls `check`
        if c.id.endswith("-answer"):
            assert alone.marked(c.source) == f"{c.id[2:4]}.{c.id[5]}"
    assert sheets.RULE in bare.cells[0].source


@pytest.mark.parametrize("question", ABOUT)
def test_a_question_builds_on_a_section_that_its_chapter_has(question):
    chapter, _, rest = ABOUT[question]["prerequisite"].partition(", ")
    assert chapter <= question[:2]
    sources = list((ROOT / "chapters").glob(f"{chapter}_*.py"))
    if sources:  # a chapter that is not written yet has no sections to name
        text = "\n".join(c.source for c in book.read(sources[0]).cells)
        headings = set(re.findall(r"^## (.*)", text, flags=re.MULTILINE))
        named = re.findall(r'"((?:[^"\\]|\\")*)"', rest)
        assert named
        for name in named:
            assert name.replace('\\"', '"') in headings, name


# Right answers


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_solution_is_right_for_many_inputs(question):
    assert verdict(question, solution(question), seeds=range(8)) == (True, "right.")


@pytest.mark.parametrize(("question", "source"), [(q, s) for q, sources in RIGHT.items() for s in sources])
def test_right_answers_of_another_form_are_right(question, source):
    assert verdict(question, source) == (True, "right.")


# Wrong answers


def test_there_are_enough_wrong_answers():
    assert WRONG.keys() == QUESTIONS.keys()
    assert all(len(answers) >= 4 for answers in WRONG.values())


@pytest.mark.parametrize(("question", "source", "words"), [(q, *pair) for q, pairs in WRONG.items() for pair in pairs])
def test_a_usual_mistake_is_named(question, source, words):
    passed, message = verdict(question, source)
    assert not passed
    assert words in message


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_slip_is_known_by_its_values(question):
    """Each slip of a question gives other values than every slip before it, or its message would never be read."""
    for slip in QUESTIONS[question].slips:
        if QUESTIONS[question].observe is None:
            passed, message = examine(QUESTIONS[question], here(guarded(slip.wrong)), (VISIBLE_SEED, FRESH))
            assert not passed and message == slip.message


def guarded(wrong):
    def answer(*arguments):
        with np.errstate(all="ignore"):
            return wrong(*arguments)

    return answer


class EqualToAll:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __eq__

    def __float__(self):
        return 0.5

    def __array__(self, *arguments, **options):
        return np.array(0.5)


@pytest.mark.parametrize("question", QUESTIONS)
def test_nothing_nonsense_and_impostors_are_wrong(question):
    asked = QUESTIONS[question]

    def said(function):
        passed, message = examine(asked, here(function), (VISIBLE_SEED, FRESH))
        assert not passed
        return message

    assert "returned None" in said(lambda *arguments: None)
    assert "object of type EqualToAll" in said(lambda *arguments: EqualToAll())
    assert "raised ValueError: no" in said(lambda *arguments: (_ for _ in ()).throw(ValueError("no")))
    for place in range(len(asked.arguments)):
        assert said(lambda *arguments, place=place: arguments[place])
    assert said(lambda *arguments: 0) and said(lambda *arguments: [0.0] * 3) and said(lambda *arguments: float("nan"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_to_the_visible_inputs_learnt_by_heart_is_wrong(question):
    asked, right = QUESTIONS[question], define(solution(question), question)
    seen = []

    def called(argument):
        return callable(argument) or "Rng" in type(argument).__name__

    def plain(arguments):
        return repr([argument for argument in arguments if not called(argument)])

    def learning(*arguments):
        seen.append(copy.deepcopy([None if called(argument) else argument for argument in arguments]))
        return right(*arguments)

    def learnt(*arguments):
        if plain(arguments) not in known:  # what was right for the first input, whatever the input is
            arguments = [new if called(new) else old for new, old in zip(arguments, seen[0], strict=True)]
        return right(*arguments)

    assert examine(asked, here(learning), (VISIBLE_SEED,))[0]
    known = {repr([argument for argument in arguments if argument is not None]) for arguments in seen}
    assert examine(asked, here(learnt), (VISIBLE_SEED,))[0]
    passed, message = examine(asked, here(learnt), (VISIBLE_SEED, FRESH))
    assert not passed
    assert "right for the inputs that the notebook's own check uses, wrong for others" in message


# check, as a student meets it


def test_check_says_that_all_is_right_or_raises_with_the_reason(capsys):
    check("01.1", lambda p_x, q_x: min(1.0, p_x / q_x))
    assert capsys.readouterr() == ("01.1 The accept rule: right. 1 point.\n", "")  # nbgrader scores stderr as 0
    with pytest.raises(CheckFailed, match=r"^01\.3 How often a draft is kept: this is Σ p·q"):
        check("01.3", lambda p, q: p @ q)
    with pytest.raises(SpecdecError, match=r"no question '01\.9'"):
        check("01.9", max)
    with pytest.raises(SpecdecError, match="no question 'residual'"):
        check("residual", max)


def test_a_law_is_enumerated_not_sampled():
    law = law_of(lambda rng: rng.uniform() < 0.25, like=True, read=lambda value, like: bool(value))
    assert law == {True: 0.25, False: 0.75}


def test_a_source_that_breaks_the_format_is_refused_with_its_place(tmp_path):
    whole = (ROOT / "solutions" / "ex01_rejection_sampling.py").read_text(encoding="utf-8")
    path = tmp_path / "ex01_rejection_sampling.py"
    for old, new, words in (
        ("# points: 1\n", "", "question 01.1 has no points"),
        ("# points: 1\n", "# marks: 1\n", "has a line 'marks: 1'"),
        ("# hint:\n# The ratio", "", ""),
        ('# %% check="01.2"\ncheck("01.2", residual)\n', "", "question 01.2 needs one answer and one check"),
        ("    # END SOLUTION\n", "", "needs a region"),
        ('question="01.3"', 'question="02.3"', "question '02.3'; expected 01.1"),
        ("# hint:\n", "#\n", "expected 2"),
    ):
        if words:
            path.write_text(whole.replace(old, new, 1), encoding="utf-8")
            with pytest.raises(sheets.SheetError, match=re.escape(words)):
                sheets.build(path)
    with pytest.raises(sheets.SheetError, match=r"no exNN_\*\.py"):
        sheets.sources(tmp_path / "nowhere")


def test_find_refuses_what_there_is_not():
    with pytest.raises(SpecdecError, match="no question '99.1'"):
        find("99.1")
