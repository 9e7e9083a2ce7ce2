"""Lookahead decoding step by step: the window, what the forward made of it, the pool, the candidates, and the mask.

A `Frame` holds what one step saw and did; the chapter fills it from its own functions, so that nothing here runs a
model. Rows of a forward are in the order of the paper's Figure 2(b) (arXiv:2402.02057): the window level by level,
oldest first, the current input token being its first row, then one candidate after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from ..core.tree import DraftTree
from . import markup
from .fallback import show, stepped
from .markup import label

# Fill and border of the levels, oldest first, over again where they run out: orange, green, red as in the paper's
# Figure 2(b), and one more. Then of the input token, blue there, of what is new, and of candidates.
LEVELS = (("#F9E3C0", "solid"), ("#DDF1E8", "dashed"), ("#F7D3CB", "dotted"), ("#E9DDF0", "double"))
_INPUT, _NEW, _CANDIDATE = "#BFE0F5", "#F0E442", "#EEEEEE"
_HATCHES = ("", "...", "///", "xxx")
_CELL = f"padding:2px 6px;text-align:center;white-space:pre;{markup.MONO}"
_TABLE = "border-collapse:separate;border-spacing:3px;font-size:12px"


@dataclass(frozen=True)
class Frame:
    """One step of lookahead decoding.

    Attributes:
        levels: the window as the forward read it, oldest level first; equally long, ``levels[0][0]`` being the
            current input token. N - 1 levels once it is full.
        candidates: what was checked: the tokens of each n-gram behind its first.
        made: the target's choice at each column of the newest level.
        grams: the n-grams that went to the pool.
        emitted: the tokens written by the step, the last of them the target's own.
        pool: after the step: first token -> the n-grams without it, most recent last.
    """

    levels: tuple[tuple[int, ...], ...]
    candidates: tuple[tuple[int, ...], ...]
    made: tuple[int, ...]
    grams: tuple[tuple[int, ...], ...]
    emitted: tuple[int, ...]
    pool: Mapping[int, Sequence[tuple[int, ...]]] = field(default_factory=dict)

    @property
    def parents(self) -> list[int]:
        """The row before each row in the text that it continues; -1 for the first."""
        width = len(self.levels[0])
        found = [*range(-1, width - 1), *range(width * (len(self.levels) - 1))]
        for candidate in self.candidates:
            found += [0, *range(len(found), len(found) + len(candidate) - 1)] if candidate else []
        return found

    @property
    def tokens(self) -> list[int]:
        """The token of each row."""
        return [token for part in (*self.levels, *self.candidates) for token in part]

    @property
    def groups(self) -> list[int]:
        """The level of each row; candidates go on counting."""
        return [i for i, part in enumerate((*self.levels, *self.candidates)) for _ in part]

    @property
    def tree(self) -> DraftTree:
        """All rows; its ``ancestors`` are the mask and its ``depths`` the positions.

        Example:
            >>> Frame(((1, 2), (3, 4)), ((5, 6),), (), (), ()).tree.depths.tolist()
            [0, 1, 1, 2, 1, 2]
        """
        return DraftTree(self.tokens, self.parents)

    @property
    def winner(self) -> int | None:
        """The candidate with the most accepted tokens; None if no candidate had any."""
        k = len(self.emitted) - 1
        fits = [g for g, one in enumerate(self.candidates) if k and one[:k] == self.emitted[:k]]
        return fits[0] if fits else None


def draw_mask(frame: Frame, decode: Callable[[int], str] | None = None) -> Any:
    """The mask as a figure of matplotlib: a filled cell where the row's token sees the column's.

    Args:
        frame: the step.
        decode: the text of a token, written at the rows beside the position; positions alone if None.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    tree, groups = frame.tree, frame.groups
    sees, rows, full = tree.ancestors, len(groups), len(frame.levels)
    fig, axes = plt.subplots(figsize=(0.24 * rows + 2.2, 0.24 * rows + 1.0))
    for i, j in np.argwhere(np.ones_like(sees)):
        look = {"facecolor": "#FFFFFF", "edgecolor": "#DDDDDD", "linewidth": 0.5}
        if sees[i, j]:
            fill, hatch = _fill(groups[j], full, j == 0)
            look = {"facecolor": fill, "edgecolor": "#404040", "linewidth": 0.6, "hatch": hatch}
        axes.add_patch(Rectangle((j, i), 1, 1, **look))
    for edge in np.flatnonzero(np.diff(groups)) + 1:
        axes.axhline(edge, color="black", linewidth=1.0)
        axes.axvline(edge, color="black", linewidth=1.0)
    names = [str(depth) for depth in tree.depths]
    axes.set_xticks(np.arange(rows) + 0.5, names, fontsize=7)
    if decode is not None:
        names = [f"{label(decode(token))}  {name}" for token, name in zip(frame.tokens, names, strict=True)]
    axes.set_yticks(np.arange(rows) + 0.5, names, fontsize=7)
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set(xlim=(0, rows), ylim=(rows, 0), aspect="equal", xlabel="position of the token that is seen")
    axes.set_ylabel("position of the token that sees")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    looks = {"input token": _fill(0, full, True)} | {f"level {i}": _fill(i, full) for i in range(full)}
    looks |= {"candidates": _fill(full, full)} if frame.candidates else {}
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=fill, edgecolor="#404040", hatch=hatch, label=name)
        for name, (fill, hatch) in looks.items()
    ]
    fig.legend(handles=handles, loc="outside right upper", fontsize=8, title="what is seen")
    return fig


