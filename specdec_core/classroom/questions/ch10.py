"""Chapter 10: the hit-rate model."""

from __future__ import annotations

import numpy as np

from ..question import Question, Slip


def _log(rng: np.random.Generator, steps: int, hit: float = 0.6) -> tuple[list[int], list[int]]:
    drafted = [int(rng.integers(1, 6)) if rng.random() < hit else 0 for _ in range(steps)]
    return drafted, [int(rng.integers(0, d + 1)) for d in drafted]


def _logs(rng: np.random.Generator) -> list[tuple]:
    cases = [_log(rng, n) for n in (5, 10, 30, 30)]
    return [([0, 4, 2, 0], [0, 3, 0, 0]), ([0, 0], [0, 0]), ([1], [1]), *cases]


def _coverage(drafted: list[int]) -> float:
    return sum(d > 0 for d in drafted) / len(drafted)


def _rates(drafted: list[int], accepted: list[int]) -> tuple[float, float]:
    hits = [a for d, a in zip(drafted, accepted, strict=True) if d]
    return _coverage(drafted), sum(a > 0 for a in hits) / len(hits) if hits else 0.0


RATES = Question(
    "10.1", "rates", ("drafted", "accepted"), _logs, right=_rates, like=(0.0, 0.0),
    returns="the pair (coverage, regularity)", slips=(
        Slip("the second is a share of the steps with a draft, not of all steps: this is the product of the two.",
             lambda d, a: (_coverage(d), sum(x > 0 for x in a) / len(a))),
        Slip("the second asks whether the first drafted token was accepted; this is accepted over drafted tokens, "
             "which mixes all depths.", lambda d, a: (_coverage(d), sum(a) / sum(d) if sum(d) else 0.0)),
        Slip("the second is how many tokens a hit brings; how often its first token is right is asked for.",
             lambda d, a: (_coverage(d), sum(a) / sum(x > 0 for x in d) if sum(d) else 0.0)),
        Slip("the first counts the steps in which something was accepted; that a draft was found is enough.",
             lambda d, a: (sum(x > 0 for x in a) / len(a), _rates(d, a)[1])),
        Slip("the two have changed places.", lambda d, a: _rates(d, a)[::-1]),
        Slip("where nothing was ever drafted the second is 0 by agreement, not a division by zero.",
             lambda d, a: (_coverage(d), _rates(d, a)[1] if sum(d) else np.nan)),
))


def _models(rng: np.random.Generator) -> list[tuple]:
    cases = [(float(rng.uniform(0.1, 1)), [float(r) for r in rng.uniform(0.1, 1, n)]) for n in (1, 2, 3, 5)]
    return [(0.5, [0.8, 0.9]), (0.0, [0.5]), (1.0, []), *cases]


def _tokens(coverage: float, r: list[float]) -> float:
    return 1 + coverage * float(np.cumprod(r).sum())


TOKENS = Question(
    "10.2", "tokens_per_step", ("coverage", "regularities"), _models, right=_tokens, returns="a number", slips=(
        Slip("coverage enters once: if token i − 1 of a draft was accepted there was a draft. Here the memory loses "
             "it afresh at every depth.", lambda c, r: 1 + float(np.cumprod([c * x for x in r]).sum())),
        Slip("the target's own token is missing: a step without a hit writes one, too.",
             lambda c, r: _tokens(c, r) - 1),
        Slip("token i counts only if all before it were accepted: multiply the regularities down to it.",
             lambda c, r: 1 + c * sum(r)),
        Slip("this is the tokens of a hit; not every step has one.", lambda c, r: _tokens(1.0, r)),
        Slip("this is the chance that all of a draft is accepted; shorter parts of it count as well.",
             lambda c, r: 1 + c * float(np.prod(r)) * len(r)),
        Slip("coverage multiplies the target's own token as well; that one comes in every step.",
             lambda c, r: c * _tokens(1.0, r)),
))


def _times(rng: np.random.Generator) -> list[tuple]:
    cases = map(tuple, np.column_stack([rng.uniform(0, 3, 8), rng.uniform(1, 3, 8), rng.uniform(0, 0.3, 8)]).tolist())
    return [(1.5, 1.3, 0.1), (0.2, 1.5, 0.1), (0.5, 1.5, 0.0), (2.0, 1.2, 0.0), (0.1, 1.9, 0.0), *cases]


