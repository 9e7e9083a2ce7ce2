"""Medusa's heads (arXiv:2401.10774, section 2.1): from one state of the target, guesses of several tokens ahead.

After the target has read tokens t_0 ... t_i, its state f_i gives the law of t_{i+1}. Head k = 1, 2, ... reads the same
f_i and guesses t_{i+1+k}, without knowing the tokens between: all heads answer at once, and none hears the others.

In the paper a head is a residual block and a vocabulary projection of its own. Here all heads share the target's own
projection, cut to the K tokens that may be drafted, and each turns its state by a small matrix of its own before it:
the projection is by far the largest part of a head, and sharing it keeps the file small.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .corpus import Batch, Corpus
from .feature_draft import Frozen, count_hits, target_laws

TOP = 10  # guesses of a head whose accuracy is measured
DECAY = 0.8  # a head's loss counts so much less than that of the head before it (section 2.2.1)


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
        self.turns = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(heads * turn))
        for matrix in self.turns:
            nn.init.eye_(matrix.weight)

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


class MedusaObjective:
    """What is minimized, and what is counted on held-out text.

    Each head's law is brought near the target's own at the place it guesses (over the K tokens); the paper's heads
    learn the token that stands there.

    Args:
        module: the heads.
    """

    def __init__(self, module: MedusaHeads):
        self.module = module

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        laws, found = target_laws(self.module.frozen, batch.hidden), {}
        states = batch.hidden.to(torch.bfloat16 if batch.hidden.dtype == torch.bfloat16 else torch.float32)
        for head in range(len(self.module.heads)):
            weights = batch.weights(head + 2)
            # Rows that do not count are not projected: the projection is nearly all of the work.
            used = weights > 0
            logs = F.log_softmax(self.module.logits(head, states[used]).float(), -1)
            crossed = -(laws.roll(-1 - head, 1)[used] * logs).sum(-1)
            mean = (crossed * weights[used]).sum() / weights.sum().clamp(min=1)
            found[f"law_{head + 1}"] = DECAY**head * mean
        return found

    @torch.no_grad()
    def hits(self, batch: Batch, depth: int) -> torch.Tensor:
        """(2, depth): the heads' best guesses as a chain, tested (all before right) and accepted, on greedy answers.

        Depths beyond the last head are never tested.
        """
        counts = torch.zeros(2, depth)
        heads = range(min(depth, len(self.module.heads)))
        guesses = [self.module.frozen.ids[self.module.logits(head, batch.hidden).argmax(-1)] for head in heads]
        counts[:, : len(guesses)] = count_hits(batch, guesses)
        return counts

    @torch.no_grad()
    def ranked_hits(self, batch: Batch, depth: int, top: int) -> torch.Tensor:
        """(depth, top + 1): how often the answer is a head's first, second, ... guess; last, how often none of them.

        A head is tested at every token of a greedy answer, whatever the heads before it guessed, so a row's sum is
        the number of tests.

        Args:
            depth: heads counted, at most H.
            top: guesses of each.
        """
        counts = torch.zeros(depth, top + 1)
        for head in range(depth):
            used = (batch.weights(head + 2, users=0.0) > 0) & batch.greedy[:, None]
            answers = batch.tokens.roll(-head - 2, 1)[used]
            best = self.module.logits(head, batch.hidden[used]).topk(top, -1).indices
            right = self.module.frozen.ids[best] == answers[:, None]
            counts[head, :top] = right.sum(0)
            counts[head, top] = len(answers) - right.sum()
        return counts

    def tables(self, corpus: Corpus, device: str = "cpu", top: int = TOP) -> dict[str, torch.Tensor]:
        """What goes into the weight file beside the weights: "accuracy" (H, R) float64, for the tree search.

        ``accuracy[k, r]`` is the share of held-out greedy answer tokens that are head k's guess of rank r;
        R is ``top``, or K where there are not so many tokens.
        """
        heads, rows, top = len(self.module.heads), corpus.measured, min(top, len(self.module.frozen.ids))
        counts = torch.zeros(heads, top + 1, dtype=torch.float64)
        self.module.eval()
        for start in range(0, len(rows), 4):
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                counts += self.ranked_hits(corpus.batch(rows[start : start + 4], device), heads, top)
        self.module.train()
        return {"accuracy": counts[:, :top] / counts.sum(-1, keepdim=True).clamp(min=1)}
