"""What a reader does with a notebook in JupyterLab: runs all cells, reads from top to bottom, moves the controls.

Cells are read from JupyterLab's own model of the notebook, whatever is folded or out of sight; everything else is
read from the page, by the classes that ipywidgets gives its elements.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell, index) => ({
    place: index, code: cell.model.type === "code" && cell.model.sharedModel.getSource().trim() !== "",
    count: cell.model.executionCount ?? null, outputs: cell.model.outputs ? cell.model.outputs.toJSON() : []}))"""
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
# What an output shows besides its controls.
SHOWN = """(output, controls) => {
    const copy = output.cloneNode(true);
    copy.querySelectorAll(controls).forEach(control => control.remove());
    const sketches = [...output.querySelectorAll("canvas")].map(canvas => canvas.toDataURL());
    return copy.innerHTML + sketches.join("");
}"""


class NotebookPage:
    """A notebook that is open in JupyterLab.

    Args:
        page: of playwright, on a notebook's address.
        timeout: seconds until the notebook is there and its kernel ready.
    """

    def __init__(self, page: Any, timeout: float = 300) -> None:
        self.page = page
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=timeout * 1000)
        self.idle(timeout)

    def idle(self, timeout: float) -> None:
        """Wait until the kernel is there and has nothing to do."""
        self.page.wait_for_function(IDLE, timeout=timeout * 1000)

    def cells(self) -> list[dict[str, Any]]:
        """Every cell: its place, whether it holds code, its execution count, its outputs as in the file."""
        return self.page.evaluate(CELLS)

    def run_all(self, timeout: float) -> None:
        """Run All Cells, from the menu, and wait until each has finished.

        Raises:
            AssertionError: at the first error; if the kernel dies; if the cells take more than ``timeout`` seconds.
        """
        self.page.locator(".lm-MenuBar-item, .jp-MenuBar-item").filter(has_text="Run").first.click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        deadline = time.monotonic() + timeout
        while waiting := [cell for cell in self.cells() if cell["code"] and cell["count"] is None]:
            self.refuse_errors()
            assert time.monotonic() < deadline, f"cell {waiting[0]['place']} had not finished after {timeout:.0f} s"
            self.page.wait_for_timeout(1000)
        self.idle(60)
        self.refuse_errors()

    def refuse_errors(self) -> None:
        """Raise AssertionError if an output, a formula or a dialog reports an error."""
        for cell in self.cells():
            for output in cell["outputs"]:
                error = output["output_type"] == "error"
                assert not error, f"cell {cell['place']} failed: {output['ename']}: {output['evalue']}"
        dialogs = self.page.locator(".jp-Dialog").all_inner_texts()
        assert not dialogs, f"JupyterLab asks: {dialogs}"
        formulas = self.page.locator("mjx-merror").all_inner_texts()
        assert not formulas, f"MathJax cannot set: {formulas}"

    def widgets(self, timeout: float) -> list[Any]:
        """The outputs that hold a widget, each of them drawn, in the order of the page."""
        count = sum(VIEW in output.get("data", {}) for cell in self.cells() for output in cell["outputs"])
        found = self.page.locator(".jp-OutputArea-output:has(> .jupyter-widgets)")
        if count:
            found.nth(count - 1).wait_for(timeout=timeout * 1000)
        assert found.count() == count, f"{count} outputs hold a widget, {found.count()} are drawn"
        return found.all()

    def settle(self, widget: Any, timeout: float) -> None:
        """Wait until a widget has answered all that it was asked before."""
        last = None
        while (now := shown(widget)) != last:
            last = now
            self.page.wait_for_timeout(500)
            self.idle(timeout)

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
            below = inside.evaluate(
                "it => { const top = it.scrollTop; it.scrollBy(0, it.clientHeight - 60); return it.scrollTop > top; }"
            )


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
    page.settle(widget, timeout)
    before, changed = shown(widget), False
    control.scroll_into_view_if_needed()
    for _ in _MOVES[kind.partition(" '")[0]](control):
        changed = changed or _until(lambda: shown(widget) != before, page, timeout)
        page.settle(widget, timeout)
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
