"""What a drafter that weighs its own cost needs to be built: t(q) of the target here, and the time of a draft."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from ..core.contract import LanguageModel
from ..core.sampling import Sampling
from ..drafters.methods import Context
from ..model.chat import Tokenizer
from .costs import Costs, measure_costs
from .draft_cost import draft_seconds


def context_for(
    lm: LanguageModel,
    sampling: Sampling | None = None,
    costs: Costs | None = None,
    tokenizer: Tokenizer | None = None,
    weights_hash: Callable[[], str] | None = None,
) -> Context:
    """A `Context` whose t(q) is `Costs.extended` of ``costs``, or else is measured when it is first asked for.

    Args:
        lm: the target.
        sampling: how it is sampled; greedy by default.
        costs: t(q) of ``lm`` here.
        tokenizer, weights_hash: of a target that is not made of a loaded model.
    """
    sampling = sampling or Sampling()

    @cache
    def known() -> Costs:
        return costs or _measured(lm)

    draft = partial(draft_seconds, lm, sampling=sampling)
    return Context(lm, sampling, lambda q: known().extended(q), draft, tokenizer, weights_hash)


def _measured(lm: LanguageModel) -> Costs:
    widths = [q for q in (1, 2, 4, 8, 16, 32, 64) if q <= lm.max_length // 2]
    return measure_costs(lm, widths, context=min(128, lm.max_length // 2), repeats=3)
