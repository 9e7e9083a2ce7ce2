"""A dynamic draft tree while it grows: drafted layer by layer, ranked as a whole, cut, and checked by the target.

A picture is one stage of the growth. It shows every node with its token and its value, the product of the drafter's
probabilities from the root down to it (EAGLE-2, arXiv:2406.16858, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from . import markup
from .fallback import show, stepped

# kind: (what the legend says, fill, edge, edge width, dashes, mark). The marks alone still tell the kinds apart.
LOOKS = {
    "drafted": ("drafted", "#FFFFFF", "#7F7F7F", 0.8, "", ""),
    "read": ("chosen: its children are drafted next", "#FBE3B5", "#A86C00", 2.0, "", "»"),
    "kept": ("kept: goes into the target's forward", "#BFE3F5", "#0072B2", 2.0, "", "•"),
    "dropped": ("dropped", "#FFFFFF", "#BBBBBB", 0.8, "3 2", ""),
    "accepted": ("accepted by the target", "#CDEBDD", "#007A55", 2.6, "", "✓"),
}
_BOX, _TALL, _GAP, _PITCH, _TOP, _LEFT = 118, 19, 4, 158, 26, 8  # pixels


@dataclass(frozen=True)
class Growth:
    """What was drafted, in the order of drafting, and what became of it.

    Attributes:
        tokens: (M,) node 0 is the root.
        parents: (M,) -1 for the root, an earlier node elsewhere.
        values: (M,) the drafter's probability of each node's path; the root's is 1.
        rounds: for each round the nodes whose children were drafted in it; the first is ``(0,)``.
        kept: nodes besides the root that the target is to check.
        accepted: those of ``kept`` that it accepted; empty where it was not asked.

    Raises:
        ValueError: if the arrays differ in length, a parent does not come before its child, a node is worth more than
            its parent, or a node is kept whose parent is not.

    Example:
        >>> growth = Growth((7, 1, 2, 3), (-1, 0, 0, 1), (1.0, 0.6, 0.3, 0.3), ((0,), (1,)), (1, 3))
        >>> growth.depths, growth.born
        ((0, 1, 1, 2), (0, 1, 1, 2))
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    values: Sequence[float]
    rounds: Sequence[Sequence[int]]
    kept: Sequence[int]
    accepted: Sequence[int] = ()

    def __post_init__(self):
        if len(set(lengths := [len(self.tokens), len(self.parents), len(self.values)])) > 1:
            raise ValueError(f"tokens, parents and values have one length; got {', '.join(map(str, lengths))}")
        if self.parents[0] != -1 or not all(0 <= parent < i for i, parent in enumerate(self.parents) if i):
            raise ValueError(f"parents are -1 and then an earlier node each; got {list(self.parents)}")
        if rich := [i for i, parent in enumerate(self.parents) if i and self.values[i] > self.values[parent]]:
            raise ValueError(f"a path is never likelier than its beginning; {rich} are worth more than their parents")
        if orphans := [i for i in self.kept if self.parents[i] and self.parents[i] not in self.kept]:
            raise ValueError(f"kept nodes hang from the root or from kept nodes; {orphans} do not")

    @classmethod
    def of(cls, growth: Any, path: Sequence[int] = ()) -> Growth:
        """What `drafters.EAGLE.growth` records, and the rows the target accepted (`Verdict.path`)."""
        values = [float(np.exp(log)) for log in growth.values]
        accepted = [growth.kept[row - 1] for row in path if row]
        return cls(growth.tokens, growth.parents, values, ((0,), *growth.read), growth.kept, accepted)

    @property
    def depths(self) -> tuple[int, ...]:
        found: list[int] = []
        for parent in self.parents:
            found.append(found[parent] + 1 if parent >= 0 else 0)
        return tuple(found)

    @property
    def born(self) -> tuple[int, ...]:
        """(M,) the round, counted from 1, in which each node was drafted; 0 for the root."""
        when = {node: number for number, nodes in enumerate(self.rounds, 1) for node in nodes}
        return tuple(when[parent] if parent >= 0 else 0 for parent in self.parents)


