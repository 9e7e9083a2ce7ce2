"""A Jacobi trajectory as a heat map, round by round: what is settled, right too early, lost again, or out of place.

Every cell is one token of one round. The answer is known when the picture is drawn, so each token can be called
what it is; the decoder itself knows of the settled ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from . import markup
from .fallback import show, stepped
from .markup import label

# kind: (what the legend says, fill, edge, edge width, hatch, mark). The marks alone still tell the kinds apart.
LOOKS = {
    "settled": ("settled: it and all to its left are right", "#BFE3F5", "#0072B2", 1.6, "", ""),
    "early": ("right ahead of its turn, and again in the next round", "#DDF1E8", "#009E73", 1.6, "", "+"),
    "lost": ("right ahead of its turn, wrong in the next round", "#F7D9C4", "#D55E00", 1.6, "", "−"),
    "misplaced": ("a piece of the answer at another place", "#FFFFFF", "#7F7F7F", 1.0, "////", "~"),
    "wrong": ("wrong", "#FFFFFF", "#CCCCCC", 0.6, "", ""),
}
_CELL = f"padding:2px 4px;text-align:center;white-space:pre;{markup.MONO}"


def settled(y: Sequence[int], answer: Sequence[int]) -> int:
    """How many tokens from the left are right.

    Example:
        >>> settled([1, 2, 9, 4], [1, 2, 3, 4])
        2
    """
    return next((i for i, (a, b) in enumerate(zip(y, answer, strict=True)) if a != b), len(answer))


def kinds(rounds: Sequence[Sequence[int]], answer: Sequence[int]) -> list[list[str]]:
    """What each token of each round is: a key of `LOOKS`.

    A token is *misplaced* if it is wrong, but it and a neighbor of its round follow each other somewhere in the
    answer. Single tokens do not count: a comma stands in nearly every answer.

    Args:
        rounds: the guess and what each round made of it, (m,) token ids each, in order.
        answer: (m,) the solution.

    Raises:
        ValueError: if a round is not as long as the answer.

    Example:
        >>> kinds([[5, 2, 3], [1, 2, 9], [1, 2, 3]], [1, 2, 3])[:2]
        [['wrong', 'early', 'lost'], ['settled', 'settled', 'wrong']]
        >>> kinds([[2, 3, 9]], [1, 2, 3])
        [['misplaced', 'misplaced', 'wrong']]
    """
    if any(len(y) != len(answer) for y in rounds):
        lengths = [len(y) for y in rounds]
        raise ValueError(f"every round has as many tokens as the answer, {len(answer)}; got lengths {lengths}")
    pairs, found = set(zip(answer, answer[1:], strict=False)), []
    for t, y in enumerate(rounds):
        after, done = rounds[min(t + 1, len(rounds) - 1)], settled(y, answer)
        row = ["settled"] * done
        for i in range(done, len(y)):
            if y[i] == answer[i]:
                row.append("early" if after[i] == answer[i] else "lost")
            else:
                near = {(y[j], y[j + 1]) for j in (i - 1, i) if 0 <= j < len(y) - 1}
                row.append("misplaced" if near & pairs else "wrong")
        found.append(row)
    return found


def draw(rounds: Sequence[Sequence[int]], answer: Sequence[int], decode: Callable[[int], str]) -> Any:
    """The heat map as a figure of matplotlib: rounds are rows, places are columns, tokens stand in the cells."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    names = ("facecolor", "edgecolor", "linewidth", "hatch")
    looks = {kind: dict(zip(names, (*look[1:4], look[4][:3]), strict=True)) for kind, look in LOOKS.items()}
    m, count = len(answer), len(rounds)
    fig, axes = plt.subplots(figsize=(max(5.0, 0.56 * m + 0.9), 0.27 * count + 1.3))
    for t, row in enumerate(kinds(rounds, answer)):
        for i, kind in enumerate(row):
            alpha = 0.55 if kind == "misplaced" else 1.0
            axes.add_patch(Rectangle((i + 0.04, t + 0.06), 0.92, 0.88, alpha=alpha, **looks[kind]))
            text = label(decode(rounds[t][i])) + LOOKS[kind][5]
            weight = "bold" if kind == "settled" else "normal"
            font = {"color": "#777777" if kind == "wrong" else "#000000", "fontsize": 6.3, "fontweight": weight}
            axes.text(i + 0.5, t + 0.5, text, ha="center", va="center", parse_math=False, **font)
    axes.set(xlim=(0, m), ylim=(count, 0), xlabel="place in the answer", ylabel="round")
    axes.set_xticks([i + 0.5 for i in range(m)], range(1, m + 1), fontsize=7)
    axes.set_yticks([t + 0.5 for t in range(count)], range(count), fontsize=7)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, label=f"{LOOKS[kind][0]}  {LOOKS[kind][5]}", **looks[kind]) for kind in LOOKS]
    fig.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=8)
    return fig


