"""No draft at all: autoregressive decoding, in the same loop as everything it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from .contract import Budget, DrafterBase
from .rng import Rng
from .tree import DraftTree


class NullDrafter(DrafterBase):
    """Proposes the empty tree at every step.

    Example:
        >>> NullDrafter().propose([3, 5], Budget(8, 8), Rng(0)).size
        0
    """

    name = "autoregressive"

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        return DraftTree.empty(context[-1])
