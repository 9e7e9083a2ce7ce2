"""The memory of suffix decoding on the reader's own text: what is counted, which match wins, and the draft it proposes.

No model takes part. The text is read token by token, as far as the slider says, and the drafter itself
(`drafters.SuffixDecoding`) is asked for its draft there; this file only draws what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..core.contract import Budget
from ..core.rng import Rng
from ..drafters import SuffixDecoding
from ..model.chat import Tokenizer
from ..stores.suffix_tree import as_text
from . import markup
from .fallback import live, show
from .matcher import LOOKS, Split, splitters

PAST = "open the door, take the red key, close the door.\nopen the box, take the red key, close the box."
NOW = "open the window, take the red key, close the window. open the chest, take the"
_SMALL = f"{markup.SMALL};max-width:760px"
_BOX = f"{markup.BOX};white-space:pre-wrap"
_CELL = "padding:1px 10px;text-align:left;border:none;background:transparent;vertical-align:top"
_BRANCHES = 14  # lines of the tree that are shown
_EARLY = 9  # tokens read on the first of the two static pages: nothing of this request repeats yet


@dataclass(frozen=True)
class Node:
    """A drafted token: its parent's row (0 is the root), its count, and the product of the shares down to it."""

    token: str
    parent: int
    count: int
    probability: float


def read(past: Sequence[str], now: str, nodes: int, depth: int, factor: float) -> tuple[SuffixDecoding, list[Node]]:
    """The drafter after the answers ``past`` and the text ``now``, and its draft.

    Args:
        past, now: tokens as characters, see `suffix_tree.as_text`; ``now`` has at least one.
        nodes, depth, factor: as for `SuffixDecoding`.

    Example:
        >>> drafter, draft = read(["abcx"], "abcyabcyabc", nodes=2, depth=8, factor=1.0)
        >>> drafter.source, drafter.match_len, [(node.token, node.probability) for node in draft]
        ('this request', 6, [('y', 1.0), ('a', 1.0)])
    """
    drafter = SuffixDecoding(nodes=nodes, depth=depth, factor=factor)
    for text in past:
        drafter.past.add(text)
    ids = [ord(char) for char in now]
    drafter.reset(ids)
    tree = drafter.propose(ids, Budget(nodes, depth), Rng(0))
    memory = drafter.past if drafter.source == "past requests" else drafter.local
    paths, draft, chances = [now[len(now) - drafter.match_len :]], [], [1.0]
    for token, parent in zip(tree.tokens[1:].tolist(), tree.parents[1:].tolist(), strict=True):
        followers = memory.followers(memory.find(paths[parent]))
        count = followers[chr(token)]
        chances.append(chances[parent] * count / sum(followers.values()))
        paths.append(paths[parent] + chr(token))
        draft.append(Node(chr(token), parent, count, chances[-1]))
    return drafter, draft


def branches(memory: Any, start: str) -> list[tuple[int, str, int]]:
    """The counted tree below ``start``: (level, label, count), a new line only where a count changes.

    Example:
        >>> from ..stores.suffix_memory import GrowingText
        >>> text = GrowingText(depth=4)
        >>> for char in "abcdabceabc":
        ...     text.append(char)
        >>> branches(text, "a")
        [(0, 'bc', 3), (1, 'd', 1), (1, 'e', 1)]
    """
    found: list[tuple[int, str, int]] = []

    def walk(prefix: str, level: int) -> None:
        place = memory.find(prefix)
        followers = memory.followers(place) if place else {}
        for char, count in sorted(followers.items(), key=lambda item: (-item[1], item[0])):
            label = char
            while len(prefix + label) < memory.depth:
                after = memory.followers(memory.find(prefix + label))
                if len(after) != 1 or memory.count(prefix + label + next(iter(after))) != count:
                    break
                label += next(iter(after))
            found.append((level, label, count))
            if len(prefix + label) < memory.depth:
                walk(prefix + label, level + 1)

    walk(start, 0)
    return found


def page(
    past: Sequence[Split],
    now: Split,
    *,
    nodes: int = 8,
    depth: int = 12,
    factor: float = 1.0,
    tokens: int | None = None,
) -> str:
    """Counts, match and draft as HTML.

    Args:
        past, now: answers of the past and the request, each as a splitter of `matcher.splitters` gives it.
        nodes, depth, factor: as for `SuffixDecoding`.
        tokens: read only this many tokens of ``now``; None for all of them.
    """
    keys, shown = now
    tokens = len(keys) if tokens is None else min(max(tokens, 1), len(keys))
    if not tokens:
        return f'<div style="{_SMALL}"><b>Nothing was read yet, hence there is nothing to look for.</b></div>'
    names, texts = {}, []
    for one in (*past, now):
        for key, text in zip(*one, strict=True):
            if names.setdefault(key, len(names)) == len(texts):
                texts.append(markup.visible(text))
    coded = [as_text(names[key] for key in one) for one, _ in past]
    text = as_text(names[key] for key in keys[:tokens])
    drafter, draft = read(coded, text, nodes, depth, factor)

    def spoken(chars: str) -> str:
        """From tokens as characters back to text."""
        return " ".join(texts[ord(char)] for char in chars)

    found = "No suffix occurs earlier with something behind it: no draft, an ordinary step."
    if draft:
        found = f"The winner is a match of {drafter.match_len} in {drafter.source}: "
        found += f"{len(draft)} nodes, score {drafter.score:.2f}."
    edge = tokens - drafter.match_len
    body = escape("".join(shown[:edge])) + _span("".join(shown[edge:tokens]), "suffix")
    rest = f'<span style="color:#6B6B6B">{escape("".join(shown[tokens:]))}</span>'
    return (
        f'<div style="{_SMALL}"><b>{tokens} tokens read. {escape(found)}</b></div>'
        f'<div style="{_BOX}">{body}{rest}</div>{_matches(drafter, text, spoken)}'
        f'<div style="{_SMALL}">The draft, each token with count and path probability:</div>{_outline(draft, spoken)}'
        f"{_below(drafter, text, spoken)}"
    )


