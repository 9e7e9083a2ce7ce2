"""The distribution of a drafter whose vocabulary projection stands for some of the target's tokens only (FR-Spec,
arXiv:2502.14856): q is 0 at all others, which verification allows of any q.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..base.arguments import vector, whole
from ..core.sampling import Sampling, largest, refuse_broken


class Reduced:
    """From the K logits of such a drafter to its law q (its distribution of the next token).

    q is processed as the target's law is: penalties, which look at the whole context, then temperature and truncation.

    Args:
        ids: (K,) the tokens that the rows of the projection stand for, each once, in any order.
        vocab_size: V of the target.
        sampling: as the target is sampled; greedy by default.

    Raises:
        ValueError: for ids that are not tokens of the target, each once.

    Example:
        >>> reduced = Reduced(np.array([3, 1]), vocab_size=4, sampling=Sampling(temperature=1.0))
        >>> logits = torch.tensor([0.0, 0.0])
        >>> reduced.law(logits, [0], prompt_length=1).tolist()
        [0.5, 0.5]
        >>> reduced.whole_law(logits, [0], prompt_length=1).tolist()
        [0.0, 0.5, 0.0, 0.5]
        >>> reduced.best(torch.tensor([1.0, 2.0]), [0], prompt_length=1)
        1
    """

    def __init__(self, ids: np.ndarray, vocab_size: int, sampling: Sampling | None = None):
        self.ids, self.vocab_size = vector("ids", ids), whole("vocab_size", vocab_size, 1)
        self.sampling = sampling or Sampling()
        if len(np.unique(self.ids)) < len(self.ids) or self.ids.min() < 0 or self.ids.max() >= vocab_size:
            raise ValueError(f"ids must be tokens 0 ... {vocab_size - 1} of the target, each once")

    def scores(self, logits: torch.Tensor, context: Sequence[int], prompt_length: int) -> np.ndarray:
        """(K,) float64 logits after the penalties.

        Args:
            logits: (K,) after ``context``.
            context: tokens, drafted ones included.
            prompt_length: how many of them are the prompt.
        """
        scores = logits.cpu().double().numpy()
        if self.sampling.penalizes:
            scores = self.sampling.penalize(self.spread(scores), context, context[prompt_length:])[self.ids]  # (K,)
        return scores

    def law(self, logits: torch.Tensor, context: Sequence[int], prompt_length: int) -> np.ndarray:
        """(K,) q of the K tokens; arguments as for `scores`."""
        return self.sampling.law(self.scores(logits, context, prompt_length), place(context))

    def whole_law(self, logits: torch.Tensor, context: Sequence[int], prompt_length: int) -> np.ndarray:
        """(V,) q of all tokens of the target, for who draws in their order; arguments as for `scores`."""
        scores = self.spread(self.scores(logits, context, prompt_length), -np.inf)
        return self.sampling.law(scores, place(context))

    def best(self, logits: torch.Tensor, context: Sequence[int], prompt_length: int) -> int:
        """The likeliest token, the first row of equal ones; arguments as for `scores`."""
        if self.sampling.penalizes:
            logits = torch.from_numpy(self.scores(logits, context, prompt_length))
        row, top = largest(logits[None])
        refuse_broken(top[0], place(context))
        return int(self.ids[row[0]])

    def spread(self, values: np.ndarray, elsewhere: float = 0.0) -> np.ndarray:
        """(V,) with values (K,) at the K tokens, and ``elsewhere`` at all others."""
        whole = np.full(self.vocab_size, elsewhere)
        whole[self.ids] = values
        return whole


def place(context: Sequence[int]) -> str:
    """Where a drafter's logits after ``context`` stand, in words."""
    return f"of the draft model after position {len(context) - 1} (token {context[-1]})"
