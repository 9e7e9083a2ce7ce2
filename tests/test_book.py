"""The committed book against its sources; and a build that fails, which must leave the last whole one."""

import ast
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from specdec_core.book import build as bookbuild
from specdec_core.book import links as booklinks
from specdec_core.book.memory import PeakOf

ROOT = Path(__file__).parents[1]
SOURCES = bookbuild.chapters(ROOT)
MANIFEST = bookbuild.manifest(ROOT)
HEADER = "# ---\n# jupyter:\n#   jupytext:\n#     cell_metadata_filter: all\n# ---\n\n"


@pytest.mark.parametrize("source", SOURCES, ids=bookbuild.number)
def test_a_committed_chapter_is_its_source_executed(source):
    assert bookbuild.problems(source, ROOT) == []


@pytest.mark.parametrize("source", SOURCES, ids=bookbuild.number)
def test_code_cells_are_short_enough_to_read(source):
    lengths = [len(cell.source.splitlines()) for cell in bookbuild.read(source).cells if cell.cell_type == "code"]
    assert max(lengths) <= 25


def test_contents_and_links_are_those_of_the_chapters():
    assert booklinks.problems(ROOT) == []


def test_every_figure_has_a_record_and_every_record_a_figure():
    assert {path.name for path in (ROOT / "figures").glob("*.svg")} == set(MANIFEST)


def names_read(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def names_made(statement):
    made = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return made | ({statement.name} if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else set())


def rests_on(code, target):
    """All names that the cell `target` rests on, through the assignments of the cells up to it."""
    makers = {}
    for cell in code[: target + 1]:
        for statement in ast.parse(cell.source).body:
            for name in names_made(statement):
                makers.setdefault(name, set()).update(names_read(statement))
    reached, todo = set(), names_read(ast.parse(code[target].source))
    while todo:
        name = todo.pop()
        reached.add(name)
        todo |= makers.get(name, set()) - reached
    return reached


def imported(code):
    """Names bound by importing something of this package."""
    found = set()
    for cell in code:
        for node in ast.walk(ast.parse(cell.source)):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("specdec_core") and not module.startswith("specdec_core.viz"):
                found |= {alias.asname or alias.name for alias in node.names if alias.name != "viz"}
    return found


def defined(code):
    """Names of the functions that the chapter defines."""
    trees = [ast.parse(cell.source) for cell in code]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", MANIFEST)
def test_no_figure_is_drawn_from_a_list_of_constants(name):
    """The cell that saved it rests, through the chapter's assignments, on something of the package that ran."""
    entry = MANIFEST[name]
    source = next(source for source in SOURCES if bookbuild.number(source) == entry["chapter"])
    code = [cell for cell in nbformat.read(source.with_suffix(".ipynb"), 4).cells if cell.cell_type == "code"]
    place = next(place for place, cell in enumerate(code) if cell.id == entry["cell"])
    assert "save(" in code[place].source
    ran = imported(code) - {"load", "style", "figures", "machine"}
    if entry["model"] is None:
        ran |= defined(code) | {"np", "min", "sum"}  # a formula that the chapter itself computes, in the open
    assert rests_on(code, place) & ran, entry["cell"]
    assert entry["alt"].strip() and entry["date"] and entry["versions"]["torch"]
    assert all(isinstance(words, str) and words.strip() for words in entry["quoted"])


def test_a_figure_of_constants_would_be_found():
    notebook = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell("from specdec_core import generate\nfrom specdec_core.viz import figures"),
        nbformat.v4.new_code_cell("xs = [1, 2, 3]\nys = generate(lm, prompt)"),
        nbformat.v4.new_code_cell("figures.save(draw(xs), 'a')"),
        nbformat.v4.new_code_cell("zs = [y for y in ys]\nfigures.save(draw(zs), 'b')"),
    ])  # fmt: skip
    assert not rests_on(notebook.cells, 2) & (imported(notebook.cells) - {"figures"})
    assert "generate" in rests_on(notebook.cells, 3)


def chapter(root, code):
    (root / "chapters").mkdir(exist_ok=True)
    source = root / "chapters" / "77_try.py"
    source.write_text(HEADER + "# %% [markdown]\n# # Try\n\n" + "\n\n".join(f"# %%\n{cell}" for cell in code) + "\n")
    return source


def test_a_build_that_fails_leaves_the_last_whole_one(tmp_path):
    source = chapter(tmp_path, ["print(1 + 1)", "2 + 2"])
    bookbuild.build(source, tmp_path)
    notebook = source.with_suffix(".ipynb")
    before = notebook.read_bytes()
    assert bookbuild.problems(source, tmp_path) == []
    chapter(tmp_path, ["print(1 + 1)", "1 / 0", "3"])
    with pytest.raises(bookbuild.BookError, match="chapter 77: cell 2 of 3 failed(.|\n)*ZeroDivisionError"):
        bookbuild.build(source, tmp_path)
    assert notebook.read_bytes() == before
    assert "its cells are not those of the source" in bookbuild.problems(source, tmp_path)[0]
    assert not (tmp_path / "figures").exists() or json.loads((tmp_path / "figures/manifest.json").read_text()) == {}