def viewer(tokenizer: Tokenizer | None = None, past: str = PAST, now: str = NOW) -> None:
    """Show the memory on two text boxes and a slider; without a kernel, two moments of the given texts.

    Args:
        tokenizer: adds the model's own tokens to the units.
        past, now: what to begin with; each line of ``past`` is one answer.
    """
    import ipywidgets as widgets

    units = splitters(tokenizer)
    wide = {"style": {"description_width": "110px"}}
    area = {"layout": {"width": "760px", "height": "70px"}, **wide}
    old = widgets.Textarea(value=past, description="past answers", **area)
    text = widgets.Textarea(value=now, description="this request", **area)
    unit = widgets.Dropdown(options=list(units), value="words", description="unit", **wide)
    count = len(units["words"](now)[0])
    tokens = widgets.IntSlider(value=count, min=1, max=count, description="tokens read", **wide)
    nodes = widgets.IntSlider(value=8, min=1, max=32, description="nodes", **wide)
    factor = widgets.FloatSlider(value=1.0, min=0.5, max=4, step=0.5, description="factor", **wide)

    def drawn() -> str:
        split = units[unit.value]
        size = max(len(split(text.value)[0]), 1)
        if tokens.max != size:
            tokens.max = tokens.value = size
        lines = [split(line) for line in old.value.splitlines() if line.strip()]
        return page(lines, split(text.value), nodes=nodes.value, factor=factor.value, tokens=tokens.value)

    out = live(drawn, old, text, unit, tokens, nodes, factor)
    split, lines = units["words"], [units["words"](line) for line in past.splitlines()]
    early = page(lines, split(now), tokens=min(_EARLY, count))
    static = f"<h4>Early in the request</h4>{early}<h4>Later</h4>{page(lines, split(now))}"
    box = widgets.VBox([old, text, widgets.HBox([unit, tokens]), widgets.HBox([nodes, factor]), out])
    show(box, static, "The memory of suffix decoding: counts by match length, the winner, and its draft tree")


def _matches(drafter: SuffixDecoding, text: str, spoken: Callable[[str], str]) -> str:
    """One row per match length: the suffix, and what followed it in either memory."""
    rows = []
    for n in range(1, min(len(text), drafter.depth - 1) + 1):
        suffix, cells = text[len(text) - n :], []
        for memory in (drafter.local, drafter.past):
            place = memory.find(suffix)
            followers = memory.followers(place) if place else {}
            ranked = sorted(followers.items(), key=lambda item: (-item[1], item[0]))
            cells.append(", ".join(f"{spoken(char)} ×{count}" for char, count in ranked[:4]) or "–")
        if cells == ["–", "–"]:
            break
        wins = n == drafter.match_len
        texts = (f"{n}{' ← wins' if wins else ''}", spoken(suffix), *cells)
        rows.append(("#EAF6E9" if wins else "#FFFFFF", [escape(text) for text in texts]))
    titles = ("match", "suffix", "followed by, in this request", "in past answers")
    return markup.table(titles, rows, _CELL) if rows else ""


def _outline(draft: Sequence[Node], spoken: Callable[[str], str]) -> str:
    lines = []
    for row, level in markup.in_lines([node.parent for node in draft]):
        node = draft[row - 1]
        mark = _span(spoken(node.token), "draft")
        lines.append(f"{node.count:3}  {node.probability:4.2f}  {'   ' * level}{mark}")
    return f'<pre style="{_BOX}">' + ("\n".join(lines) or "(no draft)") + "</pre>"


def _below(drafter: SuffixDecoding, text: str, spoken: Callable[[str], str]) -> str:
    """The tree below the last token in the memory that won, or in this request."""
    memory = drafter.past if drafter.source == "past requests" else drafter.local
    below = branches(memory, text[-1])
    lines = [f"{count:3}  {'   ' * level}{escape(spoken(label))}" for level, label, count in below[:_BRANCHES]]
    if len(below) > _BRANCHES:
        lines.append(f"     … and {len(below) - _BRANCHES} more")
    where = "past answers" if memory is drafter.past else "this request"
    return (
        f'<div style="{_SMALL}">The counted tree below “{escape(spoken(text[-1]))}” in {where}; a line ends where a '
        f'count changes:</div><pre style="{_BOX}">' + ("\n".join(lines) or "(nothing follows it yet)") + "</pre>"
    )


def _span(text: str, kind: str) -> str:
    return f'<span title="{kind}" style="{LOOKS[kind]}">{escape(text)}</span>' if text else ""