def page(frames: Sequence[Frame], t: int, decode: Callable[[int], str], written: bool = True) -> str:
    """Step t (1 ... number of steps) as HTML: text, window, candidates, new n-grams, and the mask.

    Raises:
        ValueError: for a step that the run does not have.
    """
    if not 1 <= t <= len(frames):
        raise ValueError(f"the run has steps 1 ... {len(frames)}; got {t}")
    frame = frames[t - 1]
    text = "".join(decode(token) for one in frames[: t - 1] for token in one.emitted)
    new = "".join(decode(token) for token in frame.emitted).replace("\n", "↵\n")  # a mark on a line break alone is lost
    parts = [f"<b>{escape(words(frames, t))}</b>"]
    if written:
        marked = f'{escape(text)}<u style="background:#BFE3F5">{escape(new)}</u>'
        border = "text-align:left;border:1px solid #CCCCCC;white-space:pre-wrap"
        parts.append(f'<div style="{_CELL};{border}">{marked}</div>')
    window = _window(frame, decode)
    side = f'<div style="max-width:230px">{_candidates(frame, decode)}</div>'
    parts.append(f'<div style="display:flex;flex-wrap:wrap;gap:18px">{window}{side}{mask_image(frame)}</div>')
    if frame.grams:
        grams = " &nbsp; ".join(_gram(gram, decode) for gram in frame.grams)
        parts.append(f"<div>To the pool, column by column: {grams}</div>")
    count = sum(map(len, frame.pool.values()))
    parts.append(f"<div>N-grams in the pool after this step: {count}, under {len(frame.pool)} first tokens.</div>")
    return f'<div style="{markup.SMALL};max-width:860px">{"".join(parts)}</div>'


def words(frames: Sequence[Frame], t: int) -> str:
    """Step t in one line.

    Example:
        >>> frame = Frame(((1, 2), (3, 4)), ((5, 6), (5, 7)), (8, 9), ((1, 3, 8), (2, 4, 9)), (5, 7, 2))
        >>> words([frame], 1)
        'Step 1: 8 rows, 4 of them window; 2 candidates, 2 tokens accepted; 3 written. 3 tokens in 1 forward so far.'
    """
    frame = frames[t - 1]
    total, took = sum(len(one.emitted) for one in frames[:t]), len(frame.emitted) - 1
    window, given = sum(map(len, frame.levels)), len(frame.candidates)
    checked = f"{given} candidate{'s' * (given != 1)}, {took} token{'s' * (took != 1)} accepted"
    return (
        f"Step {t}: {len(frame.tokens)} rows, {window} of them window; {checked if given else 'no candidate'}; "
        f"{len(frame.emitted)} written. "
        f"{total} token{'s' * (total != 1)} in {t} forward{'s' * (t != 1)} so far."
    )