def stages(growth: Growth) -> list[tuple[str, int]]:
    """The stages as (what happens, number of the round): each round drafts and chooses; then the cut, then the check.

    Example:
        >>> stages(Growth((7, 1, 2), (-1, 0, 1), (1.0, 0.6, 0.3), ((0,), (1,)), (1, 2), (1,)))
        [('draft', 1), ('choose', 1), ('draft', 2), ('rerank', 2), ('verify', 2)]
    """
    last = len(growth.rounds)
    found = [(what, number) for number in range(1, last) for what in ("draft", "choose")]
    return [*found, ("draft", last), ("rerank", last), *([("verify", last)] if growth.accepted else [])]


def kinds(growth: Growth, stage: int) -> list[str]:
    """(M,) what each node is at a stage: a key of `LOOKS`, or "" for one that is not drafted yet.

    Example:
        >>> growth = Growth((7, 1, 2, 3), (-1, 0, 0, 1), (1.0, 0.6, 0.3, 0.3), ((0,), (1,)), (1,))
        >>> [kinds(growth, stage)[1:] for stage in (0, 1, 3)]
        [['drafted', 'drafted', ''], ['read', 'drafted', ''], ['kept', 'dropped', 'dropped']]
    """
    what, number = stages(growth)[stage]
    if what in ("rerank", "verify"):
        kept, accepted = set(growth.kept), set(growth.accepted if what == "verify" else ())
        every = range(len(growth.tokens))
        return ["accepted" if i in accepted else "kept" if i in kept or i == 0 else "dropped" for i in every]
    read = {node for nodes in growth.rounds[: number + (what == "choose")] for node in nodes}
    return ["" if born > number else "read" if i in read else "drafted" for i, born in enumerate(growth.born)]


def words(growth: Growth, stage: int, decode: Callable[[int], str]) -> str:
    """A stage in words."""
    what, number = stages(growth)[stage]
    values, born = growth.values, growth.born
    if what == "draft":
        fresh, among = sum(b == number for b in born), len(growth.rounds[number - 1])
        behind = "the root" if number == 1 else f"{among} node{'s' * (among != 1)}, all in one forward of the module"
        return f"Round {number}: {fresh} tokens are drafted behind {behind}."
    if what == "choose":
        best = growth.rounds[number]
        low = min(values[i] for i in best)
        continued = f"the {len(best)} most valuable nodes will be continued; the least of them is worth {low:.3f}."
        return f"Round {number}: of what was drafted in it, {continued}"
    if what == "rerank":
        total, expected = len(growth.tokens) - 1, 1 + sum(values[i] for i in growth.kept)
        kept = f"of {total} drafted tokens the {len(growth.kept)} most valuable are kept"
        value = f"1 + the sum of their values = {expected:.2f}: the tokens that this step should yield"
        return f"All layers together: {kept}. {value}."
    text, count = "".join(decode(growth.tokens[i]) for i in sorted(growth.accepted)), len(growth.accepted)
    return f"The target accepts {count} of them, {text!r}, and adds one token of its own: {count + 1} tokens."


def places(growth: Growth) -> list[tuple[int, float]]:
    """(column, line) of each node: depths are columns, children stand together and in the order of their parents."""
    depths, columns, lines = growth.depths, {}, [0.0] * len(growth.tokens)
    for depth in range(max(depths) + 1):
        nodes = [i for i, d in enumerate(depths) if d == depth]
        for line, node in enumerate(sorted(nodes, key=lambda i: (lines[growth.parents[i]] if i else 0.0, i))):
            lines[node] = float(line)
        columns[depth] = len(nodes)
    tallest = max(columns.values())
    return [(depth, line + (tallest - columns[depth]) / 2) for depth, line in zip(depths, lines, strict=True)]


