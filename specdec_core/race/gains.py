"""What a race says about a method's gain: measured, and expected from its steps and from t(q).

Both are functions of the rounds alone. `steps` counts what the decode steps were like, `predict` puts the
counts into the hit-rate model with this machine's costs, `measure` takes the ratio of the clock times and its
spread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .. import theory
from ..core.trace import PHASES
from ..drafters.methods import BASELINE
from ..measure.costs import Costs
from ..theory import alpha_for
from . import results
from .record import STEP
from .rounds import Race, Round


@dataclass(frozen=True)
class Steps:
    """The decode steps of one method, counted.

    A *hit* is a step with a candidate to test.

    Attributes:
        hits, misses: how many steps of each kind.
        accepted: draft tokens accepted, of all steps.
        hit_rows, miss_rows: rows of the target forward -> steps that had as many.
        depth: mean depth of the drafts, over hits; 0 without any.
        other_seconds: mean time of a step outside the forward: drafting, verifying, bookkeeping.
        forward_seconds: mean time of the forward, as the clock had it.
        by_depth: (accepted, tested) at depth 1, 2, ...
    """

    hits: int
    misses: int
    accepted: int
    hit_rows: dict[int, int]
    miss_rows: dict[int, int]
    depth: float
    other_seconds: float
    forward_seconds: float
    by_depth: tuple[tuple[int, int], ...] = ()

    @property
    def hit_rate(self) -> float:
        """Coverage: hits / steps."""
        return self.hits / (self.hits + self.misses)

    @property
    def accepted_per_hit(self) -> float:
        """A of the hit-rate model; 0 without a hit."""
        return self.accepted / self.hits if self.hits else 0.0

    @property
    def alphas(self) -> list[float]:
        """Acceptance by depth, given that a token was tested there."""
        return [accepted / tested for accepted, tested in self.by_depth]


def steps(rounds: Iterable[Round], method: str) -> Steps:
    """Count the steps that a method of ours took in some rounds.

    Raises:
        ValueError: if it took none.
    """
    hit_rows: Counter[int] = Counter()
    miss_rows: Counter[int] = Counter()
    accepted, depth = 0, 0
    microseconds = np.zeros(len(PHASES))
    by_depth = np.zeros((0, 2), int)
    for r in rounds:
        answer = r.answers[method]
        for values in json.loads(answer.trace)["steps"] if answer.trace else ():
            step = dict(zip(STEP, values, strict=True))
            rows = 1 + len(step["drafted"])
            hit = rows - 1 > len(step["scratch"])
            (hit_rows if hit else miss_rows)[rows] += 1
            accepted += len(step["accepted"])
            depth += _depth(step) if hit else 0
            microseconds += step["microseconds"]
        counts = np.array(answer.depths, int).reshape(-1, 2)
        by_depth = np.pad(by_depth, ((0, max(0, len(counts) - len(by_depth))), (0, 0)))
        by_depth[: len(counts)] += counts
    hits, misses = hit_rows.total(), miss_rows.total()
    if not hits + misses:
        raise ValueError(f"{method!r} took no step of ours in these rounds")
    forward = float(microseconds[PHASES.index("forward")])
    return Steps(
        hits=hits,
        misses=misses,
        accepted=accepted,
        hit_rows=dict(sorted(hit_rows.items())),
        miss_rows=dict(sorted(miss_rows.items())),
        depth=depth / hits if hits else 0.0,
        other_seconds=(float(microseconds.sum()) - forward) / (hits + misses) / 1e6,
        forward_seconds=forward / (hits + misses) / 1e6,
        by_depth=tuple((int(kept), int(tested)) for kept, tested in by_depth),
    )


def _depth(step: dict) -> int:
    """Of the deepest candidate."""
    parents, scratch = step["parents"], set(step["scratch"])
    if parents is None:
        return len(step["drafted"])
    depths = [0]
    for row in range(1, len(parents)):
        depths.append(depths[parents[row]] + 1)
    return max(depth for row, depth in enumerate(depths) if row not in scratch)


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
        least_accepted: at the hit rate seen, fewer tokens accepted a draft lose.
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

    >>> plain = Steps(0, 100, 0, {}, {1: 100}, 0.0, other_seconds=0.0, forward_seconds=1.0)
    >>> lookup = Steps(50, 50, 76, {3: 50}, {1: 50}, 2.0, other_seconds=0.0, forward_seconds=1.1)
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

    >>> costs = Costs(0, 1, (1, 9), (1.0, 1.8), (1.0, 1.8), (1.0, 1.8))
    >>> best_length(Steps(9, 0, 9, {4: 9}, {}, 3.0, 0.0, 1.0, ((8, 9), (4, 8), (1, 4))), costs)
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
        speedup: median over the repeats of the tokens a second over the baseline's, prefill included; over
            all tasks the geometric mean of theirs.
        low, high: smallest and largest, of ``count`` values each from all the questions once, or, with a
            single repeat, from one question each.
        over: "repeats" or "questions".
    """

    speedup: float
    low: float
    high: float
    count: int
    over: str = field(default="repeats")

    @property
    def certain(self) -> bool:
        """Whether the gain is beyond its spread.

        The smallest of at least three values, lowered by half the width of the spread, must still be a gain.
        Those of single questions differ not by noise alone: five or more that all gained are enough.

        >>> Gain(1.3, 1.25, 1.38, 3).certain, Gain(1.02, 1.001, 1.06, 3).certain
        (True, False)
        """
        if self.over == "questions" and self.count >= 5:
            return self.low > 1
        return self.count >= 3 and self.low - (self.high - self.low) / 2 > 1


def measure(race: Race, method: str) -> Gain:
    """The gain of a method over all questions of a race.

    >>> from .rounds import Answer
    >>> def answer(seconds):
    ...     return Answer((7,) * 6, seconds, 6, 0, 0.0, dict.fromkeys(PHASES, seconds / 5))
    >>> def repeat(number, seconds):
    ...     return Round("q", "t", 0, number, (1,), {BASELINE: answer(6.0), "m": answer(seconds)})
    >>> rounds = [repeat(number, seconds) for number, seconds in enumerate((2.0, 3.0, 4.0))]
    >>> measure(Race((BASELINE, "m"), rounds), "m")
    Gain(speedup=2.0, low=1.5, high=3.0, count=3, over='repeats')
    """
    row, detail = _all_tasks(race, method)
    if detail["repeats"] > 1:
        return Gain(row["speedup"], row["speedup_low"], row["speedup_high"], detail["repeats"])
    ratios = by_question(race.rounds, method)
    return Gain(row["speedup"], min(ratios), max(ratios), len(ratios), "questions")


def by_question(rounds: Sequence[Round], method: str) -> list[float]:
    """The speedup of each question, over all its turns and repeats."""

    def rate(name: str, question: str) -> float:
        answers = [r.answers[name] for r in rounds if r.question == question]
        return sum(len(answer.tokens) for answer in answers) / sum(answer.seconds for answer in answers)

    return [rate(method, q) / rate(BASELINE, q) for q in dict.fromkeys(r.question for r in rounds)]


def _all_tasks(race: Race, method: str) -> tuple[dict, dict]:
    both = zip(results.rows(race), results.details(race), strict=True)
    return next(
        (row, detail) for row, detail in both if (row["method"], row["task"]) == (method, results.ALL)
    )
