"""What a race says about a method's gain: expected from its steps and from t(q), and measured.

Both are functions of the rounds alone. `predict` puts the counted steps into the hit-rate model with this machine's
costs, `measure` takes the ratio of the clock times and its spread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .. import theory
from ..core.trace import Steps
from ..drafters.methods import BASELINE
from ..measure.costs import Costs
from ..theory import alpha_for
from .results import ALL, Race


@dataclass(frozen=True)
class Prediction:
    """A gain expected from counts and costs, and where it ends. Decoding only: prefill costs all methods the
    same.

    Attributes:
        speedup: over autoregressive decoding.
        t_hit, t_miss, t_1: seconds of the target forward in a step with and without a draft; of an
            autoregressive step as a whole.
        t_draft: seconds of everything else in a step of the method.
        least_hit_rate: at the acceptance seen, a lower hit rate loses; see `theory.break_even_hit_rate`.
        least_accepted: at the hit rate seen, fewer tokens accepted per draft lose.
        least_alpha: the same as the probability that a drafted token is accepted, if each had the same one;
            infinite where none is enough.
    """

    speedup: float
    t_hit: float
    t_miss: float
    t_1: float
    t_draft: float
    least_hit_rate: float
    least_accepted: float
    least_alpha: float


def predict(method: Steps, baseline: Steps, t: Callable[[int], float]) -> Prediction:
    """Put counted steps into the hit-rate model (`theory.hit_rate_speedup`).

    Args:
        method, baseline: counted over the same rounds.
        t: seconds of a forward of q rows, such as `Costs.t`.

    Raises:
        ValueError: if t is not known for as many rows as some step had, or the method never drafted.

    Example:
        >>> plain = Steps({}, {1: 100}, tokens=100)
        >>> lookup = Steps({3: 50}, {1: 50}, tokens=176, accepted=76, depth=2.0)
        >>> found = predict(lookup, plain, t={1: 1.0, 3: 1.2}.__getitem__)
        >>> round(found.speedup, 4), found.least_hit_rate, round(found.least_accepted, 4)
        (1.6, 0.0, 0.2)
    """
    if not method.hits:
        raise ValueError("a method that never drafted has no gain to predict")
    t_1 = t(1) + baseline.other_seconds
    t_hit, t_draft = _mean(method.hit_rows, t), method.other_seconds
    t_miss = _mean(method.miss_rows, t) if method.misses else t_hit
    coverage, accepted = method.hit_rate, method.accepted_per_hit
    seconds = coverage * t_hit + (1 - coverage) * t_miss + t_draft
    # hit_rate_speedup = 1, solved for the accepted tokens.
    least = max(0.0, (seconds / t_1 - 1) / coverage)
    gamma = max(1, round(method.depth))
    return Prediction(
        speedup=theory.hit_rate_speedup(coverage, accepted, t_hit, t_miss, t_1, t_draft),
        t_hit=t_hit,
        t_miss=t_miss,
        t_1=t_1,
        t_draft=t_draft,
        least_hit_rate=theory.break_even_hit_rate(accepted, t_hit, t_miss, t_1, t_draft),
        least_accepted=least,
        least_alpha=alpha_for(1 + least, gamma) if least <= gamma else float("inf"),
    )


def best_length(method: Steps, costs: Costs) -> int:
    """The length of a chain that these acceptances and t(q) ask for; 0 where none pays.

    Depths tested fewer than five times are left out: too little is known there.

    Example:
        >>> costs = Costs(0, 1, (1, 9), (1.0, 1.8), (1.0, 1.8), (1.0, 1.8))
        >>> best_length(Steps({4: 9}, {}, tokens=22, by_depth=((8, 9), (4, 8), (1, 4))), costs)
        2
    """
    known = [alpha for alpha, (_, tested) in zip(method.alphas, method.by_depth, strict=True) if tested >= 5]
    return theory.best_gamma_measured(known[: costs.widths[-1] - 1], costs.t)


def _mean(rows: Mapping[int, int], t: Callable[[int], float]) -> float:
    return sum(count * t(q) for q, count in rows.items()) / sum(rows.values())


@dataclass(frozen=True)
class Gain:
    """A measured speedup with its spread.

    Attributes:
        speedup: median over the repeats of the tokens per second over the baseline's, prefill included; over
            all tasks the geometric mean of theirs.
        low, high: smallest and largest, of ``count`` values each from all the questions once, or, with a
            single repeat, from one question each.
        over: "repeats" or "questions".
    """

    speedup: float
    low: float
    high: float
    count: int
    over: str = "repeats"

    @property
    def certain(self) -> bool:
        """Whether the gain is beyond its spread.

        The smallest of at least three values, lowered by half the width of the spread, must still be a gain.
        Those of single questions differ not by noise alone: five or more that all gained are enough.

        Example:
            >>> Gain(1.3, 1.25, 1.38, 3).certain, Gain(1.02, 1.001, 1.06, 3).certain
            (True, False)
        """
        if self.over == "questions" and self.count >= 5:
            return self.low > 1
        return self.count >= 3 and self.low - (self.high - self.low) / 2 > 1


def measure(race: Race, method: str, task: str = ALL) -> Gain:
    """The gain of a method over the questions of one task, or of all.

    Example:
        >>> from .rounds import Answer, Round
        >>> def repeat(number, seconds):
        ...     answers = {BASELINE: Answer((7,) * 6, 6.0, 6, 0), "m": Answer((7,) * 6, seconds, 6, 0)}
        ...     return Round("q", "t", 0, number, (1,), answers)
        >>> rounds = [repeat(number, seconds) for number, seconds in enumerate((2.0, 3.0, 4.0))]
        >>> measure(Race((BASELINE, "m"), rounds), "m")
        Gain(speedup=2.0, low=1.5, high=3.0, count=3, over='repeats')
    """
    row = race.row(method, task)
    if row.repeats > 1:
        return Gain(row.speedup, row.speedup_low, row.speedup_high, row.repeats)
    ratios = by_question(race, method, task)
    return Gain(row.speedup, min(ratios), max(ratios), len(ratios), "questions")


def by_question(race: Race, method: str, task: str = ALL) -> list[float]:
    """The speedup of each question, over all its turns and repeats."""
    rounds = [r for r in race.rounds if task in (r.task, ALL)]

    def rate(name: str, question: str) -> float:
        answers = [r.answers[name] for r in rounds if r.question == question]
        return sum(len(answer.tokens) for answer in answers) / sum(answer.seconds for answer in answers)

    return [rate(method, q) / rate(BASELINE, q) for q in dict.fromkeys(r.question for r in rounds)]
