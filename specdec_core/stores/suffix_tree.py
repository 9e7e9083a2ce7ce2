"""A counted suffix tree that can forget: a multiset of short strings and how often each prefix occurs.

Tokens are characters here (`as_text`), so that slices, comparisons and searches run at the speed of Python's strings.

`SuffixTree` holds a multiset of strings of at most D characters, path-compressed: a node stands where a count
changes, and its label leads to it from its parent. Adding or removing a string visits the nodes on its path,
at most D of them, whatever else the tree holds; and it makes at most two nodes, so a tree of n strings has at
most 2 n nodes besides its root. An automaton or an uncompressed trie would not do: the first cannot
forget, the second makes up to D nodes per string.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_NONE: dict[str, int] = {}  # the children of every leaf; never written to


class Point(NamedTuple):
    """A place in a tree: ``offset`` characters into the label of ``node``."""

    node: int
    offset: int


def as_text(tokens: Iterable[int]) -> str:
    """Token ids as characters.

    Raises:
        ValueError: for an id that is not a code point; no known vocabulary is that large.

    Example:
        >>> as_text([72, 105])
        'Hi'
    """
    try:
        return "".join(map(chr, tokens))
    except (ValueError, OverflowError) as error:
        raise ValueError("token ids must be in 0 ... 1,114,111 (they are kept as characters)") from error


class SuffixTree:
    """A multiset of strings, each counted with all its prefixes.

    Example:
        >>> tree = SuffixTree()
        >>> for text in ("abc", "abd", "b"):
        ...     tree.add(text)
        >>> tree.count("ab"), tree.count("b"), tree.count("bc")
        (2, 1, 0)
        >>> tree.followers(tree.find("ab"))
        {'c': 1, 'd': 1}
    """

    def __init__(self) -> None:
        # Nodes are numbers, 0 the root, and their parts lie in three lists. As objects that refer to each other they
        # would all be visited by each full garbage collection, and the more are held, the more a token would cost.
        self._label, self._count = [""], [0]
        self._children: list[dict[str, int]] = [{}]
        self._free: list[int] = []  # numbers of removed nodes

    @property
    def nodes(self) -> int:
        """Nodes besides the root."""
        return len(self._label) - 1 - len(self._free)

    def add(self, text: str) -> None:
        """Count ``text`` once more. Visits the nodes on its path."""
        node, at, size = 0, 0, len(text)
        self._count[0] += 1
        while at < size:
            child = self._children[node].get(text[at])
            if child is None:
                child = self._new(text[at:], 0, _NONE)
                if self._children[node] is _NONE:
                    self._children[node] = {}
                self._children[node][text[at]] = child
            elif not text.startswith(self._label[child], at):
                child = self._split(node, child, _shared(self._label[child], text, at))
            self._count[child] += 1
            at += len(self._label[child])
            node = child

    def remove(self, text: str) -> None:
        """Undo one `add` of the same text; the tree is then the one that never had it."""
        node, at, path = 0, 0, [0]
        while at < len(text):
            node = self._children[node][text[at]]
            at += len(self._label[node])
            path.append(node)
        for node in path:
            self._count[node] -= 1
        last = path.pop()
        if last and not self._count[last]:
            parent = path.pop()
            del self._children[parent][self._label[last][0]]
            self._free.append(last)
            last = parent
        # Only at the end of the path can a node now have one child with its own count: merge the two.
        if last and len(self._children[last]) == 1:
            (child,) = self._children[last].values()
            if self._count[child] == self._count[last]:
                self._label[last] += self._label[child]
                self._children[last] = self._children[child]
                self._free.append(child)

    def _new(self, label: str, count: int, children: dict[str, int]) -> int:
        if self._free:
            node = self._free.pop()
            self._label[node], self._count[node], self._children[node] = label, count, children
            return node
        self._label.append(label)
        self._count.append(count)
        self._children.append(children)
        return len(self._label) - 1

    def _split(self, parent: int, child: int, size: int) -> int:
        """A new node ``size`` characters into the label of ``child``."""
        label = self._label[child]
        upper = self._new(label[:size], self._count[child], {label[size]: child})
        self._label[child] = label[size:]
        self._children[parent][label[0]] = upper
        return upper

    def find(self, text: str) -> Point | None:
        """Where ``text`` leads from the root; None if it does not occur."""
        node, at, size = 0, 0, len(text)
        while at < size:
            child = self._children[node].get(text[at])
            if child is None:
                return None
            label = self._label[child]
            if size - at <= len(label):
                return Point(child, size - at) if label.startswith(text[at:]) else None
            if not text.startswith(label, at):
                return None
            node = child
            at += len(label)
        return Point(node, 0)

    def count(self, text: str) -> int:
        """How many of the strings begin with ``text``."""
        point = self.find(text)
        return self.count_at(point) if point else 0

    def count_at(self, point: Point) -> int:
        """How many of the strings lead to ``point``."""
        return self._count[point.node]

    def followers(self, point: Point) -> dict[str, int]:
        """The characters that come next, and how often."""
        node, offset = point
        label = self._label[node]
        if offset < len(label):
            return {label[offset]: self._count[node]}
        return {char: self._count[child] for char, child in self._children[node].items()}

    def goes_on(self, point: Point) -> bool:
        """Whether anything follows, without listing it."""
        return point.offset < len(self._label[point.node]) or bool(self._children[point.node])

    def step(self, point: Point, char: str) -> Point | None:
        """The place one character further; None if ``char`` does not follow."""
        node, offset = point
        label = self._label[node]
        if offset < len(label):
            return Point(node, offset + 1) if label[offset] == char else None
        child = self._children[node].get(char)
        return None if child is None else Point(child, 1)


def _shared(label: str, text: str, at: int) -> int:
    """How many characters ``label`` shares with ``text[at:]``; the first is known to be shared."""
    size = 1
    while at + size < len(text) and label[size] == text[at + size]:
        size += 1
    return size
