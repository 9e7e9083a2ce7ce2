"""Every chapter, as its reader has it: opened in JupyterLab, all cells run, every widget played with."""

from pathlib import Path

import nbformat
import pytest
from notebook_page import changes, controls, opened

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))


def test_there_are_chapters():
    assert CHAPTERS


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_its_widgets_answer(chapter, chromium, server, screenshots, request):
    notebook = nbformat.read(chapter, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":  # whatever is seen was then computed now
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, server.folder / chapter.name)
    patience = request.config.getoption("widget_timeout")
    with opened(chromium, server.page(chapter.name)) as page:
        try:
            page.run_all(request.config.getoption("chapter_timeout"))
            widgets = page.widgets(patience)
        finally:
            page.picture(screenshots, chapter.stem)
        assert widgets or not chapter.stem[0].isdigit(), "every numbered chapter has a widget"
        dead = []
        for number, widget in enumerate(widgets, start=1):
            found = controls(widget)
            moved = [(what, changes(page, widget, what, control, patience)) for what, control in found]
            widget.screenshot(path=screenshots / f"{chapter.stem}-widget-{number}.png")
            print(f"{chapter.stem}, widget {number}: {moved}")
            dead += [(number, what) for what, changed in moved if not changed]
            assert found, f"widget {number} has no control that this test knows"
        page.refuse_errors()
        assert not dead, f"these controls change nothing: {dead}"
