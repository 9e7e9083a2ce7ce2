"""Medusa's heads (arXiv:2401.10774, section 2.1): from one state of the target, guesses of several tokens ahead.

After the target has read tokens t_0 ... t_i, its state f_i gives the distribution of t_{i+1}. Head k = 1, 2, ... reads
the same f_i and guesses t_{i+1+k}, without knowing the tokens between: all heads answer at once, and none hears the
others.

In the paper a head is a residual block and a vocabulary projection of its own. Here all heads share the target's own
projection, cut to the K tokens that may be drafted, and each turns its state by a small matrix of its own before it:
the projection is by far the largest part of a head, and sharing it keeps the file small.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .feature_net import Frozen


class Block(nn.Module):
    """x + SiLU(W x); W is zero at first, so a new block changes nothing."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.Module):
    """All heads of a target.

    Args:
        frozen: the target's head; its embedding is not read.
        heads: H, how many; head k (from 0) guesses the token k + 2 places after the last token read.
        blocks: residual blocks of each head.
        turn: end each head with a matrix M (D, D), the identity at first. With the shared projection E it is the
            head's own projection E M. SiLU hardly goes below zero, so without it a head could only add to its state.

    Raises:
        ValueError: for no head or no block.

    Example:
        >>> frozen = Frozen(torch.ones(5, 2), torch.ones(3, 2), torch.arange(3), None)
        >>> [tuple(logits.shape) for logits in MedusaHeads(frozen, heads=2)(torch.ones(1, 4, 2))]
        [(1, 4, 3), (1, 4, 3)]
    """

    def __init__(self, frozen: Frozen, heads: int = 4, blocks: int = 1, turn: bool = True):
        super().__init__()
        if heads < 1 or blocks < 1:
            raise ValueError(f"there must be a head, and a block in it; got heads={heads}, blocks={blocks}")
        self.frozen, dim = frozen, frozen.head.shape[1]
        self.extra_options = {"heads": heads, "blocks": blocks, "turn": turn}
        self.heads = nn.ModuleList(nn.Sequential(*(Block(dim) for _ in range(blocks))) for _ in range(heads))
        turns = [nn.Linear(dim, dim, bias=False) for _ in range(heads * turn)]
        for matrix in turns:
            nn.init.eye_(matrix.weight)
        self.turns = nn.ModuleList(turns)

    def states(self, head: int, hidden: torch.Tensor) -> torch.Tensor:
        """(..., D) what a head hands to the projection, from the target's states (..., D)."""
        found = self.heads[head](hidden)
        return self.turns[head](found) if self.turns else found

    def logits(self, head: int, hidden: torch.Tensor) -> torch.Tensor:
        """(..., K) logits of a head after the target's states (..., D)."""
        found = self.states(head, hidden)
        return F.linear(found, self.frozen.head.to(found.dtype))

    def forward(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """The logits of every head."""
        return [self.logits(head, hidden) for head in range(len(self.heads))]
