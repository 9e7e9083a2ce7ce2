"""One look for every figure of the book: readable in color, without color, and in gray.

Colors are Okabe and Ito's (Color Universal Design, 2008), which color-blind readers can tell apart. No meaning
rests on color alone: each series has a line style and a marker of its own, each bar a hatch. A number from a
paper is drawn in `QUOTED`: hollow, gray, dotted, never to be taken for a measurement made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# black, blue, vermilion, bluish green, reddish purple, sky blue, orange, yellow
PALETTE = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442")
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo")

QUOTED: dict[str, Any] = {"color": "#7F7F7F", "linestyle": ":", "marker": "d", "markerfacecolor": "none"}
QUOTED["markersize"] = 8
RING: dict[str, Any] = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "linestyle": "none"}
RING |= {"markeredgecolor": "black", "markeredgewidth": 2}  # around a point that was chosen

# Methods in the order of the chapters: each has one look throughout the book.
METHODS = (
    "autoregressive", "prompt_lookup", "draft_model", "medusa", "eagle", "mtp", "jacobi", "lookahead", "rest",
    "suffix", "ngram",
)

_RC = {
    "figure.dpi": 100,
    "figure.figsize": (7.6, 4.0),
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "svg.fonttype": "none",  # text stays text: small files, and a screen reader finds the labels
    "svg.hashsalt": "specdec",  # the same figure gives the same bytes
}


def line(i: int) -> dict[str, Any]:
    """Keyword arguments of ``axes.plot`` for series i; color, line style and marker all differ.

    Example:
        >>> line(1)["color"], line(1)["linestyle"], line(1)["marker"]
        ('#0072B2', '--', 's')
    """
    return {"color": PALETTE[i % len(PALETTE)], "linestyle": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)]}


def bar(i: int) -> dict[str, Any]:
    """Keyword arguments of ``axes.bar`` for series i; the first is light gray so that hatches show on the others.

    Example:
        >>> bar(1)["color"], bar(1)["hatch"]
        ('#0072B2', '///')
    """
    color = "#D9D9D9" if i % len(PALETTE) == 0 else PALETTE[i % len(PALETTE)]
    return {"color": color, "hatch": HATCHES[i % len(HATCHES)], "edgecolor": "black", "linewidth": 0.7}


def index(method: str) -> int:
    """The series number of a method, settings after a colon ignored.

    Raises:
        ValueError: for a method that has no look yet.

    Example:
        >>> index("prompt_lookup:num_tokens=5")
        1
    """
    base = method.partition(":")[0]
    if base not in METHODS:
        raise ValueError(f"no look for the method {base!r}; add it to METHODS in viz/style.py ({', '.join(METHODS)})")
    return METHODS.index(base)


@contextmanager
def used() -> Iterator[None]:
    """The book's settings of matplotlib, for the length of a ``with`` block.

    Example:
        >>> import matplotlib as mpl
        >>> with used():
        ...     mpl.rcParams["svg.hashsalt"]
        'specdec'
    """
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        yield


def use() -> None:
    """The book's settings for the rest of the session; the first cell of a chapter calls it."""
    import matplotlib as mpl

    mpl.rcParams.update(_RC)
