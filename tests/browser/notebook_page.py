"""What a reader does with a notebook in JupyterLab: runs all cells, reads from top to bottom, moves the controls.

Cells are read from JupyterLab's own model of the notebook, whatever is folded or out of sight; everything else is
read from the page, by the classes that ipywidgets gives its elements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
CELLS = """view => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model).map((model, place) => {
    const outputs = Array.from({length: model.outputs?.length ?? 0}, (_, i) => model.outputs.get(i));
    const errors = outputs.filter(output => output.type === "error").map(output => output.toJSON());
    return {
        place,
        waits: model.type === "code" && model.sharedModel.getSource().trim() !== "" && model.executionCount === null,
        errors: errors.map(error => `${error.ename}: ${error.evalue}`),
        widgets: outputs.filter(output => view in output.data).length,
    };
})"""
IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
CONTROLS = {
    "play": ".widget-play",
    "slider": ".widget-slider",
    "dropdown": ".widget-dropdown",
    "toggle buttons": ".widget-toggle-buttons",
    "radio buttons": ".widget-radio",
    "toggle button": ".widget-toggle-button:not(.widget-toggle-buttons *)",
    "checkbox": ".widget-checkbox",
    "text": ".widget-text",
    "text area": ".widget-textarea",
}
# Scrolls one screen down, unless the last cell is in sight.
BELOW = """it => {
    const end = box => box.getBoundingClientRect().bottom;
    const below = end([...it.querySelectorAll(".jp-Cell")].at(-1)) > end(it);
    if (below) it.scrollBy(0, it.clientHeight - 60);
    return below;
}"""
# What an output shows besides its controls.
SHOWN = """(output, controls) => {
    const copy = output.cloneNode(true);
    copy.querySelectorAll(controls).forEach(control => control.remove());
    const sketches = [...output.querySelectorAll("canvas")].map(canvas => canvas.toDataURL());
    return copy.innerHTML + sketches.join("");
}"""


@contextmanager
def opened(browser: Any, address: str, timeout: float = 300) -> Iterator[NotebookPage]:
    """A notebook in a window of its own, ready to run; its kernel ends with the block.

    Args:
        browser: of playwright.
        address: of the notebook.
        timeout: seconds until the notebook is there and its kernel ready, and for each click.
    """
    with browser.new_context(viewport={"width": 1280, "height": 1500}) as context:
        context.set_default_timeout(timeout * 1000)
        tab = context.new_page()
        tab.goto(address)
        page = NotebookPage(tab)
        tab.locator(".jp-Notebook .jp-Cell").first.wait_for()
        page.idle(timeout)
        try:
            yield page
        finally:
            tab.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")


class NotebookPage:
    """A notebook that is open in JupyterLab; ``page`` is playwright's."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def idle(self, timeout: float) -> None:
        """Wait until the kernel is there and has nothing to do."""
        self.page.wait_for_function(IDLE, timeout=timeout * 1000)

    def cells(self) -> list[dict[str, Any]]:
        """Every cell: its place, whether it holds code that has not run, its errors, how many outputs are widgets."""
        return self.page.evaluate(CELLS, VIEW)

    def run_all(self, timeout: float) -> None:
        """Run All Cells, from the menu, and wait until each has finished.

        Raises:
            AssertionError: at the first error; if the kernel dies; if the cells take more than ``timeout`` seconds.
        """
        self.page.locator(".lm-MenuBar-item, .jp-MenuBar-item").filter(has_text="Run").first.click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        deadline = time.monotonic() + timeout
        while waiting := [cell["place"] for cell in self.cells() if cell["waits"]]:
            self.refuse_errors()
            assert time.monotonic() < deadline, f"cell {waiting[0]} had not finished after {timeout:.0f} s"
            self.page.wait_for_timeout(2000)
        self.idle(60)
        self.refuse_errors()

    def refuse_errors(self) -> None:
        """Raise AssertionError if an output, a formula or a dialog reports an error."""
        failed = {cell["place"]: cell["errors"] for cell in self.cells() if cell["errors"]}
        assert not failed, f"cells failed: {failed}"
        dialogs = self.page.locator(".jp-Dialog").all_inner_texts()
        assert not dialogs, f"JupyterLab asks: {dialogs}"
        formulas = self.page.locator("mjx-merror").all_inner_texts()
        assert not formulas, f"MathJax cannot set: {formulas}"

    def widgets(self, timeout: float) -> list[Any]:
        """The outputs that hold a widget, each of them drawn, in the order of the page."""
        count = sum(cell["widgets"] for cell in self.cells())
        found = self.page.locator(".jp-OutputArea-output:has(> .jupyter-widgets)")
        if count:
            found.nth(count - 1).wait_for(timeout=timeout * 1000)
        assert found.count() == count, f"{count} outputs hold a widget, {found.count()} are drawn"
        return found.all()

    def settle(self, widget: Any, limit: float = 5) -> None:
        """Wait until a widget has answered all that it was asked before; one that plays never has, hence the limit."""
        last, deadline = None, time.monotonic() + limit
        while (now := shown(widget)) != last and time.monotonic() < deadline:
            last = now
            self.page.wait_for_timeout(500)
            self.idle(60)

    def picture(self, folder: Path, name: str) -> None:
        """The whole notebook, one screen after another, as ``name-01.png`` and so on."""
        for old in folder.glob(f"{name}-*.png"):
            old.unlink()
        inside = self.page.locator(".jp-Notebook .jp-WindowedPanel-outer").first
        inside.evaluate("it => it.scrollTo(0, 0)")
        number, below = 0, True
        while below:
            number += 1
            self.page.wait_for_timeout(300)
            inside.screenshot(path=folder / f"{name}-{number:02}.png")
            below = inside.evaluate(BELOW)


