"""Chapter 11: choosing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..question import Fail, Question, Slip, taken


def _logs(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for n in (6, 15, 30):
        drafted = [int(d) for d in rng.integers(0, 6, n)]
        cases.append((drafted, [int(rng.integers(0, d + 1)) for d in drafted]))
    return [([5, 5, 0], [5, 2, 0]), ([0, 0], [0, 0]), ([3], [0]), *cases]


def _tested(drafted: list[int], accepted: list[int]) -> int:
    return sum(min(d, k + 1) for d, k in zip(drafted, accepted, strict=True))


def _metrics(drafted: list[int], accepted: list[int]) -> tuple[float, float]:
    tested = _tested(drafted, accepted)
    return 1 + sum(accepted) / len(accepted), sum(accepted) / tested if tested else 0.0


METRICS = Question(
    "11.1", "metrics", ("drafted", "accepted"), _logs, right=_metrics, like=(0.0, 0.0), returns="the pair (tau, rate)",
    slips=(
        Slip("tokens behind the first rejection were never tested: the rate is accepted over tested, not over drafted.",
             lambda d, k: (_metrics(d, k)[0], sum(k) / sum(d) if sum(d) else 0.0)),
        Slip("τ counts the target's own token, too: it comes in every step.",
             lambda d, k: (_metrics(d, k)[0] - 1, _metrics(d, k)[1])),
        Slip("τ is taken over all steps; those without a draft write one token and count as well.",
             lambda d, k: (1 + sum(k) / sum(x > 0 for x in d) if sum(d) else 1.0, _metrics(d, k)[1])),
        Slip("the token that was rejected was tested, too.", lambda d, k: (_metrics(d, k)[0], float(sum(k) > 0))),
        Slip("the two have changed places.", lambda d, k: _metrics(d, k)[::-1]),
        Slip("where nothing was ever tested the rate is 0 by agreement.",
             lambda d, k: (_metrics(d, k)[0], _metrics(d, k)[1] if sum(d) else np.nan)),
))


def _machine(rng: np.random.Generator, rows: int, knee: int) -> list[float]:
    """t(1) … t(rows): flat up to the knee, then rising."""
    slope = float(rng.uniform(0.1, 0.5))
    return [1.0 + 0.01 * q + slope * max(0, q - knee) for q in range(1, rows + 1)]


def _widths(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for depth, knee in ((4, 3), (6, 4), (8, 2), (8, 6), (5, 1), (8, 4)):
        alphas = [float(a) for a in rng.uniform(0.3, 0.95, depth)]
        cases.append((alphas, _machine(rng, depth + 1, knee)))
    return [([0.1, 0.1], [1.0, 1.5, 2.0]), ([0.9, 0.9], [1.0, 1.0, 1.0]), *cases]


def _expected(alphas: list[float], gamma: int) -> float:
    return 1 + float(np.cumprod(alphas[:gamma]).sum())


def _widest(alphas, times, row: int = 0, least: int = 0, tokens=_expected) -> int:
    choices = [g for g in range(least, len(alphas) + 1) if 0 <= g + row < len(times)]
    return max(choices, key=lambda g: tokens(alphas, g) / times[g + row])


WIDTH = Question(
    "11.2", "best_width", ("alphas", "times"), _widths, right=_widest, returns="a whole number", slips=(
        Slip("γ drafts need γ + 1 rows: the input token is one of them.", lambda a, t: _widest(a, t, row=-1)),
        Slip("no draft is a choice as well.", lambda a, t: _widest(a, t, least=1)),
        Slip("this writes most tokens per step; where a forward gets longer with each row that is not the fastest.",
             lambda a, t: len(a)),
        Slip("an α counts only if all before it held: multiply them.",
             lambda a, t: _widest(a, t, tokens=lambda x, g: 1 + sum(x[:g]))),
        Slip("the target's own token counts, too.",
             lambda a, t: _widest(a, t, tokens=lambda x, g: _expected(x, g) - 1)),
        Slip("this is the cheapest forward.", lambda a, t: 0),
))


def _cost(rng: np.random.Generator) -> Callable[[Any], float]:
    knee, first, slope = int(rng.integers(8, 80)), float(rng.uniform(0.002, 0.02)), float(rng.uniform(0.01, 0.05))

    def t(rows: Any) -> float:
        rows = taken(rows, 0, "t takes a whole number of rows")
        if rows < 1:
            raise Fail(f"t was given {rows} rows; expected at least 1.")
        return 1.0 + first * rows + slope * max(0, rows - knee)

    return t


def _loads(rng: np.random.Generator) -> list[tuple]:
    return [(float(rng.uniform(1.2, 3)), int(rng.integers(2, 8)), _cost(rng), 64) for _ in range(8)]


def _largest(tau, gamma, t, most, rows=None, before=None) -> int:
    rows = rows or (lambda b: b * (gamma + 1))
    before = before or (lambda b: b)
    return max((b for b in range(1, most + 1) if tau * t(before(b)) > t(rows(b))), default=0)


BATCH = Question(
    "11.3", "largest_batch", ("tau", "gamma", "t", "most"), _loads, right=_largest, returns="a whole number", slips=(
        Slip("every sequence brings γ + 1 rows: its input token as well.",
             lambda *case: _largest(*case, rows=lambda b: b * case[1])),
        Slip("without drafting the forward has B rows, not one.", lambda *case: _largest(*case, before=lambda b: 1)),
        Slip("it always says the most that was allowed; all B sequences draft, so the forward has B (γ + 1) rows.",
             lambda *case: case[3]),
        Slip("this is the first batch at which it no longer pays.", lambda *case: _largest(*case) + 1),
        Slip("it compares times and leaves τ out.", lambda tau, g, t, most: _largest(1.0, g, t, most)),
))


def _drafters(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for found in (True, False, True, False):
        context = [int(x) for x in rng.integers(0, 9, 5)]
        lookup = [int(x) for x in rng.integers(0, 9, int(rng.integers(1, 8)))] if found else []
        cases.append((context, lookup, [int(x) for x in rng.integers(0, 9, 4)]))
    return [([1, 2], [3], [4, 5, 6, 7]), ([1, 2], [], []), *cases]


def _combined(ask, context: list[int], lookup: list[int], model: list[int], like: Any, read: Any) -> tuple:
    """What is drafted, and how often the draft model was run for it."""
    calls = []

    def of(draft: list[int], name: str) -> Callable[[Any], list[int]]:
        def run(tokens: Any) -> list[int]:
            if read(tokens, [0]) != context:
                raise Fail(f"{name} was given {tokens}; expected the context.")
            calls.append(name)
            return list(draft)

        return run

    drafted = read(ask(context, of(lookup, "lookup"), of(model, "model")), [0])
    return drafted, calls.count("model")


COMBINE = Question(
    "11.4", "combine", ("context", "lookup", "model"), _drafters, observe=_combined, like=([0], 0),
    right=lambda context, lookup, model: (lookup, 0) if lookup else (model, 1),
    returns="the list of the drafted tokens", slips=(
        Slip("it runs the draft model even where the lookup has found something; that is what costs time.",
             lambda c, a, b: (a or b, 1)),
        Slip("it asks the draft model first; the lookup costs next to nothing, so it comes first.",
             lambda c, a, b: (b or a, 1)),
        Slip("it joins the two drafts; the model's continues the context, not the lookup's draft.",
             lambda c, a, b: (a + b, 1)),
        Slip("it takes the longer draft; length is no merit, and the model had to run for it.",
             lambda c, a, b: (max(a, b, key=len), 1)),
        Slip("it never uses the draft model.", lambda c, a, b: (a, 0)),
        Slip("it never uses the lookup.", lambda c, a, b: (b, 1)),
))

QUESTIONS = (METRICS, WIDTH, BATCH, COMBINE)
