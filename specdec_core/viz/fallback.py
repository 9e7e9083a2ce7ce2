"""Widgets that read without a kernel: what is displayed holds the widget and a static page side by side.

A notebook shows the richest form it can: the widget where a kernel runs, else the HTML. When the book is built
the reference to the widget is dropped, so the committed page never points at a model that no longer exists.
"""

from __future__ import annotations

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
