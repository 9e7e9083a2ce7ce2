"""A suffix array of the reader's own text: its sorted suffixes, the bisection that searches them, and the draft.

No model takes part. The array is sorted and searched here in the plainest way, because that can be shown step by
step; the tree of the draft is the drafter's own (`drafters.rest.frequent_prefixes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ..drafters.rest import frequent_prefixes
from ..model.chat import Tokenizer
from . import markup
from .fallback import live, show
from .matcher import LOOKS, Split, splitters

EXAMPLE = (
    "for name in names: print(name). for line in lines: print(line). "
    "for line in file: total += 1. for line in lines: count(line)"
)
QUERY = "if ready: for line in"
END = "⊣"  # what a separator looks like
_SMALL = f"{markup.SMALL};max-width:760px"
_CELL = "padding:0 8px;text-align:left;white-space:pre;border:none;background:transparent"


@dataclass(frozen=True)
class Probe:
    """One comparison of a bisection: with the suffix of rank ``middle`` between ``low`` and ``high``."""

    low: int
    high: int
    middle: int
    goes_up: bool  # the border lies behind ``middle``


@dataclass(frozen=True)
class Search:
    """The suffixes ``lo ... hi - 1`` begin with the last ``length`` tokens of the query; nothing matched if it is 0.

    ``probes`` are the comparisons for that length, those for its lower border first; ``failed`` the longer lengths.
    """

    lo: int
    hi: int
    length: int
    probes: tuple[Probe, ...]
    failed: tuple[int, ...]


def order(keys: Sequence[Any]) -> list[int]:
    """The suffix array: starts of the suffixes, sorted. The end of the text counts as larger than any token.

    Example:
        >>> order("banana")
        [1, 3, 5, 0, 2, 4]
    """
    marked = [*((0, key) for key in keys), (1,)]
    return sorted(range(len(keys)), key=lambda start: marked[start:])


def search(keys: Sequence[Any], sa: Sequence[int], query: Sequence[Any], max_n: int = 16, min_n: int = 1) -> Search:
    """Bisect for the longest end of ``query``, then for shorter ones until one is found.

    Args:
        keys: (M,) the corpus.
        sa: (M,) from `order`.
        query: (L,) whose last tokens are looked for.
        max_n, min_n: lengths of the end, longest first.

    Raises:
        ValueError: unless 1 <= min_n <= max_n.

    Example:
        >>> text = "banana"
        >>> found = search(text, order(text), "xan", max_n=3)
        >>> found.lo, found.hi, found.length, found.failed
        (0, 2, 2, (3,))
    """
    if not 1 <= min_n <= max_n:
        raise ValueError(f"1 <= min_n <= max_n are needed; got min_n={min_n}, max_n={max_n}")
    failed, query = [], list(query)
    for n in range(min(max_n, len(query)), min_n - 1, -1):
        pattern, probes = query[len(query) - n :], []
        lo = _border(keys, sa, pattern, probes, behind=False)
        hi = _border(keys, sa, pattern, probes, behind=True)
        if hi > lo:
            return Search(lo, hi, n, tuple(probes), tuple(failed))
        failed.append(n)
    return Search(0, 0, 0, (), tuple(failed))


def _border(keys: Sequence[Any], sa: Sequence[int], pattern: list[Any], probes: list[Probe], behind: bool) -> int:
    """How many suffixes lie below the pattern, or, with ``behind``, not above it."""
    low, high, wanted = 0, len(sa), [(0, key) for key in pattern]
    while low < high:
        middle = (low + high) // 2
        start = sa[middle]
        beginning = [(0, key) for key in keys[start : start + len(pattern)]]
        if len(beginning) < len(pattern):
            beginning.append((1,))
        up = beginning <= wanted if behind else beginning < wanted
        probes.append(Probe(low, high, middle, up))
        low, high = (middle + 1, high) if up else (low, middle)
    return low


def tree(keys: Sequence[Any], sa: Sequence[int], found: Search, depth: int, nodes: int) -> list[tuple[Any, int, int]]:
    """The draft: (token, parent row, weight) of each node, row 0 being the root; what `drafters.REST` proposes.

    Example:
        >>> text = "banana"
        >>> sa = order(text)
        >>> tree(text, sa, search(text, sa, "a"), depth=2, nodes=3)  # of three a's two go on, and both with n a
        [('n', 0, 2), ('a', 1, 2)]
    """
    rows = [list(keys[sa[i] + found.length : sa[i] + found.length + depth]) for i in range(found.lo, found.hi)]
    names = sorted({key for row in rows for key in row})
    if not names:
        return []
    ids = np.full((len(rows), depth), len(names))
    for i, row in enumerate(rows):
        ids[i, : len(row)] = [names.index(key) for key in row]
    tokens, parents, weights = frequent_prefixes(ids, np.array([len(row) for row in rows]), nodes)
    return [(names[t], int(p), int(w)) for t, p, w in zip(tokens, parents, weights, strict=True)]


def page(
    corpus: Split, query: Split, *, max_n: int = 16, nodes: int = 6, depth: int = 4, step: int | None = None
) -> str:
    """Search and draft as HTML.

    Args:
        corpus, query: what is compared, and the text of each token; of one splitter of `matcher.splitters`.
        max_n, nodes, depth: as for `drafters.REST`, with min_n = 1.
        step: show the bisection up to this comparison; None for all of it.
    """
    (keys, shown), (asked, asked_shown) = corpus, query
    sa = order(keys)
    found = search(keys, sa, asked, max_n=max_n)
    probes = found.probes[: len(found.probes) if step is None else step]
    matched = "".join(asked_shown[len(asked) - found.length :])
    head = f"{len(keys)} tokens, hence {len(keys)} suffixes. "
    head += "".join(f"The last {n} tokens of the query occur nowhere. " for n in found.failed if n > 1)
    head += "Nor does the last one. " * (1 in found.failed)
    if not found.length:
        return f'<div style="{_SMALL}"><b>{escape(head)}No match, hence no draft.</b></div>'
    times = f"{found.hi - found.lo} time{'s' * (found.hi - found.lo != 1)}"
    head += f"The last {found.length} occur{'s' * (found.length == 1)} {times}; "
    head += f"{len(found.probes)} comparisons find the interval."
    drawn = tree(keys, sa, found, depth, nodes)
    return (
        f'<div style="{_SMALL}"><b>{escape(head)}</b><br>Looked up: {_span(matched, "suffix")} &nbsp; '
        f"{_span('suffixes that begin with it', 'winner')} &nbsp; numbers: the order of the comparisons</div>"
        f"{_table(shown, sa, found, probes)}"
        f'<div style="{_SMALL}">What follows it, and how often; the {len(drawn)} most frequent prefixes are the draft:'
        f"</div>{_outline(drawn, dict(zip(keys, shown, strict=True)))}"
    )


def viewer(tokenizer: Tokenizer | None = None, corpus: str = EXAMPLE, query: str = QUERY) -> None:
    """Show search and draft on two text boxes; without a kernel, the given texts with the whole bisection.

    Args:
        tokenizer: adds the model's own tokens to the units.
        corpus, query: what to begin with.
    """
    import ipywidgets as widgets

    units = splitters(tokenizer)
    wide = {"style": {"description_width": "110px"}}
    area = {"layout": {"width": "760px", "height": "80px"}, **wide}
    text = widgets.Textarea(value=corpus, description="datastore", **area)
    asked = widgets.Text(value=query, description="context", layout={"width": "760px"}, **wide)
    unit = widgets.Dropdown(options=list(units), value="words", description="unit", **wide)
    n, nodes, step = (
        widgets.IntSlider(value=value, min=least, max=most, description=what, **wide)
        for what, value, least, most in (("longest n", 8, 1, 16), ("c, nodes", 6, 1, 16), ("comparisons", 40, 0, 40))
    )

    def drawn() -> str:
        split = units[unit.value]
        return page(split(text.value), split(asked.value), max_n=n.value, nodes=nodes.value, step=step.value)

    out = live(drawn, text, asked, unit, n, nodes, step)
    static = page(units["words"](corpus), units["words"](query), max_n=8, nodes=6)
    box = widgets.VBox([text, asked, widgets.HBox([unit, n]), widgets.HBox([nodes, step]), out])
    show(box, static, "A suffix array: sorted suffixes, the bisection, the interval found, and the draft tree")


def _table(shown: Sequence[str], sa: Sequence[int], found: Search, probes: Sequence[Probe]) -> str:
    """The suffixes in order; of many, those that were compared, those that matched, and their neighbors."""
    number = defaultdict(list)
    for i, probe in enumerate(probes, start=1):
        number[probe.middle].append(i)
    told = (*number, *range(found.lo, min(found.hi, found.lo + 8)), found.hi - 1)
    near = {rank for at in told for rank in (at - 1, at, at + 1) if 0 <= rank < len(sa)}
    rows, before = [], -1
    for rank in range(len(sa)) if len(sa) <= 40 else sorted(near):
        if rank != before + 1:
            rows.append(("#FFFFFF", ("…", "", "", "")))
        before, start, end = rank, sa[rank], sa[rank] + found.length
        head = "".join(shown[start:end]).lstrip(" ")
        rest = "".join(shown[end : end + 6]) + (END if end + 6 >= len(shown) else " …")
        inside = found.lo <= rank < found.hi
        text = _span(head, "winner") if inside else escape(_visible(head))
        marks = " ".join(map(str, number[rank]))
        rows.append(("#F2F2F2" if marks else "#FFFFFF", (marks, str(rank), str(start), text + escape(_visible(rest)))))
    return markup.table(("compared", "rank", "start", "suffix"), rows, _CELL)


def _outline(nodes: Sequence[tuple[Any, int, int]], texts: dict[Any, str]) -> str:
    """The tree, children indented below their parent, each with its weight."""
    lines = []
    for row, depth in markup.in_lines([parent for _, parent, _ in nodes]):
        key, _, weight = nodes[row - 1]
        lines.append(f"{weight:4} {'   ' * depth}{_span(markup.visible(texts[key]), 'draft')}")
    return f'<pre style="{markup.BOX}">' + ("\n".join(lines) or "(nothing follows)") + "</pre>"


def _visible(text: str) -> str:
    return text.replace("\n", "↵")


def _span(text: str, kind: str) -> str:
    return f'<span title="{kind}" style="{LOOKS[kind]}">{escape(_visible(text))}</span>'
