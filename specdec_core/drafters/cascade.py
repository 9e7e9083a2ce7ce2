"""Two drafters in turn: the second is asked where the first has nothing.

As lossless as what it is made of: which of them is asked never depends on the tokens of a draft drawn by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch

from ..core.contract import Budget, Drafter, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.tree import DraftTree
from .methods import Context, build


class Cascade(DrafterBase):
    """Proposes what ``first`` proposes, and what ``second`` does where ``first`` has no draft.

    Both observe every step, also those in which the other's draft was checked, so that both stay in step with
    the context.

    Args:
        first: usually a lookup, which costs nothing.
        second: asked on a miss; usually one that always has a draft.

    Attributes:
        match_len: the first's on a hit; else 0.
        draft_ids: of the first that has any.

    Example:
        >>> from .prompt_lookup import PromptLookup
        >>> drafter = Cascade(PromptLookup(num_tokens=2, min_n=2), PromptLookup(num_tokens=1))
        >>> drafter.name
        'prompt_lookup>prompt_lookup'
        >>> drafter.reset([1, 2, 3, 1, 2])
        >>> drafter.propose([1, 2, 3, 1, 2], Budget(8, 8), Rng(0)).tokens.tolist()  # 1 2 is a match of two
        [2, 3, 1]
        >>> drafter.propose([1, 2, 3, 1, 2, 2], Budget(8, 8), Rng(0)).tokens.tolist()  # 2 2 is none, 2 is one
        [2, 2]
    """

    name = "cascade"

    def __init__(self, first: Drafter, second: Drafter):
        self.first, self.second = first, second
        self.name = f"{first.name}>{second.name}"
        self.needs_hidden = first.needs_hidden or second.needs_hidden
        self.max_nodes = max(first.max_nodes, second.max_nodes)
        self.has_model = first.has_model or second.has_model
        self.draft_ids = second.draft_ids if first.draft_ids is None else first.draft_ids
        self.match_len = 0

    @classmethod
    def build(cls, context: Context, first: str = "prompt_lookup", second: str = "suffix_decoding") -> Cascade:
        """From the names of two drafters, each with its default settings."""
        return cls(in_turn(first, context), in_turn(second, context))

    def reset(self, context: Sequence[int]) -> None:
        self.first.reset(context)
        self.second.reset(context)

    def read_prompt(self, hidden: torch.Tensor) -> None:
        for drafter in (self.first, self.second):
            if drafter.needs_hidden:
                drafter.read_prompt(hidden)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        tree = self.first.propose(context, budget, rng)
        self.match_len = self.first.match_len if tree.size else 0
        return tree if tree.size else self.second.propose(context, budget, rng)

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        self.first.observe(context, tree, verdict, out)
        self.second.observe(context, tree, verdict, out)


def in_turn(names: str, context: Context) -> Drafter:
    """The drafter of a name; of names such as "a>b>c" the cascade of their drafters."""
    drafters = [build(name, context) for name in names.split(">")]
    return reduce(lambda second, first: Cascade(first, second), reversed(drafters))
