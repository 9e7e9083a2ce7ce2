"""Training Medusa's heads (`drafters.medusa_net`): what is minimized, and what is counted on held-out text."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..drafters.medusa_net import MedusaHeads
from .corpus import Batch, Corpus
from .feature_draft import count_hits, target_laws

TOP = 10  # guesses of a head whose accuracy is measured
DECAY = 0.8  # a head's loss counts so much less than that of the head before it (section 2.2.1)


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
