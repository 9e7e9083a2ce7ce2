"""Texts as memories: how often every string of up to D tokens occurred in them, and what followed.

`GrowingText` is one text that grows by a token. Its suffixes enter a `SuffixTree` when they have D tokens, so
one string is added per token; the D - 1 suffixes that are still shorter are looked for in the last D - 1 tokens
themselves. So the counts are exact at every moment, and a token costs a time that depends on D, not on the
length of the text: constant for a given D.

`PastTexts` is a bounded queue of finished texts. Both are a `Memory`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from ..base.arguments import whole
from .suffix_tree import Point, SuffixTree, as_text

_BLOCK = 1 << 16  # forgotten tokens are cut off in pieces of so many
Where = TypeVar("Where")  # how a memory names a place in its texts


class Memory(Protocol[Where]):
    """Where a string occurs in some texts, and what comes next there."""

    def find(self, text: str) -> Where | None:
        """The place of ``text``; None if it does not occur."""

    def followers(self, place: Where) -> dict[str, int]:
        """The tokens that come next, and how often."""

    def goes_on(self, place: Where) -> bool:
        """Whether anything follows, without listing it."""

    def step(self, place: Where, char: str) -> Where | None:
        """The place one token further; ``char`` is one of `followers`."""


class Place(NamedTuple):
    """Where a string occurs in a `GrowingText`: in the tree (or None), and where it ends in the last tokens."""

    point: Point | None
    ends: tuple[int, ...]


class GrowingText:
    """All substrings of up to ``depth`` tokens of a text that grows at its end, counted.

    Args:
        depth: D, the longest substring counted.
        max_tokens: substrings that begin more than about so many tokens ago are forgotten, oldest first.

    Example:
        >>> text = GrowingText(depth=4)
        >>> for token in as_text([1, 2, 3, 1, 2, 4, 1, 2]):
        ...     text.append(token)
        >>> text.count(as_text([1, 2]))
        3
        >>> text.followers(text.find(as_text([1, 2])))  # the third has no follower yet
        {'\\x03': 1, '\\x04': 1}
    """

    def __init__(self, depth: int, max_tokens: int = 1_000_000):
        self.depth, self.max_tokens = whole("depth", depth, 2), whole("max_tokens", max_tokens, 1)
        self._tree = SuffixTree()
        self._tail = ""  # the last depth - 1 tokens: the suffixes that are not in the tree yet
        self._text, self._oldest = array("I"), 0  # tokens, and where the oldest suffix in the tree begins

    @property
    def nodes(self) -> int:
        """Nodes of the tree; at most 2 max_tokens."""
        return self._tree.nodes

    def append(self, char: str) -> None:
        """Add one token: one string into the tree, and one out of it when the bound is reached."""
        self._text.append(ord(char))
        self._tail += char
        if len(self._tail) == self.depth:
            if self._tree.count("") == self.max_tokens:
                self._forget()
            self._tree.add(self._tail)
            self._tail = self._tail[1:]

    def _forget(self) -> None:
        self._tree.remove(as_text(self._text[self._oldest : self._oldest + self.depth]))
        self._oldest += 1
        if self._oldest == _BLOCK:
            del self._text[:_BLOCK]
            self._oldest = 0

    def find(self, text: str) -> Place | None:
        """Where ``text`` occurs; None if it does not, or is longer than ``depth``."""
        ends, start = [], self._tail.find(text)
        while start >= 0:
            ends.append(start + len(text))
            start = self._tail.find(text, start + 1)
        point = self._tree.find(text)
        return Place(point, tuple(ends)) if point or ends else None

    def count(self, text: str) -> int:
        """How often ``text`` occurs."""
        place = self.find(text)
        return len(place.ends) + (self._tree.count_at(place.point) if place.point else 0) if place else 0

    def followers(self, place: Place) -> dict[str, int]:
        counts = self._tree.followers(place.point) if place.point else {}
        for char in (self._tail[end] for end in place.ends if end < len(self._tail)):
            counts[char] = counts.get(char, 0) + 1
        return counts

    def goes_on(self, place: Place) -> bool:
        tail = len(self._tail)
        return any(end < tail for end in place.ends) or bool(place.point and self._tree.goes_on(place.point))

    def step(self, place: Place, char: str) -> Place:
        point = self._tree.step(place.point, char) if place.point else None
        return Place(point, tuple(end + 1 for end in place.ends if self._tail[end : end + 1] == char))


class PastTexts:
    """All substrings of up to ``depth`` tokens of the last texts, counted; first in, first out.

    Args:
        depth: D, the longest substring counted.
        max_texts, max_tokens: bounds on what is kept; of a longer text its end is kept.

    Example:
        >>> past = PastTexts(depth=4, max_texts=2)
        >>> for text in ("abc", "abd", "xab"):
        ...     past.add(text)
        >>> past.count("ab"), past.count("abc")
        (2, 0)
    """

    def __init__(self, depth: int, max_texts: int = 10_000, max_tokens: int = 1_000_000):
        self.depth, self.max_texts = whole("depth", depth, 2), whole("max_texts", max_texts, 0)
        self.max_tokens = whole("max_tokens", max_tokens, 0)
        self._tree = SuffixTree()
        self._texts: deque[str] = deque()
        # Looking up is the tree's own business.
        self.find, self.count, self.step = self._tree.find, self._tree.count, self._tree.step
        self.followers, self.goes_on = self._tree.followers, self._tree.goes_on

    def __len__(self) -> int:
        """Texts kept."""
        return len(self._texts)

    @property
    def tokens(self) -> int:
        """Tokens kept, at most max_tokens."""
        return self._tree.count("")

    @property
    def nodes(self) -> int:
        """Nodes of the tree; at most 2 max_tokens."""
        return self._tree.nodes

    def add(self, text: str) -> None:
        """Count a text, after forgetting the oldest ones until there is room for it."""
        text = text[max(0, len(text) - self.max_tokens) :]
        if not text or not self.max_texts:
            return
        while len(self._texts) == self.max_texts or self.tokens + len(text) > self.max_tokens:
            for suffix in self._suffixes(self._texts.popleft()):
                self._tree.remove(suffix)
        self._texts.append(text)
        for suffix in self._suffixes(text):
            self._tree.add(suffix)

    def _suffixes(self, text: str) -> Iterable[str]:
        return (text[start : start + self.depth] for start in range(len(text)))
