"""Prompt lookup: the context itself is the draft model (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding).

Differs from `NullDrafter` in proposing a chain: the tokens that followed an earlier occurrence of the
context's last n tokens. An index of n-grams grows with the context, so a lookup costs max_n - min_n + 1
dictionary reads however long the context is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.arguments import one_of, whole
from ..core.contract import Budget, DrafterBase
from ..core.rng import Rng
from ..core.tree import DraftTree


class PromptLookup(DrafterBase):
    """Proposes the continuation of the longest matching suffix, if any.

    Args:
        num_tokens: longest draft, in tokens.
        max_n, min_n: lengths of the suffix that is looked up, longest first.
        match: which occurrence wins when several match: ``"first"`` or ``"last"``.

    Attributes:
        match_len: tokens matched by the last proposal, 0 if none were.

    Raises:
        ValueError: on lengths below 1, min_n > max_n, or another ``match``.

    Example:
        >>> drafter = PromptLookup(num_tokens=3)
        >>> drafter.reset([1, 2, 3, 4, 1, 2])
        >>> drafter.propose([1, 2, 3, 4, 1, 2], Budget(8, 8), Rng(0)).tokens.tolist()
        [2, 3, 4, 1]
    """

    name = "prompt_lookup"

    def __init__(self, num_tokens: int = 10, max_n: int = 3, min_n: int = 1, match: str = "last"):
        self.num_tokens = self.max_nodes = whole("num_tokens", num_tokens, 1)
        self.max_n = whole("max_n", max_n, 1)
        self.min_n = whole("min_n", min_n, 1, self.max_n)
        self.match = one_of("match", match, ("first", "last"))
        self.reset([])

    def reset(self, context: Sequence[int]) -> None:
        # n-gram -> position of the token that follows the occurrence that wins.
        self._follower: dict[tuple[int, ...], int] = {}
        self._indexed = 0  # every n-gram that ends before this position is in the index
        self.match_len = 0

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        self._index(context)
        end = len(context)
        for n in range(min(self.max_n, end), self.min_n - 1, -1):
            start = self._follower.get(tuple(context[end - n :]))
            if start is not None:
                self.match_len = n
                length = min(self.num_tokens, budget.nodes, budget.depth)
                return DraftTree.chain(context[-1], context[start : start + length])
        self.match_len = 0
        return DraftTree.empty(context[-1])

    def _index(self, context: Sequence[int]) -> None:
        # The suffix itself has no follower yet, so the index stops one token short of the end.
        for follower in range(max(self._indexed, 1), len(context)):
            for n in range(self.min_n, min(self.max_n, follower) + 1):
                gram = tuple(context[follower - n : follower])
                if self.match == "last" or gram not in self._follower:
                    self._follower[gram] = follower
        self._indexed = max(self._indexed, len(context))
