"""Chapter 02: draft models."""

from __future__ import annotations

import numpy as np

from ..question import Question, Slip


def _paths(rng: np.random.Generator) -> list[tuple]:
    cases = [(float(a), int(g)) for a, g in zip(rng.uniform(0.1, 0.95, 8), rng.integers(1, 10, 8), strict=True)]
    return [(0.8, 4), (1.0, 3), (0.0, 5), (0.5, 0), *cases]


def _expected(alpha: float, gamma: int) -> float:
    return sum(alpha**i for i in range(gamma + 1))


EXPECTED = Question(
    "02.1", "expected_tokens", ("alpha", "gamma"), _paths, right=_expected, returns="a number", slips=(
        Slip("these are the accepted tokens; the target's own token comes in every step as well.",
             lambda a, g: _expected(a, g) - 1),
        Slip("this counts γ + 1 drafts; there are γ, and one token of the target's.", lambda a, g: _expected(a, g + 1)),
        Slip("this is for a draft without an end; here at most γ tokens are drafted.",
             lambda a, g: 1 / (1 - a) if a < 1 else np.inf),
        Slip("at α = 1 this divides by zero; all γ drafts are accepted there, and one token more is written.",
             lambda a, g: _expected(a, g) if a < 1 else np.nan),
        Slip("the tests are not independent of what came before: a token counts only if all before it were accepted.",
             lambda a, g: 1 + a * g),
        Slip("this is the chance that all γ drafts are accepted, times their number; shorter parts count as well.",
             lambda a, g: 1 + g * a**g),
))


def _settings(rng: np.random.Generator) -> list[tuple]:
    drawn = zip(rng.uniform(0.2, 0.95, 8), rng.integers(1, 8, 8), rng.uniform(0.01, 0.5, 8), strict=True)
    return [(0.8, 4, 0.1), (0.5, 0, 0.2), *((float(a), int(g), float(c)) for a, g, c in drawn)]


def _speedup(a: float, g: int, c: float) -> float:
    return _expected(a, g) / (g * c + 1)


SPEEDUP = Question(
    "02.2", "speedup", ("alpha", "gamma", "c"), _settings, right=_speedup, returns="a number", slips=(
        Slip("the draft model runs γ times in a step, one token after the other, not once.",
             lambda a, g, c: _expected(a, g) / (c + 1)),
        Slip("the target's own forward takes time as well: γ c + 1.",
             lambda a, g, c: _expected(a, g) / (g * c) if g else 1.0),
        Slip("the draft model runs γ times, not γ + 1 times: the bonus token is the target's.",
             lambda a, g, c: _expected(a, g) / ((g + 1) * c + 1)),
        Slip("the accepted tokens are not all that a step writes.",
             lambda a, g, c: (_expected(a, g) - 1) / (g * c + 1)),
        Slip("this is tokens per step; drafting takes time.", lambda a, g, c: _expected(a, g)),
        Slip("this is the inverse: time for a token.", lambda a, g, c: (g * c + 1) / _expected(a, g)),
))


def _choices(rng: np.random.Generator) -> list[tuple]:
    drawn = zip(rng.uniform(0.3, 0.95, 10), rng.uniform(0.02, 0.4, 10), rng.integers(3, 12, 10), strict=True)
    return [(0.3, 0.5, 8), (0.05, 0.4, 4), (0.9, 0.05, 20), *((float(a), float(c), int(m)) for a, c, m in drawn)]


def _best(a: float, c: float, most: int, least: int = 0, value=_speedup) -> int:
    return max(range(least, most + 1), key=lambda g: value(a, g, c))


BEST = Question(
    "02.3", "best_gamma", ("alpha", "c", "most"), _choices, right=_best, returns="a whole number", slips=(
        Slip("no draft at all, γ = 0, is a choice as well, and the best one where drafting costs more than it brings.",
             lambda a, c, m: _best(a, c, m, least=1)),
        Slip("this takes the γ with most tokens per step, which is always the largest; drafting takes time.",
             lambda a, c, m: m),
        Slip("`most` is a choice, too.", lambda a, c, m: _best(a, c, m - 1)),
        Slip("it counts one draft call per step; there are γ.",
             lambda a, c, m: _best(a, c, m, value=lambda a, g, c: _expected(a, g) / (1 + c * (g > 0)))),
        Slip("this is the γ of the slowest.", lambda a, c, m: _best(a, c, m, value=lambda *x: -_speedup(*x))),
))


def _logs(rng: np.random.Generator) -> list[tuple]:
    cases = [(rng.integers(0, gamma + 1, steps).tolist(), gamma) for gamma, steps in ((2, 6), (3, 20), (4, 30), (1, 5))]
    return [([3, 1, 0, 2, 3], 3), ([0, 0], 2), ([1, 1, 1], 3), *cases]


def _by_depth(accepted: list[int], gamma: int) -> np.ndarray:
    reached = [sum(k >= i for k in accepted) for i in range(gamma + 1)]
    return np.array([b / a if a else 0.0 for a, b in zip(reached, reached[1:], strict=False)])


DEPTH = Question(
    "02.4", "alpha_by_depth", ("accepted", "gamma"), _logs, right=_by_depth, returns="γ numbers, one a depth", slips=(
        Slip("these are shares of all steps; token i is tested only where tokens 1 … i − 1 were accepted, so divide by "
             "the number of those steps.",
             lambda k, g: np.array([sum(x >= i for x in k) / len(k) for i in range(1, g + 1)])),
        Slip("these are shares of the steps that ended at that depth; going further is acceptance, too.",
             lambda k, g: np.array([sum(x == i for x in k) / len(k) for i in range(1, g + 1)])),
        Slip("a depth that was never tested has no share; return 0 there, not 0/0.",
             lambda k, g: np.array([b if sum(x >= i for x in k) else np.nan for i, b in enumerate(_by_depth(k, g))])),
        Slip("this is one number for all depths; the question is whether they differ.",
             lambda k, g: np.full(g, sum(k) / (g * len(k)))),
        Slip("these are the shares that were rejected.", lambda k, g: 1 - _by_depth(k, g)),
))


def _steps(rng: np.random.Generator) -> list[tuple]:
    drawn = [int(g) for g in rng.integers(2, 12, 6)]
    cases = [(g, int(rng.integers(0, g))) for g in drawn]
    return [(4, 0), (4, 3), (4, 4), (1, 0), (1, 1), *cases, (drawn[0], drawn[0])]


def _caches(gamma: int, k: int) -> tuple[int, int]:
    return max(0, gamma - 1 - k), 2 if k == gamma else 1


CACHES = Question(
    "02.5", "draft_cache", ("gamma", "k"), _steps, right=_caches, returns="the pair (cut, read)", slips=(
        Slip("where all drafts are accepted the last of them has not been read by the draft model either: it drafted "
             "that token, and never ran on it. There are two to read.", lambda g, k: (max(0, g - 1 - k), 1)),
        Slip("the draft model has read one drafted token less than it drafted: the last was never put in.",
             lambda g, k: (g - k, 1)),
        Slip("it cuts what was accepted; what was rejected has to go.", lambda g, k: (min(k, g - 1), _caches(g, k)[1])),
        Slip("it starts over; what was read and accepted is still right.", lambda g, k: (g - 1, k + 1)),
        Slip("nothing is cut; rejected tokens in the cache would be seen by all that follows.",
             lambda g, k: (0, _caches(g, k)[1])),
))

QUESTIONS = (EXPECTED, SPEEDUP, BEST, DEPTH, CACHES)