def _even(a: float, r: float, lookup: float) -> float:
    if lookup == 0 and a >= r - 1:
        return 0.0
    gained = a - (r - 1)
    return lookup / gained if gained > 0 else float("inf")


def _zero(a: float, r: float, lookup: float, wrong: float) -> float:
    """A slip that shows only where a lookup costs and a hit gains."""
    return wrong if lookup > 0 and a > r - 1 else _even(a, r, lookup)


EVEN = Question(
    "10.3", "break_even", ("a", "r", "lookup"), _times, right=_even, returns="a number", slips=(
        Slip("a hit that gains nothing can never pay, however often it comes: there the answer is infinity.",
             lambda a, r, s: s / (a - (r - 1)) if s else _even(a, r, s)),
        Slip("a hit that gains nothing can never pay, however often it comes: there the answer is infinity.",
             lambda a, r, s: s / abs(a - (r - 1)) if s else _even(a, r, s)),
        Slip("a hit that gains nothing can never pay, not even at coverage 1: there the answer is infinity.",
             lambda a, r, s: min(1.0, _even(a, r, s))),
        Slip("the time that a hit takes longer, r − 1, has to be earned first.", lambda a, r, s: s / a),
        Slip("the lookup is paid in every step; here it is paid at hits only.",
             lambda a, r, s: 0.0 if a >= r - 1 + s else float("inf")),
        Slip("the ratio is upside down: what every step pays, over what a hit gains.",
             lambda a, r, s: _zero(a, r, s, (a - r + 1) / s if s else 0.0)),
        Slip("a hit takes r − 1 longer than an ordinary step, not r: the ordinary step is taken anyhow.",
             lambda a, r, s: _zero(a, r, s, s / (a - r) if a > r else float("inf"))),
))


def _traces(rng: np.random.Generator) -> list[tuple]:
    cases = []
    while len(cases) < 9:
        wanted = ("memory", "agreement", "forward")[len(cases) % 3]
        drafted, accepted = _log(rng, 12, hit=float(rng.uniform(0.2, 0.95)))
        times = [1.0 + (float(rng.uniform(0, 0.6)) * d if d else 0.0) for d in drafted]
        gains = sorted(_gains(drafted, accepted, times).values())
        if any(drafted) and gains[-1] > 1.1 * gains[-2] and _limit(drafted, accepted, times) == wanted:
            cases.append((drafted, accepted, times))
    return cases


def _gains(drafted: list[int], accepted: list[int], times: list[float]) -> dict[str, float]:
    """The speed after each of the three improvements, in tokens for a time."""
    hits = [i for i, d in enumerate(drafted) if d]
    n = len(drafted)
    return {
        "memory": sum(1 + accepted[i] for i in hits) / sum(times[i] for i in hits) if hits else 0.0,
        "agreement": (n + sum(drafted)) / sum(times),
        "forward": (n + sum(accepted)) / n,
    }


def _limit(drafted: list[int], accepted: list[int], times: list[float]) -> str:
    gains = _gains(drafted, accepted, times)
    return max(gains, key=gains.get)


def _smallest(drafted: list[int], accepted: list[int], times: list[float]) -> str:
    shares = {"memory": _coverage(drafted), "agreement": sum(accepted) / sum(drafted),
              "forward": len(times) / sum(times)}
    return min(shares, key=shares.get)


def _per_step(drafted: list[int], accepted: list[int], times: list[float]) -> str:
    gains = _gains(drafted, accepted, [1.0] * len(times))
    gains["forward"] = 0.0
    return max(gains, key=gains.get)


LIMIT = Question(
    "10.4", "limit", ("drafted", "accepted", "times"), _traces, right=_limit,
    returns="one of the words 'memory', 'agreement', 'forward'", slips=(
        Slip("this takes the smallest of the three shares; what counts is the speed that each improvement would bring.",
             _smallest),
        Slip("this counts tokens per step; an improvement that brings hits brings their longer forwards as well, so "
             "divide by time.", _per_step),
        Slip("this is the improvement that would bring least.",
             lambda *case: min(_gains(*case), key=_gains(*case).get)),
        Slip("it always says 'memory'; read the trace.", lambda *case: "memory"),
        Slip("it always says 'agreement'; read the trace.", lambda *case: "agreement"),
        Slip("it always says 'forward'; read the trace.", lambda *case: "forward"),
))

QUESTIONS = (RATES, TOKENS, EVEN, LIMIT)
