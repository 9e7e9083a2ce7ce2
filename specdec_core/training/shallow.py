"""Distilling a draft model (`drafters.shallow_net`): what is minimized, and what is counted on held-out text."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..drafters.shallow_net import ShallowDraft
from .corpus import Batch
from .feature_draft import count_hits, target_laws


class ShallowObjective:
    """What is minimized, and what is counted on held-out text: a draft's law against the target's at each place.

    The loss is the cross-entropy of the target's law, over the K tokens, with the draft's: the Kullback-Leibler
    divergence and a constant.

    Args:
        module: a `ShallowDraft`.
    """

    def __init__(self, module: ShallowDraft):
        self.module = module

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        laws, weights = target_laws(self.module.frozen, batch.hidden), batch.weights(1)
        logs = F.log_softmax(self.module(batch.tokens).float(), -1)
        return {"law": -((laws * logs).sum(-1) * weights).sum() / weights.sum().clamp(min=1)}

    @torch.no_grad()
    def hits(self, batch: Batch, depth: int) -> torch.Tensor:
        """(2, depth): at each depth, drafts tested (all before them right) and accepted, where answers are greedy.

        The draft model has read the token after place i before it drafts. A draft further on is tested only if
        those before it were the answer's own tokens, so that its law is the one of the answer read so far.
        """
        best = self.module.frozen.ids[self.module(batch.tokens).argmax(-1)]
        return count_hits(batch, [best.roll(-1 - step, 1) for step in range(depth)])
