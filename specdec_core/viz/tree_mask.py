"""A draft tree and its attention mask side by side: choose a row and see its path, its row of the mask, its position.

Row 0 is the root. A row sees the committed tokens, the rows on its path, and itself; its position in the text is that
of the root plus its depth, whichever row it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from ..core.tree import DraftTree
from . import markup
from .fallback import show, stepped
from .markup import label

_PATH, _SEES, _CHOSEN = "#BFE3F5", "#DDDDDD", "#0072B2"  # on the path of the chosen row; other filled cells; its edge
_WIDE, _HIGH = 98, 22  # pixels of a node; columns and lines are a little further apart
_PITCH, _LINE, _CELL = 116, 27, 15


def layout(tree: DraftTree) -> np.ndarray:
    """(N+1, 2) column and line of each row: depth to the right, leaves one under the other, a parent amid its children.

    Example:
        >>> layout(DraftTree.from_paths(7, [[1, 2], [1, 3], [4]])).tolist()
        [[0.0, 1.25], [1.0, 0.5], [2.0, 0.0], [2.0, 1.0], [1.0, 2.0]]
    """
    lines, free = np.zeros(len(tree.tokens)), 0

    def place(row: int) -> None:
        nonlocal free
        children = np.flatnonzero(tree.parents == row)
        for child in children:
            place(child)
        if len(children):
            lines[row] = lines[children[[0, -1]]].mean()
        else:
            lines[row], free = free, free + 1

    place(0)
    return np.stack([tree.depths.astype(float), lines], 1)


def words(tree: DraftTree, names: Sequence[str], row: int, committed: int) -> str:
    """What a row sees and where it stands.

    Args:
        tree: the draft.
        names: (N+1,) the text of each row.
        row: the one that is asked about.
        committed: tokens in the cache; the root's position is ``committed``, counted from 0.

    Raises:
        ValueError: for a row that the tree does not have.

    Example:
        >>> words(DraftTree.from_paths(7, [[1, 2], [4]]), ["The", "cat", "sat", "dog"], 2, committed=5)
        'Row 2 "sat": its path is "The · cat · sat". It sees the 5 committed tokens and rows 0, 1, 2, not row 3. Its \
position is 5 + 2 = 7.'
    """
    _check(tree, row)
    path, depth = tree.path_to(row), int(tree.depths[row])
    hidden = [other for other in range(len(tree.tokens)) if other not in path]
    along = " · ".join(label(names[i]) for i in path)
    unseen = f", not row{'s' * (len(hidden) > 1)} {', '.join(map(str, hidden))}" if hidden else ""
    return (
        f'Row {row} "{label(names[row])}": its path is "{along}". It sees the {committed} committed tokens and '
        f"row{'s' * (len(path) > 1)} {', '.join(map(str, path))}{unseen}. "
        f"Its position is {committed} + {depth} = {committed + depth}."
    )


def page(tree: DraftTree, names: Sequence[str], row: int, committed: int) -> str:
    """Tree, mask and words as HTML that needs no file; arguments as for `words`."""
    path = f"Draft tree of {tree.size} nodes; the path to row {row} is marked."
    mask = f"Mask of {tree.size + 1} rows; row {row} is marked: filled where it sees."
    return (
        f'<div style="{markup.SMALL};max-width:960px"><b>{escape(words(tree, names, row, committed))}</b>'
        f'<div style="display:flex;flex-wrap:wrap;gap:20px;align-items:flex-start">'
        f"{markup.image(tree_svg(tree, names, row), path)}{markup.image(mask_svg(tree, row), mask)}</div></div>"
    )


def viewer(tree: DraftTree, decode: Callable[[int], str], committed: int, static: Sequence[int] = ()) -> None:
    """Show the tree with a slider over its rows; without a kernel, the rows ``static``, or the last one.

    Args, errors: as for `words`, with ``decode`` for the text of a token.
    """
    names, last = [decode(token) for token in tree.tokens.tolist()], len(tree.tokens) - 1
    chosen = list(static) or [last]
    pages = markup.RULE.join(page(tree, names, row, committed) for row in chosen)
    widget = stepped(lambda row: page(tree, names, row, committed), "row", 0, last, chosen[0])
    show(widget, pages, f"A draft tree of {tree.size} nodes and its attention mask")


def draw(tree: DraftTree, names: Sequence[str]) -> Any:
    """The mask as a figure of matplotlib: who sees whom, each row named by its token and its depth."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    rows = len(tree.tokens)
    fig, axes = plt.subplots(figsize=(0.22 * rows + 3.0, 0.22 * rows + 0.9))
    for i, j in np.argwhere(tree.ancestors):
        fill, hatch = ("#0072B2", "") if i == j else ("#BFE3F5", "///")
        axes.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="#404040", linewidth=0.5, hatch=hatch))
    places = np.arange(rows) + 0.5
    axes.set_yticks(places, [f"{label(name)}  {i}" for i, name in enumerate(names)], fontsize=7, parse_math=False)
    axes.set_xticks(places, range(rows), fontsize=7)
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set(xlim=(0, rows), ylim=(rows, 0), aspect="equal", xlabel="row that is seen", ylabel="row that sees")
    axes.tick_params(length=0)
    axes.grid(color="#EEEEEE")
    handles = [
        Rectangle((0, 0), 1, 1, facecolor="#0072B2", edgecolor="#404040", label="itself"),
        Rectangle((0, 0), 1, 1, facecolor="#BFE3F5", edgecolor="#404040", hatch="///", label="on its path"),
    ]
    fig.legend(handles=handles, loc="outside right upper", fontsize=8)
    return fig


