"""An n-gram dictionary over recent text: for every n-gram, the tokens that followed it and how often.

Differs from `PromptLookup` in remembering counts instead of one position: several continuations of a key become a small
tree, most frequent first, and a draft may turn from one occurrence to another on the way. It is suffix decoding
(arXiv:2411.04975) with the match length capped at ``max_n`` and no memory of past requests.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from ..base.arguments import whole
from ..core.contract import Budget, DrafterBase
from ..core.rng import Rng
from ..core.tree import DraftTree

Place = TypeVar("Place")
Token = TypeVar("Token")


class NGramDictionary(DrafterBase):
    """Proposes the likeliest continuations by counted n-grams, as a tree grown best first. Lossless.

    A node's score is the product, from the root down, of count / (all counts kept for its n-gram); every node uses the
    longest n-gram that is in the dictionary. Of equally likely continuations the most recent comes first.

    Args:
        num_tokens: most nodes of a draft; a chain wherever every n-gram has had one continuation.
        max_n, min_n: lengths of the n-grams that are looked up, longest first.
        branches: continuations kept for one n-gram; a new one replaces the least frequent, among equals the oldest.
        max_keys: n-grams kept; the one that has not been seen for longest is dropped first.

    Raises:
        ValueError: on a number below 1, or min_n > max_n.

    Example:
        >>> drafter = NGramDictionary(num_tokens=3, max_n=2, min_n=2)
        >>> text = [1, 2, 3, 1, 2, 4, 1, 2, 4, 1, 2]  # (1, 2) was followed by 3 once and by 4 twice
        >>> drafter.reset(text)
        >>> tree = drafter.propose(text, Budget(8, 8), Rng(0))
        >>> tree.tokens.tolist(), tree.parents.tolist()
        ([2, 4, 1, 2], [-1, 0, 1, 2])
        >>> tree = NGramDictionary(num_tokens=7, max_n=2, min_n=2).propose(text, Budget(8, 8), Rng(0))
        >>> tree.tokens.tolist(), tree.parents.tolist()  # 4 1 2 again has 2/3 of 2/3, more than the 1/3 of the 3
        ([2, 4, 1, 2, 4, 1, 2, 3], [-1, 0, 1, 2, 3, 4, 5, 0])
    """

    name = "ngram"

    def __init__(
        self, num_tokens: int = 10, max_n: int = 3, min_n: int = 1, branches: int = 8, max_keys: int = 100_000
    ):
        self.num_tokens = self.max_nodes = whole("num_tokens", num_tokens, 1)
        self.max_n = whole("max_n", max_n, 1)
        self.min_n = whole("min_n", min_n, 1, self.max_n)
        self.branches, self.max_keys = whole("branches", branches, 1), whole("max_keys", max_keys, 1)
        self.reset([])

    def reset(self, context: Sequence[int]) -> None:
        # n-gram -> {follower: count}; both levels are kept in order of last use.
        self._followers: OrderedDict[tuple[int, ...], dict[int, int]] = OrderedDict()
        self._indexed = 0  # every n-gram that ends before this position has been counted

    @property
    def keys(self) -> int:
        """N-grams in the dictionary."""
        return len(self._followers)

    def continuations(self, suffix: Sequence[int]) -> list[tuple[int, float]]:
        """(token, share of the counts) after the longest known n-gram that ends ``suffix``, likeliest first.

        Example:
            >>> drafter = NGramDictionary()
            >>> drafter.propose([5, 6, 5, 7, 5, 7, 5], Budget(0, 0), Rng(0)).size  # no room to draft, but counted
            0
            >>> [(token, round(share, 3)) for token, share in drafter.continuations([9, 5])]
            [(7, 0.667), (6, 0.333)]
        """
        for n in range(min(self.max_n, len(suffix)), self.min_n - 1, -1):
            if followers := self._followers.get(tuple(suffix[len(suffix) - n :])):
                total = sum(followers.values())
                ranked = sorted(reversed(followers.items()), key=lambda item: -item[1])
                return [(token, count / total) for token, count in ranked]
        return []

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        self._count_new(context)

        def likely(suffix: tuple[int, ...], score: float) -> list[tuple[float, int]]:
            return [(-score * share, token) for token, share in self.continuations(suffix)]

        def longer(suffix: tuple[int, ...], token: int) -> tuple[int, ...]:
            return (*suffix, token)[-self.max_n :]

        suffix, nodes = tuple(context[-self.max_n :]), min(self.num_tokens, budget.nodes)
        tokens, parents, _ = grow(suffix, likely, longer, nodes, budget.depth)
        return DraftTree(np.array([context[-1], *tokens]), np.array([-1, *parents]))

    def _count_new(self, context: Sequence[int]) -> None:
        # The suffix itself has no follower yet, so counting stops one token short of the end.
        for end in range(max(self._indexed, 1), len(context)):
            for n in range(self.min_n, min(self.max_n, end) + 1):
                self._count(tuple(context[end - n : end]), context[end])
        self._indexed = max(self._indexed, len(context))

    def _count(self, gram: tuple[int, ...], token: int) -> None:
        followers = self._followers.setdefault(gram, {})
        self._followers.move_to_end(gram)
        count = followers.pop(token, 0) + 1
        if len(followers) == self.branches:
            del followers[min(followers, key=followers.__getitem__)]  # the first, hence oldest, of the least frequent
        followers[token] = count
        if len(self._followers) > self.max_keys:
            self._followers.popitem(last=False)


def grow(
    start: Place, likely: Callable[[Place, float], Iterable[tuple[float, Token]]],
    step: Callable[[Place, Token], Place | None], nodes: int, depth: int,
) -> tuple[list[Token], list[int], float]:
    """A tree grown best first: its next row is always the likeliest token that hangs from one of its rows.

    Args:
        start: the place of the root, whatever a place is.
        likely: the tokens that come after a place with a path probability, each behind the probability of its own
            path times -1, likeliest first; called once per row.
        step: the place after a place and a token; None where nothing follows.
        nodes, depth: bounds of the tree.

    Returns:
        tokens (n,) and parents (n,) as rows of a tree whose root is row 0, and the sum of their path probabilities.

    Example:
        >>> grow("", lambda place, p: [(-p * 0.75, "a"), (-p * 0.25, "b")], str.__add__, nodes=3, depth=2)
        (['a', 'a', 'b'], [0, 1, 0], 1.5625)
    """
    tokens: list[Token] = []
    parents: list[int] = []
    open_nodes: list[tuple[float, int, int, Token, Place, int]] = []
    score, pushed = 0.0, 0

    def extend(row: int, place: Place | None, probability: float, at: int) -> None:
        nonlocal pushed
        if place is None or at == depth:
            return
        for negative, token in likely(place, probability):
            pushed += 1  # first pushed, first served among equal probabilities
            heapq.heappush(open_nodes, (negative, pushed, row, token, place, at + 1))

    extend(0, start, 1.0, 0)
    while open_nodes and len(tokens) < nodes:
        negative, _, parent, token, place, at = heapq.heappop(open_nodes)
        tokens.append(token)
        parents.append(parent)
        score -= negative
        if len(tokens) < nodes:
            extend(len(tokens), step(place, token), -negative, at)
    return tokens, parents, score
