"""What every drafter is: three methods around a proposal, and a few facts about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..interface import LMOutput
from ..rng import Rng
from ..tree import DraftTree
from ..verify import Verdict


@dataclass(frozen=True)
class Budget:
    """How large a tree may be.

    Attributes:
        nodes: rows besides the root, scratch rows included.
        depth: edges on the longest path; limited by the room left in the model's context.
    """

    nodes: int
    depth: int


class Drafter(Protocol):
    """The contract between the loop and a method. Losslessness does not rest on it: verification does that.

    Attributes:
        name: what tables and plots call it.
        needs_hidden: True if `read_prompt` and `observe` need the target's hidden states.
        max_nodes: the budget it is given unless a run sets another.
        has_model: True if drafts are made by forwards of a model, and so cost time that counts.
    """

    name: str
    needs_hidden: bool
    max_nodes: int
    has_model: bool

    def reset(self, context: Sequence[int]) -> None:
        """Forget the last request; ``context`` is the prompt of the next one."""

    def read_prompt(self, hidden: torch.Tensor) -> None:
        """After `reset`, if ``needs_hidden``: the target's states (L, D) of the prompt, without its last token."""

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        """A tree rooted at ``context[-1]`` within ``budget``; `DraftTree.empty` where there is no draft."""

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        """Learn from a step: ``context`` already ends with ``verdict.tokens``."""


class DrafterBase:
    """Defaults for drafters that keep no state and look their drafts up."""

    name = "drafter"
    needs_hidden = False
    max_nodes = 64
    has_model = False

    def reset(self, context: Sequence[int]) -> None:
        pass

    def read_prompt(self, hidden: torch.Tensor) -> None:
        pass

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        pass
