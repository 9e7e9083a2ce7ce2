"""Multi-token prediction: the module of DeepSeek-V3 (arXiv:2412.19437, section 2.2) drafts a chain.

It joins the normalized state and embedding, and its output is normalized before the target's own projection. It is
trained for one token ahead and used for several: there it reads its own output in place of the state that the target
has not computed yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.arguments import whole
from ..core.contract import Budget
from ..core.rng import Rng
from ..core.sampling import Sampling
from ..core.tree import DraftTree
from .feature import Continues, FeatureDrafter, load
from .methods import Context


class MTP(FeatureDrafter):
    """Proposes ``num_tokens`` tokens, each from the state that the module made of the one before. Lossless.

    Greedy, each is the module's best; when sampling it is drawn from q, processed as the target's law is.

    Args:
        model, vocab_size, sampling: see `FeatureDrafter`.
        num_tokens: gamma, at least 1.

    Raises:
        ValueError: for ``num_tokens`` below 1.
    """

    name = "mtp"

    def __init__(self, model: Continues, vocab_size: int, num_tokens: int = 3, sampling: Sampling | None = None):
        super().__init__(model, vocab_size, sampling)
        self.num_tokens = self.max_nodes = whole("num_tokens", num_tokens, 1)

    @classmethod
    def build(cls, context: Context, num_tokens: int = 3, weights: str = "mtp") -> MTP:
        """From trained weights: the name of a file that comes with the package, or a path; see `feature.load`."""
        model = load(weights, context.cached(), context.weights_hash)
        return cls(model, context.lm.vocab_size, num_tokens, context.sampling)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        return self._chain(context, budget, self.num_tokens, rng)
