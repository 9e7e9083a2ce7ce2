"""Where the answers of a race diverge from autoregressive decoding."""

from __future__ import annotations

from ..core.contract import LanguageModel
from ..drafters.methods import BASELINE
from ..measure.divergence import first_difference, logit_gap
from .rounds import Divergence, Race


def divergences(race: Race, lm: LanguageModel) -> list[Divergence]:
    """The first difference of every answer from the autoregressive answer of the first repeat, each once."""
    expected = {(r.question, r.turn): r.answers[BASELINE].tokens for r in race.rounds if r.repeat == 0}
    found: dict[tuple, Divergence] = {}
    for r in race.rounds:
        right = expected[r.question, r.turn]
        for name, answer in r.answers.items():
            if (at := first_difference(right, answer.tokens)) is None:
                continue
            pair = [tokens[at] if at < len(tokens) else None for tokens in (right, answer.tokens)]
            key = (name, r.question, r.turn, at, pair[1])
            if key not in found:
                gap = logit_gap(lm, [*r.prompt_ids, *right[:at]])
                found[key] = Divergence(name, r.question, r.task, r.turn, at, *pair, gap)
    return list(found.values())