def picture(growth: Growth, stage: int, decode: Callable[[int], str]) -> str:
    """A stage as SVG text."""
    marked, at, values = kinds(growth, stage), places(growth), growth.values
    spots = [(_LEFT + column * _PITCH, _TOP + line * (_TALL + _GAP)) for column, line in at]
    depth, tall = max(column for column, _ in at), max(line for _, line in at) + 1
    heads = ["root", *(f"depth {d}" for d in range(1, depth + 1))]
    edges, boxes = [], [markup.words(_LEFT + d * _PITCH, 15, head, 12) for d, head in enumerate(heads)]
    for i, kind in enumerate(marked):
        if not kind:
            continue
        x, y = spots[i]
        if i:
            px, py = spots[growth.parents[i]]
            color, thick = ("#333333", 1.6) if kind in ("kept", "accepted") else ("#BBBBBB", 0.8)
            line = f"M{px + _BOX} {py + _TALL / 2:.1f}L{x} {y + _TALL / 2:.1f}"
            edges.append(f'<path d="{line}" fill="none" stroke="{color}" stroke-width="{thick}"/>')
        boxes.append(_box(x, y, markup.label(decode(growth.tokens[i]), 9), f"{values[i]:.3f}" if i else "", kind))
    width, height = _LEFT * 2 + depth * _PITCH + _BOX, _TOP + tall * (_TALL + _GAP) + 6
    return markup.svg(width, height, edges + boxes)


def page(growth: Growth, stage: int, decode: Callable[[int], str]) -> str:
    """Words, picture and legend of a stage as HTML that needs no file.

    Raises:
        ValueError: for a stage that the growth does not have.
    """
    count = len(stages(growth))
    if not 0 <= stage < count:
        raise ValueError(f"the growth has stages 0 ... {count - 1}; got {stage}")
    heading = words(growth, stage, decode)
    used = [LOOKS[kind] for kind in LOOKS if kind in kinds(growth, stage)]
    legend = " &nbsp; ".join(
        f'<span style="background:{fill};border:{width}px {"dashed" if dashes else "solid"} {edge};padding:1px 5px;'
        f'color:#1A1A1A">{what} {mark}</span>'
        for what, fill, edge, width, dashes, mark in used
    )
    return (
        f'<div style="{markup.SMALL};overflow-x:auto"><p><b>{escape(heading)}</b></p>'
        f'{markup.image(picture(growth, stage, decode), heading)}<div style="line-height:2.2">{legend}</div></div>'
    )


def player(growth: Growth, decode: Callable[[int], str]) -> None:
    """Show the growth with a slider over its stages; without a kernel, the first round and all from the cut on."""
    names = stages(growth)
    last = len(names) - 1
    still = [i for i, (what, number) in enumerate(names) if (what, number) == ("choose", 1) or what != "draft"]
    still = sorted({*(i for i in still if names[i][1] in (1, names[-1][1])), *([0] if last == 0 else [])})
    static = "".join(f"<h4>Stage {i} of {last}</h4>{page(growth, i, decode)}" for i in still)
    widget = stepped(lambda stage: page(growth, stage, decode), "stage", 0, last, 0, interval=1500)
    kept = f"A dynamic draft tree of {len(growth.tokens) - 1} nodes, of which {len(growth.kept)} are kept"
    show(widget, static, kept)


def _box(x: float, y: float, text: str, value: str, kind: str) -> str:
    _, fill, edge, width, dashes, mark = LOOKS[kind]
    color = "#767676" if kind == "dropped" else "#000000"
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    box = markup.rect(x, y, _BOX, _TALL, fill, edge, width, f'rx="3"{dash}')
    name = markup.words(x + 4, y + 13.5, f"{text} {mark}".strip(), 11, fill=color)
    return box + name + markup.words(x + _BOX - 4, y + 13.5, value, 11, "end", color)