def tree_svg(tree: DraftTree, names: Sequence[str], row: int) -> str:
    """The tree as SVG, the path to ``row`` filled."""
    _check(tree, row)
    places, path, parts = layout(tree), set(tree.path_to(row)), []
    left, top = places[:, 0] * _PITCH + 2, places[:, 1] * _LINE + 2
    for i in range(1, len(tree.tokens)):
        parent, marked = int(tree.parents[i]), i in path
        stroke = f'stroke="{_CHOSEN}" stroke-width="2.4"' if marked else 'stroke="#9A9A9A" stroke-width="1"'
        x0, y0, x1, y1 = left[parent] + _WIDE, top[parent] + _HIGH / 2, left[i], top[i] + _HIGH / 2
        parts.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" fill="none" {stroke}/>')
    for i, name in enumerate(names):
        fill, (edge, thick) = _PATH if i in path else "#FFFFFF", (_CHOSEN, 2.4) if i == row else ("#404040", 0.8)
        parts.append(markup.rect(left[i], top[i], _WIDE, _HIGH, fill, edge, thick, 'rx="3"'))
        parts.append(markup.words(left[i] + 5, top[i] + 15, f"{i}", 9.5, fill="#555555"))
        parts.append(markup.words(left[i] + 22, top[i] + 15, label(name), 12))
    width, height = tree.depths.max() * _PITCH + _WIDE + 4, places[:, 1].max() * _LINE + _HIGH + 4
    return markup.svg(width, height, parts)


def mask_svg(tree: DraftTree, row: int) -> str:
    """The mask as SVG: a line for each row that sees, a column for each that is seen; the line of ``row`` framed."""
    _check(tree, row)
    rows, parts, margin = len(tree.tokens), [], 22
    for i, j in np.argwhere(tree.ancestors):
        fill = _CHOSEN if i == row == j else _PATH if i == row else "#7F7F7F" if i == j else _SEES
        parts.append(markup.rect(margin + j * _CELL, margin + i * _CELL, _CELL, _CELL, fill))
    for i in range(rows):
        middle = margin + i * _CELL + _CELL / 2
        parts.append(markup.words(margin - 5, middle + 3.5, f"{i}", 9.5, "end", "#333333"))
        parts.append(markup.words(middle, margin - 6, f"{i}", 9.5, "middle", "#333333"))
    size = rows * _CELL
    parts.append(markup.rect(margin, margin, size, size, "none", thick=1))
    parts.append(markup.rect(margin, margin + row * _CELL, size, _CELL, "none", _CHOSEN, 2.4))
    return markup.svg(margin + size + 3, margin + size + 3, parts)


def _check(tree: DraftTree, row: int) -> None:
    if not 0 <= row < len(tree.tokens):
        raise ValueError(f"the tree has rows 0 ... {len(tree.tokens) - 1}; got {row}")