def controls(widget: Any) -> list[tuple[str, Any]]:
    """Every control of an output: what it is and says, and where."""
    found = []
    for kind, selector in CONTROLS.items():
        for control in widget.locator(selector).all():
            label = control.locator(".widget-label").first
            found.append((f"{kind} {label.inner_text()!r}" if label.count() else kind, control))
    return found


def shown(widget: Any) -> str:
    """What an output shows besides its controls."""
    return widget.evaluate(SHOWN, ", ".join(CONTROLS.values()))


def changes(page: NotebookPage, widget: Any, kind: str, control: Any, timeout: float) -> bool:
    """Move one control, as a reader would, see whether what the output shows changes, and move it back.

    Args:
        page: the notebook.
        widget: one of `NotebookPage.widgets`.
        kind, control: one of the pairs of `controls`.
        timeout: seconds to wait for a change after each move.
    """
    page.settle(widget)
    before, changed = shown(widget), False
    control.scroll_into_view_if_needed()
    for _ in _MOVES[kind.partition(" '")[0]](control):
        changed = changed or _until(lambda: shown(widget) != before, page, timeout)
        page.settle(widget)
    return changed


def _until(happened: Callable[[], bool], page: NotebookPage, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not (now := happened()) and time.monotonic() < deadline:
        page.page.wait_for_timeout(200)
    return now


# Each function below moves a control, yields, perhaps moves it again and yields, and in the end moves it back.


def _slide(control: Any) -> Iterator[None]:
    """To the far end of the track, then to the near one: a limit that nothing reaches rightly changes nothing."""
    track = control.locator(".noUi-target")
    box, handle = track.bounding_box(), control.locator(".noUi-handle").first.bounding_box()
    start, ends = handle["x"] + handle["width"] / 2 - box["x"], (1, box["width"] - 1)
    far, near = ends if start > box["width"] / 2 else ends[::-1]
    for x in (far, near):
        track.click(position={"x": x, "y": box["height"] / 2}, force=True)
        yield
    track.click(position={"x": min(max(start, 1), box["width"] - 1), "y": box["height"] / 2}, force=True)


def _choose(control: Any) -> Iterator[None]:
    """The next entry, or the first after the last."""
    select = control.locator("select")
    count, chosen = select.evaluate("it => [it.options.length, it.selectedIndex]")
    select.select_option(index=(chosen + 1) % count)
    yield
    select.select_option(index=chosen)


def _type(control: Any) -> Iterator[None]:
    """At the end, what stands at the beginning, then nothing at all; for a number, one more."""
    field = control.locator("input, textarea").first
    old = field.input_value()
    field.click()
    if field.get_attribute("type") == "number":
        field.press("ArrowUp")
    else:
        field.press("Control+End")
        field.press_sequentially(" " + " ".join(old.split()[:2]))
        yield
        field.fill("")
    yield
    field.fill(old)


def _press(selector: str, back: str) -> Callable[[Any], Iterator[None]]:
    """A button, and what to press afterwards."""

    def move(control: Any) -> Iterator[None]:
        old = control.locator(back).first.element_handle()
        control.locator(selector).first.click()
        yield
        old.click()

    return move


_MOVES = {
    "play": _press("button", back="button"),  # and pause
    "slider": _slide,
    "dropdown": _choose,
    "toggle buttons": _press("button:not(.mod-active)", back="button.mod-active"),
    "radio buttons": _press("input:not(:checked)", back="input:checked"),
    "toggle button": _press("xpath=.", back="xpath=."),
    "checkbox": _press("input", back="input"),
    "text": _type,
    "text area": _type,
}
