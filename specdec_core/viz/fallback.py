"""Widgets that read without a kernel: what is displayed holds the widget and a static page side by side.

A notebook shows the richest form it can: the widget where a kernel runs, else the HTML. When the book is built
the reference to the widget is dropped, so the committed page never points at a model that no longer exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"


def show(widget: Any, static: str, description: str) -> None:
    """Display a widget, or in its place ``static`` HTML with the same content, or a plain ``description`` of it."""
    from IPython.display import display

    view = widget._repr_mimebundle_().get(VIEW)
    bundle = {"text/html": static, "text/plain": description}
    display({**bundle, VIEW: view} if view else bundle, raw=True)


def live(page: Callable[[], str], *controls: Any) -> Any:
    """An HTML widget that shows ``page()``, anew whenever one of the controls changes."""
    import ipywidgets as widgets

    shown = widgets.HTML(page())
    for control in controls:
        control.observe(lambda _: setattr(shown, "value", page()), "value")
    return shown


def sliders(width: int, text: int, *settings: tuple, **common: Any) -> list[Any]:
    """Sliders of (description, value, least, most, step); pixels of each, and of its text; what else all have."""
    import ipywidgets as widgets

    common |= {"layout": {"width": f"{width}px"}, "style": {"description_width": f"{text}px"}}
    found = []
    for what, value, least, most, step in settings:
        kind = widgets.FloatSlider if isinstance(step, float) else widgets.IntSlider
        found.append(kind(value=value, min=least, max=most, step=step, description=what, **common))
    return found


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