def test_what_a_page_must_not_show_is_named(tmp_path):
    source = chapter(tmp_path, ["print('hello')"])
    bookbuild.build(source, tmp_path)
    path = source.with_suffix(".ipynb")
    notebook = nbformat.read(path, 4)
    notebook.metadata["widgets"] = {}
    notebook.cells[1].outputs[0].text = "File /home/ada/secret.py"
    notebook.cells[1].execution_count = 3
    nbformat.write(notebook, path)
    found = " ".join(bookbuild.problems(source, tmp_path))
    assert "metadata.widgets" in found and "/home/ada/secret.py" in found and "counts are [3], not 1 ... 1" in found


def test_chapters_that_are_not_there_are_named(tmp_path):
    with pytest.raises(bookbuild.BookError, match="no chapter in"):
        bookbuild.chapters(tmp_path)
    chapter(tmp_path, ["1"])
    with pytest.raises(bookbuild.BookError, match="no chapter 99; choose from: 77"):
        bookbuild.chapters(tmp_path, ["99"])


def test_a_new_chapter_renews_the_links_of_its_neighbors_and_the_contents(tmp_path):
    source = chapter(tmp_path, ["print(1)"])
    bookbuild.build(source, tmp_path)
    booklinks.link(tmp_path)
    assert booklinks.problems(tmp_path) == []
    cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
    assert cells[-1].source == "---\n[Contents](README.md)"
    text = "# %% [markdown]\n# # 78 · More\n#\n# > **The question of this chapter.** Is it\n# > long?\n#\n# ## A part\n"
    source.with_name("78_more.py").write_text(HEADER + text)
    contents, links = booklinks.problems(tmp_path)
    assert contents.startswith("chapters/README.md is not") and links.startswith("77_try.ipynb does not end")
    assert "--links" in links
    booklinks.link(tmp_path)
    assert booklinks.problems(tmp_path) == [] and bookbuild.problems(source, tmp_path) == []
    again = nbformat.read(source.with_suffix(".ipynb"), 4).cells
    assert again[:-1] == cells[:-1]
    assert again[-1].source == "---\n**Next:** [78 · More](78_more.ipynb) · [Contents](README.md)"
    listed = (source.parent / "README.md").read_text()
    assert "- **[78 · More](78_more.ipynb)**\n  Is it\n  long?\n  <br><sub>A part</sub>" in listed


@pytest.fixture
def heeds_interrupts():
    """A process that was started in the background ignores SIGINT, and so do those it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_build_leaves_the_last_whole_one(tmp_path, capsys, heeds_interrupts):
    source = chapter(tmp_path, ["print(1)"])
    bookbuild.build(source, tmp_path)
    notebook = source.with_suffix(".ipynb")
    before = notebook.read_bytes()
    # The kernel's parent is this process: the cell presses Ctrl-C for us.
    press = "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)"
    chapter(tmp_path, ["print(2)", press])
    with pytest.raises(KeyboardInterrupt):
        bookbuild.build(source, tmp_path)
    assert notebook.read_bytes() == before
    assert "chapter 77: interrupted in cell 2 of 2; left as it was." in capsys.readouterr().err


def test_a_widget_without_a_static_page_is_refused(tmp_path):
    source = chapter(tmp_path, ["import ipywidgets\nipywidgets.IntSlider()"])
    with pytest.raises(bookbuild.BookError, match="cell 1 shows a widget .*fallback.show"):
        bookbuild.build(source, tmp_path)
    assert not source.with_suffix(".ipynb").exists()


def test_a_widget_leaves_its_static_page_and_stderr_nothing(tmp_path):
    code = (
        "import sys\nimport ipywidgets\nfrom specdec_core.viz.fallback import show\n"
        "print('careful', file=sys.stderr)\nshow(ipywidgets.IntSlider(), '<p>static</p>', 'a slider')"
    )
    source = chapter(tmp_path, [code])
    bookbuild.build(source, tmp_path)
    (cell,) = (cell for cell in nbformat.read(source.with_suffix(".ipynb"), 4).cells if cell.cell_type == "code")
    (output,) = cell.outputs
    assert output.data == {"text/html": "<p>static</p>", "text/plain": "a slider"}
    assert bookbuild.problems(source, tmp_path) == []


def test_the_memory_of_a_process_is_seen_with_that_of_its_children(tmp_path):
    """100 MB in a child that has ended again, and 50 MB given back at once, which only the system remembers."""
    child = "held = bytearray(100_000_000); import time; time.sleep(1.5)"
    code = "import subprocess, sys; held = bytearray(50_000_000); del held"
    code = f"{code}; subprocess.run([sys.executable, '-c', {child!r}]); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    peak = PeakOf(process.pid)
    while not (process.poll() is None and peak._process.children()):
        time.sleep(0.02)
    while peak._process.children():
        time.sleep(0.02)
    most = peak.end()
    process.communicate(b"\n")
    assert (150e6 if sys.platform == "linux" else 100e6) < most < 250e6
