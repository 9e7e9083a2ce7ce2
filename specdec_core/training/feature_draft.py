"""Training the module of MTP and EAGLE (`drafters.feature_net`): the loss, and what is counted on held-out text."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..drafters.feature_net import FeatureDraft, Frozen
from .corpus import Batch


class FeatureObjective:
    """What is minimized, and what is counted on held-out text.

    The drafted law is brought near the target's (over the K tokens) at each step; EAGLE's states are brought near
    the target's as well (its smooth L1).

    Args:
        module: a `FeatureDraft`.
        steps: how deep the module is trained on its own outputs.
        regression: weight of the states' loss; 0 leaves it out.
    """

    def __init__(self, module: FeatureDraft, steps: int, regression: float):
        self.module, self.steps, self.regression = module, steps, regression

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        laws = target_laws(self.module.frozen, batch.hidden)
        states, found = batch.hidden, {}
        for step, drafted in enumerate(self.module(batch.tokens, states, self.steps)):
            weights = batch.weights(step + 2)
            used = weights > 0  # the others are not projected: the projection is half of the work
            weights, drafted = weights[used], drafted[used]
            total = weights.sum().clamp(min=1)
            logs = F.log_softmax(self.module.project(drafted).float(), -1)
            found[f"law_{step + 1}"] = -((laws.roll(-1 - step, 1)[used] * logs).sum(-1) * weights).sum() / total
            if self.regression:
                away = F.smooth_l1_loss(drafted.float(), states.roll(-1 - step, 1)[used].float(), reduction="none")
                found[f"state_{step + 1}"] = self.regression * (away.mean(-1) * weights).sum() / total
        return found

    @torch.no_grad()
    def hits(self, batch: Batch, depth: int) -> torch.Tensor:
        """(2, depth): at each depth, drafts tested (all before them right) and accepted, where answers are greedy."""
        guesses = [
            self.module.frozen.ids[self.module.project(drafted).argmax(-1)]
            for drafted in self.module(batch.tokens, batch.hidden, depth)
        ]
        return count_hits(batch, guesses)


def target_laws(frozen: Frozen, hidden: torch.Tensor) -> torch.Tensor:
    """(B, L, K) the target's laws after each token, over the tokens that can be drafted."""
    with torch.no_grad():
        return F.linear(hidden, frozen.head.to(hidden.dtype)).float().softmax(-1)


def count_hits(batch: Batch, guesses: list[torch.Tensor]) -> torch.Tensor:
    """(2, depth) tested and accepted; ``guesses[d]`` (B, L) are drafts of the token d + 2 places on."""
    length, counts = batch.tokens.shape[1], torch.zeros(2, len(guesses))
    alive = batch.greedy[:, None].expand(-1, length)
    for step, guess in enumerate(guesses):
        shift = step + 2
        answers = batch.weights(shift, users=0.0) > 0
        alive = alive & answers
        right = alive & (guess == batch.tokens.roll(-shift, 1))
        counts[0, step], counts[1, step] = alive.sum(), right.sum()
        alive = right
    return counts
