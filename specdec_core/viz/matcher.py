"""An n-gram matcher on the reader's own text: the suffix, every match, the one that wins, and the draft.

No model takes part: the draft is what prompt lookup would hand to the target for checking. The match is found by
a scan, because a scan can show all the matches; the drafter itself keeps an index (`drafters.prompt_lookup`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from ..model.chat import Tokenizer
from .fallback import live, show
from .markup import MONO, PAPER, SMALL
from .replay import pieces

EXAMPLE = (
    "The cat sat on the mat. The cat ran to the door, and the dog sat on the step. "
    "Later the cat sat on the step too, and then the cat"
)
# what: style. Each mark can be told apart without color.
LOOKS = {
    "suffix": "background:#F7D9C4;border-bottom:3px solid #D55E00",
    "match": "border-bottom:2px dotted #0072B2",
    "winner": "background:#BFE3F5;border-bottom:4px double #0072B2",
    "draft": "background:#DDF1E8;outline:1.5px solid #009E73",
}
_PAGE = (
    f"{PAPER};border:1px solid #CCCCCC;border-radius:4px;padding:8px 10px;max-width:760px;{MONO};font-size:13px;"
    "line-height:1.8;white-space:pre-wrap"
)
_SMALL = f"{SMALL};max-width:760px"
Split = tuple[Sequence[Any], Sequence[str]]  # a text as (what is compared, what is shown), of one length


@dataclass(frozen=True)
class Lookup:
    """What one lookup found in L tokens.

    Attributes:
        n: length of the suffix that matched; 0 if none did.
        starts: where the matches begin, in order; the suffix itself is not one of them.
        winner: the start of the match whose continuation is taken; equal to L if there is none.
        draft: the tokens that followed it.
        missed: the longer suffixes that were tried first, in vain.
    """

    n: int
    starts: tuple[int, ...]
    winner: int
    draft: tuple[Any, ...]
    missed: tuple[int, ...]


def lookup(tokens: Sequence[Any], max_n: int = 3, min_n: int = 1, num_tokens: int = 10, match: str = "last") -> Lookup:
    """Scan for the longest suffix that occurs earlier, and take what follows.

    Args:
        tokens: (L,) of any kind that can be compared: ids, words, characters.
        max_n, min_n: lengths of the suffix, longest first.
        num_tokens: longest draft.
        match: ``"first"`` or ``"last"``.

    Raises:
        ValueError: unless 1 <= min_n <= max_n, num_tokens >= 1 and match is one of the two.

    Example:
        >>> lookup("the cat sat. the c", max_n=5, num_tokens=4)
        Lookup(n=5, starts=(0,), winner=0, draft=('a', 't', ' ', 's'), missed=())
        >>> lookup("abc").n
        0
    """
    if not 1 <= min_n <= max_n or num_tokens < 1 or match not in ("first", "last"):
        got = f"min_n={min_n}, max_n={max_n}, num_tokens={num_tokens}, match={match!r}"
        raise ValueError(f"1 <= min_n <= max_n, num_tokens >= 1 and match 'first' or 'last' are needed; got {got}")
    tokens, end, missed = list(tokens), len(tokens), []
    for n in range(min(max_n, end - 1), min_n - 1, -1):
        starts = tuple(i for i in range(end - n) if tokens[i : i + n] == tokens[end - n :])
        if starts:
            winner = starts[0] if match == "first" else starts[-1]
            draft = tuple(tokens[winner + n : winner + n + num_tokens])
            return Lookup(n, starts, winner, draft, tuple(missed))
        missed.append(n)
    return Lookup(0, (), end, (), tuple(missed))


def words(text: str) -> list[str]:
    """Words with the space before them, punctuation marks by themselves; joined, they are the text.

    Example:
        >>> words("The cat sat, so")
        ['The', ' cat', ' sat', ',', ' so']
    """
    return re.findall(r"\s*\w+|\s*[^\w\s]|\s+\Z", text)


def splitters(tokenizer: Tokenizer | None = None) -> dict[str, Callable[[str], Split]]:
    """By name of the unit: a function that splits a text.

    Words are compared without regard to the space before them and to capitals.
    """
    units: dict[str, Callable[[str], Split]] = {
        "words": lambda text: ([word.strip().lower() for word in words(text)], words(text)),
        "characters": lambda text: (list(text), list(text)),
    }
    if tokenizer is not None:

        def by_token(text: str) -> Split:
            ids = [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
            return ids, pieces(ids, tokenizer)

        units["the model's tokens"] = by_token
    return units


def page(keys: Sequence[Any], shown: Sequence[str], max_n: int = 3, num_tokens: int = 10, match: str = "last") -> str:
    """The lookup as HTML: the text with its marks, what was found in words, and the draft.

    Args:
        keys, shown: (L,) what is compared, and the text of each.
        max_n, num_tokens, match: as for `lookup`; the shortest suffix tried is one token.
    """
    found = lookup(keys, max_n=max_n, num_tokens=num_tokens, match=match)
    end = len(keys)
    marks = [set() for _ in range(end)]
    for start in found.starts:
        for i in range(start, start + found.n):
            marks[i].add("winner" if start == found.winner else "match")
    for i in range(end - found.n, end):
        marks[i].add("suffix")
    after = range(found.winner + found.n, min(end, found.winner + found.n + len(found.draft)))
    for i in after:
        marks[i].add("draft")
    alike = groupby(zip(marks, shown, strict=False), lambda pair: pair[0])  # neighbors with the same marks: one span
    parts = [_span("".join(text for _, text in run), kinds) for kinds, run in alike]
    copy = _span("".join(shown[i] for i in after), {"draft"}) if after else "<i>(no draft: an ordinary step)</i>"
    named = {"suffix": "suffix", "winner": f"the {match} match: it wins", "match": "other matches"}
    named["draft"] = "its continuation"
    legend = " &nbsp; ".join(_span(what, {kind}) for kind, what in named.items())
    return (
        f'<div style="{_SMALL}"><b>{escape(_words(found, end, match))}</b></div>'
        f'<div style="{_PAGE}">{"".join(parts)}</div>'
        f'<div style="{_SMALL}">The draft, {len(found.draft)} token{"s" * (len(found.draft) != 1)}:</div>'
        f'<div style="{_PAGE}">{copy}</div><div style="{_SMALL}">{legend}</div>'
    )


def viewer(tokenizer: Tokenizer | None = None, text: str = EXAMPLE, max_n: int = 2, num_tokens: int = 4) -> None:
    """Show the matcher on a text box; without a kernel, both answers for the given text.

    Args:
        tokenizer: adds the model's own tokens to the units.
        text, max_n, num_tokens: what to begin with.
    """
    import ipywidgets as widgets

    units = splitters(tokenizer)
    wide = {"style": {"description_width": "90px"}}
    box = widgets.Textarea(value=text, description="text", layout={"width": "760px", "height": "90px"}, **wide)
    unit = widgets.Dropdown(options=list(units), value="words", description="unit", **wide)
    n = widgets.IntSlider(value=max_n, min=1, max=8, description="longest n", **wide)
    count = widgets.IntSlider(value=num_tokens, min=1, max=20, description="num_tokens", **wide)
    narrow = {"style": {**wide["style"], "button_width": "80px"}}  # else the label does not fit beside the buttons
    which = widgets.ToggleButtons(options=["last", "first"], value="last", description="match", **narrow)

    def drawn() -> str:
        return page(*units[unit.value](box.value), n.value, count.value, which.value)

    static = ""
    for match in ("last", "first"):
        setting = f'match = "{match}", longest n = {max_n}, num_tokens = {num_tokens}'
        static += f'<div style="{_SMALL};margin-top:6px">{setting}</div>'
        static += page(*units["words"](text), max_n, num_tokens, match)
    out = live(drawn, box, unit, n, count, which)
    whole = widgets.VBox([box, widgets.HBox([unit, which]), widgets.HBox([n, count]), out])
    show(whole, static, "An n-gram matcher: suffix, matches, winner and draft")


def _words(found: Lookup, end: int, match: str) -> str:
    many = [f"The last {n} tokens occur nowhere earlier. " for n in found.missed if n > 1]
    tried = "".join(many) + "Nor does the last one. " * (1 in found.missed)
    if end < 2:
        return "At least two tokens are needed: a suffix, and something before it."
    if not found.n:
        return f"{tried}No match, hence no draft: the step is an ordinary one."
    count = len(found.starts)
    what = f"The last {found.n} tokens occur" if found.n > 1 else "The last token occurs"
    times = "once" if count == 1 else f"{count} times"
    wins = "" if count == 1 else f"; the {match} occurrence wins"
    return f"{tried}{what} {times} earlier{wins}."


def _span(text: str, kinds: set[str]) -> str:
    style = ";".join(LOOKS[kind] for kind in ("match", "suffix", "winner", "draft") if kind in kinds)
    return f'<span title="{" ".join(sorted(kinds))}" style="{style}">{escape(text)}</span>' if kinds else escape(text)