def mask_image(frame: Frame, cell: int = 9) -> str:
    """The mask as an ``<img>`` element that needs no file."""
    sees, groups, full = frame.tree.ancestors, frame.groups, len(frame.levels)
    size, parts = len(groups) * cell, []
    for i, j in np.argwhere(sees):
        parts.append(markup.rect(j * cell, i * cell, cell, cell, _fill(groups[j], full, j == 0)[0]))
    for edge in (np.flatnonzero(np.diff(groups)) + 1) * cell:
        parts.append(f'<path d="M0 {edge}H{size}M{edge} 0V{size}" stroke="#7F7F7F" stroke-width="0.7"/>')
    parts.append(f'<path d="M0 0H{size}V{size}H0z" fill="none" stroke="#404040"/>')
    alt = f"Mask of {len(groups)} rows: a cell is filled where the row's token sees the column's."
    return f"<div>The mask:<br>{markup.image(markup.svg(size, size, parts), alt)}</div>"


def player(frames: Sequence[Frame], decode: Callable[[int], str], static: Sequence[int] = ()) -> None:
    """Show the steps one after another; without a kernel, the steps ``static`` (1, 2, ...), or the first four.

    Raises:
        ValueError: for a run without steps.
    """
    if not frames:
        raise ValueError("there is nothing to show: the run has no steps")
    count = len(frames)
    pages = markup.RULE.join(page(frames, t, decode) for t in static or range(1, min(4, count) + 1))
    widget = stepped(lambda t: page(frames, t, decode), "step", 1, count, 1, interval=900)
    show(widget, pages, f"Lookahead decoding in {count} steps")


def _fill(group: int, full: int, first: bool = False) -> tuple[str, str]:
    if first:
        return _INPUT, "+"
    if group >= full:
        return _CANDIDATE, "\\\\\\"
    return LEVELS[group % len(LEVELS)][0], _HATCHES[group % len(_HATCHES)]


def _window(frame: Frame, decode: Callable[[int], str]) -> str:
    """Rows are levels, columns are columns; under them what the forward made."""
    lines = []
    for j, level in enumerate(frame.levels):
        fill, border = LEVELS[j % len(LEVELS)]
        looks = [(fill, border, i + j, f"level {j}, column {i}") for i in range(len(level))]
        if j == 0:
            looks[0] = (_INPUT, border, 0, "input token")
        cells = "".join(_td(decode(token), *look) for token, look in zip(level, looks, strict=True))
        age = "oldest" if j == 0 else "newest" if j == len(frame.levels) - 1 else ""
        lines.append(f'<tr><th style="font-weight:normal;text-align:left">level {j} {age}</th>{cells}</tr>')
    made = "".join(_td(decode(token), _NEW, "solid", i, "new") for i, token in enumerate(frame.made, len(frame.levels)))
    lines.append(f'<tr><th style="font-weight:normal;text-align:left">new</th>{made}</tr>')
    head = "The window, with positions relative to the input token:"
    return f'<div>{head}<table style="{_TABLE}">{"".join(lines)}</table></div>'


def _candidates(frame: Frame, decode: Callable[[int], str]) -> str:
    root, k = frame.levels[0][0], len(frame.emitted) - 1
    if not frame.candidates:
        return f"No n-gram of the pool begins with <code>{escape(label(decode(root)))}</code>: an ordinary step."
    lines = []
    for g, candidate in enumerate(frame.candidates):
        cells = []
        for d, token in enumerate(candidate):
            title, look = "not accepted", f"background:{_CANDIDATE};color:#555555"
            if g == frame.winner and d < k:
                title, look = "accepted", "background:#BFE3F5;border-bottom:3px solid #0072B2"
            cells.append(f'<td title="{title}" style="{_CELL};{look}">{escape(label(decode(token)))}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    own = escape(label(decode(frame.emitted[-1])))
    return (
        f"Candidates after <code>{escape(label(decode(root)))}</code>, what was accepted underlined:"
        f'<table style="{_TABLE}">{"".join(lines)}</table>'
        f"Then the target's own token: <code>{own}</code>"
    )


def _td(text: str, fill: str, border: str, position: int, title: str) -> str:
    return (
        f'<td title="{title}" style="{_CELL};background:{fill};border:1.5px {border} #404040">'
        f"{escape(label(text))}<sub>{position}</sub></td>"
    )


def _gram(gram: Sequence[int], decode: Callable[[int], str]) -> str:
    text = escape(" ".join(label(decode(token)) for token in gram))
    return f'<code style="border:1px solid #CCCCCC;padding:1px 4px">{text}</code>'
