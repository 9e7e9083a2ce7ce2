"""Widgets that read without a kernel: what is displayed holds the widget and a static page side by side.

A notebook shows the richest form it can: the widget where a kernel runs, else the HTML. When the book is built
the reference to the widget is dropped, so the committed page never points at a model that no longer exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"


def show(widget: Any, static: str, description: str) -> None:
    """Display a widget with what to show in its place.

    Args:
        widget: of ipywidgets.
        static: HTML with the same content, at one setting or at all of them.
        description: plain text for where not even HTML is shown.
    """
    from IPython.display import display

    view = widget._repr_mimebundle_().get(VIEW)
    bundle = {"text/html": static, "text/plain": description}
    display({**bundle, VIEW: view} if view else bundle, raw=True)


def live(page: Callable[[], str], *controls: Any) -> Any:
    """An HTML widget that shows ``page()``, anew whenever one of the controls changes."""
    import ipywidgets as widgets

    shown = widgets.HTML()

    def redraw(_: Any = None) -> None:
        shown.value = page()

    for control in controls:
        control.observe(redraw, "value")
    redraw()
    return shown


def stepped(page: Callable[[int], str], name: str, least: int, most: int, value: int, interval: int = 0) -> Any:
    """A slider over ``page(least) ... page(most)``, and a button that plays them, one each ``interval`` ms if given."""
    import ipywidgets as widgets

    slider = widgets.IntSlider(value=value, min=least, max=most, description=name, layout={"width": "60%"})
    shown = live(lambda: page(slider.value), slider)
    if not interval:
        return widgets.VBox([slider, shown])
    play = widgets.Play(value=value, min=least, max=most, interval=interval)
    widgets.jslink((play, "value"), (slider, "value"))
    return widgets.VBox([widgets.HBox([play, slider]), shown])