def page(
    rounds: Sequence[Sequence[int]], answer: Sequence[int], decode: Callable[[int], str], upto: int | None = None
) -> str:
    """The rounds 0 ... ``upto`` as an HTML table, newest last, and the last one in words.

    Raises:
        ValueError: for a round that the trajectory does not have.
    """
    upto = len(rounds) - 1 if upto is None else upto
    if not 0 <= upto < len(rounds):
        raise ValueError(f"the trajectory has rounds 0 ... {len(rounds) - 1}; got {upto}")
    marked = kinds(rounds, answer)
    th = f'<th style="{_CELL};font-weight:normal">'
    lines = [f"<tr>{th}round</th>{''.join(f'{th}{i + 1}</th>' for i in range(len(answer)))}</tr>"]
    for t in range(upto + 1):
        cells = "".join(_cell(decode(token), kind) for token, kind in zip(rounds[t], marked[t], strict=True))
        lines.append(f"<tr>{th}{t}</th>{cells}</tr>")
    used = {kind: look for kind, look in LOOKS.items() if any(kind in row for row in marked[: upto + 1])}
    marks = [f'<span style="{_style(kind)};padding:1px 4px">{look[0]} {look[5]}</span>' for kind, look in used.items()]
    table = f'<table style="border-collapse:separate;border-spacing:2px;font-size:12px">{"".join(lines)}</table>'
    return (
        f'<div style="{markup.SMALL};max-width:900px;overflow-x:auto"><b>{escape(words(rounds, answer, upto))}</b>'
        f'{table}<div style="line-height:2">{" &nbsp; ".join(marks)}</div></div>'
    )


def words(rounds: Sequence[Sequence[int]], answer: Sequence[int], t: int) -> str:
    """Round t in words.

    Example:
        >>> words([[5, 2, 9], [1, 9, 3], [1, 2, 9], [1, 2, 3]], [1, 2, 3], 1)
        'Round 1: 1 of 3 tokens settled, 1 more right ahead of its turn, of which 1 will be lost in the next round.'
    """
    row = kinds(rounds, answer)[t]
    done, early, lost = (row.count(kind) for kind in ("settled", "early", "lost"))
    heading = f"Round {t}: {done} of {len(row)} tokens settled"
    if early + lost:
        heading += f", {early + lost} more right ahead of {'its' if early + lost == 1 else 'their'} turn"
    return heading + (f", of which {lost} will be lost in the next round." if lost else ".")


def player(rounds: Sequence[Sequence[int]], answer: Sequence[int], decode: Callable[[int], str]) -> None:
    """Show the rounds one after another; without a kernel, all of them."""
    last = len(rounds) - 1
    widget = stepped(lambda t: page(rounds, answer, decode, t), "round", 0, last, min(1, last), interval=700)
    show(widget, page(rounds, answer, decode), f"A Jacobi trajectory of {last} rounds")


def _style(kind: str) -> str:
    _, fill, edge, width, hatch, _ = LOOKS[kind]
    line = "dashed" if hatch else "solid"
    text = "color:#777777" if kind == "wrong" else "color:#000000"
    return f"background:{fill};border:{width}px {line} {edge};{text}"


def _cell(text: str, kind: str) -> str:
    bold = "font-weight:bold" if kind == "settled" else "font-weight:normal"
    return f'<td title="{kind}" style="{_CELL};{_style(kind)};{bold}">{escape(label(text))}{LOOKS[kind][5]}</td>'
