"""The static site of a made-up book: what its pages hold, and that a fault stops it. No kernel runs."""

import base64

import nbformat
import pytest
from bs4 import BeautifulSoup

from specdec_core.book import site as booksite
from specdec_core.book.contents import BookError
from specdec_core.book.page import mathml
from specdec_core.viz.fallback import VIEW

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WIDGET = {"text/html": "<p>all its settings</p>", "text/plain": "a slider", VIEW: {"model_id": "gone"}}


def chapter(root, name, text, outputs=()):
    folder = root / "chapters"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text("# %% [markdown]\n" + "".join(f"# {line}\n" for line in text.splitlines()))
    code = nbformat.v4.new_code_cell("x = 1", execution_count=1)
    code.outputs = [nbformat.v4.new_output("display_data", data, metadata=metadata) for data, metadata in outputs]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), code])
    nbformat.write(notebook, folder / f"{name}.ipynb")


def figure(alt="Two curves that cross once."):
    return {"image/png": PNG, "text/plain": "Figure"}, {"image/png": {"alt": alt, "width": 300}}


@pytest.fixture
def book(tmp_path):
    text = (
        '# 00 · Start "here"\n\n## A 语 part\n\nNow $a^2$, and $$y = \\arg\\max_x p(x).$$\n\n'
        "See [01](01_more.ipynb#Its-part)."
    )
    chapter(tmp_path, "00_start", text, [figure(), (WIDGET, {})])
    chapter(tmp_path, "01_more", "# 01 · More\n\n## Its part\n\nBack to [the part](00_start.ipynb#A-语-part).")
    return tmp_path


def page(root, name):
    return BeautifulSoup((root / "site" / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


def test_pages_hold_what_the_notebooks_do_and_lead_to_one_another(book):
    assert booksite.build(book, book / "site") == 3
    start = page(book, "00_start")
    assert [tag.get("display") for tag in start.find_all("math")] == ["inline", "block"] and not start.find("script")
    assert (start.img["alt"], start.img["width"]) == ("Two curves that cross once.", "300")
    assert "all its settings" in start.text and "gone" not in str(start)
    assert [link["href"] for link in start.nav.find_all("a")] == ["index.html", "00_start.html", "01_more.html"]
    assert start.nav.find(attrs={"aria-current": "page"}).text == '00 · Start "here"' == start.title.text
    links = [link["href"] for link in start.main.find_all("a", class_=lambda name: name != "anchor-link")]
    assert links == ["01_more.html#Its-part", "01_more.html", "index.html"]
    index = page(book, "index")
    assert [link["href"] for link in index.main.select("li a")] == ["00_start.html", "01_more.html"]


def test_code_that_the_notebook_folds_is_folded(book):
    path = book / "chapters" / "01_more.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells[1].metadata["jupyter"] = {"source_hidden": True}
    nbformat.write(notebook, path)
    booksite.build(book, book / "site")
    assert page(book, "01_more").find("details").find("pre").text.strip() == "x = 1"
    assert page(book, "00_start").find("pre") and not page(book, "00_start").find("details")


def test_a_line_for_the_tests_is_not_shown(book):
    path = book / "chapters" / "01_more.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells[1].source = "# NBVAL_CHECK_OUTPUT\n# Why.\nx = 1"
    nbformat.write(notebook, path)
    booksite.build(book, book / "site")
    assert page(book, "01_more").find("pre").text.strip() == "# Why.\nx = 1"
    assert "NBVAL" in path.read_text(), "the notebook keeps it"


def test_a_second_build_replaces_the_first_and_nothing_else(book):
    booksite.build(book, book / "site")
    (book / "site" / "02_old.html").write_text("old")
    booksite.build(book, book / "site")
    assert sorted(path.name for path in book.iterdir()) == ["chapters", "site"]
    assert not (book / "site" / "02_old.html").exists()
    (book / "mine").mkdir()
    (book / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(BookError, match="mine holds other files than a site"):
        booksite.build(book, book / "mine")
    assert (book / "mine" / "letter.txt").read_text() == "dear"


FAULTS = {
    "a link to no page": ("[x](99_none.ipynb)", (), r"the link '99_none.html' leads to no file of the site"),
    "a link to no place": ("[x](00_start.ipynb#No)", (), r"'00_start.html#No' leads to no place on its page"),
    "a scheme": ("[x](file:///etc/hosts)", (), "a scheme that no page understands, 'file'"),
    "an image that is not there": ("![words](none.png)", (), "the image .*none.png.* is not a file of the site"),
    "an image without words": ("text", [figure("")], "has no alt text"),
    "an image that is none": ("text", [({"image/png": "AAAA"}, {"image/png": {"alt": "x y"}})], "is neither a PNG nor"),
    "a script": ("text", [({"text/html": "<script>1</script>"}, {})], "<script> would need more than the page"),
    "a formula": (r"$\nosuch{x}$", (), r"has \\nosuch, which no static page can show"),
}


@pytest.mark.parametrize("text, outputs, words", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_and_the_old_site_stays(book, text, outputs, words):
    booksite.build(book, book / "site")
    before = {path.name: path.read_bytes() for path in (book / "site").iterdir()}
    chapter(book, "02_fault", f"# 02 · Fault\n\n{text}", outputs)
    with pytest.raises(BookError, match=words):
        booksite.build(book, book / "site")
    assert {path.name: path.read_bytes() for path in (book / "site").iterdir()} == before
    assert sorted(path.name for path in book.iterdir()) == ["chapters", "site"]


def test_a_chapter_that_was_not_built_is_named(book, monkeypatch, capsys):
    (book / "chapters" / "01_more.ipynb").unlink()
    monkeypatch.chdir(book)
    assert booksite.main([]) == 2
    assert "not built yet: 01_more; run `make book` first" in capsys.readouterr().err


def test_commands_that_latex_has_and_the_converter_has_not_are_spelled():
    assert "<mtext>arg</mtext>" in mathml(r"\arg\max_x p") and "<mo>max</mo>" in mathml(r"\arg\max_x p")
    assert "max_n" in mathml(r"\texttt{max\_n}").replace("</mtext>", "").replace("<mtext>", "")
