"""Chapter 06: Jacobi decoding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..question import Fail, Question, Slip, taken
from .ch05 import text

V = 5


def chooser(rng: np.random.Generator) -> Callable[[list[int]], int]:
    """A target's greedy choice by the last two tokens, from a table."""
    table = rng.integers(0, V, (V, V)).tolist()

    def best(tokens) -> int:
        tokens = taken(tokens, [0], "best takes a list of tokens")
        if not tokens or min(tokens) < 0 or max(tokens) >= V:
            raise Fail(f"best was given {tokens}; expected at least one token, all from 0 to {V - 1}.")
        return table[tokens[-2] if len(tokens) > 1 else 0][tokens[-1]]

    return best


def _answer(context: list[int], m: int, best) -> list[int]:
    written = list(context)
    for _ in range(m):
        written.append(best(written))
    return written[len(context) :]


def _round(context: list[int], guess: list[int], best) -> list[int]:
    return [best(context + guess[:i]) for i in range(len(guess))]


def _guesses(rng: np.random.Generator) -> list[tuple]:
    return [(text(rng, L, V), text(rng, m, V), chooser(rng)) for L, m in ((3, 4), (2, 1), (4, 6), (3, 5), (2, 8))]


ROUND = Question(
    "06.1", "jacobi_round", ("context", "guess", "best"), _guesses, right=_round, like=[0],
    returns="the list of the new guess, as long as the old one", slips=(
        Slip("it uses the new tokens as soon as it has them: that is Gauss–Seidel, which here is autoregression. All "
             "places are to be updated at once, from the old guess.", lambda c, g, b: _answer(c, len(g), b)),
        Slip("each place sees its own old token; place i follows the guess up to, and without, place i.",
             lambda c, g, b: [b(c + g[: i + 1]) for i in range(len(g))]),
        Slip("every place follows the context alone; the guess is not used.", lambda c, g, b: [b(c)] * len(g)),
        Slip("it is one token too long: the forward also scores the place behind the guess, but the new guess is as "
             "long as the old one.", lambda c, g, b: [b(c + g[:i]) for i in range(len(g) + 1)]),
        Slip("the context is missing before the guess.",
             lambda c, g, b: [b(c) if i == 0 else b(g[:i]) for i in range(len(g))]),
))


def _rounds(rng: np.random.Generator) -> list[tuple]:
    cases = [([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [4, 2, 3]), ([1, 2, 3], [1, 2, 4]), ([1, 2, 3, 4], [1, 0, 3, 4])]
    for m in (1, 3, 5, 8):
        old = text(rng, m, V)
        cases.append((old, [x if rng.random() < 0.7 else (x + 1) % V for x in old]))
    return cases


def _agree(old: list[int], new: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(old, new, strict=True)) if x != y), len(old))


SETTLED = Question(
    "06.2", "settled", ("old", "new"), _rounds, right=lambda old, new: min(_agree(old, new) + 1, len(new)),
    returns="a whole number", slips=(
        Slip("one more is known: the token behind those that reproduced themselves was computed from right ones.",
             lambda old, new: _agree(old, new)),
        Slip("there are only m tokens; where all reproduced themselves there is none behind them.",
             lambda old, new: _agree(old, new) + 1),
        Slip("it counts agreement at every place; a token counts only if all on its left are right.",
             lambda old, new: sum(x == y for x, y in zip(old, new, strict=True))),
        Slip("it counts agreement at every place; a token counts only if all on its left are right.",
             lambda old, new: min(sum(x == y for x, y in zip(old, new, strict=True)) + 1, len(new))),
))


def _solve(context: list[int], guess: list[int], best) -> tuple[list[int], int]:
    answer, rounds = _answer(context, len(guess), best), 0
    while guess != answer:
        guess, rounds = _round(context, guess, best), rounds + 1
    return answer, rounds


def _problems(rng: np.random.Generator) -> list[tuple]:
    cases = [(text(rng, 3, V), text(rng, m, V), chooser(rng)) for m in (1, 3, 4, 6, 8)]
    context, best = text(rng, 3, V), chooser(rng)
    return [*cases, (context, _answer(context, 4, best), best)]


SOLVE = Question(
    "06.3", "solve", ("context", "guess", "best"), _problems, right=_solve, like=([0], 0),
    returns="the pair (tokens, rounds)", slips=(
        Slip("the round that only confirms the answer is counted; the guess was right before it.",
             lambda c, g, b: (_solve(c, g, b)[0], _solve(c, g, b)[1] + 1)),
        Slip("these are m rounds, the most that can be needed; how many were needed is asked for.",
             lambda c, g, b: (_solve(c, g, b)[0], len(g))),
        Slip("the tokens are those after one round; go on until nothing changes.",
             lambda c, g, b: (_round(c, g, b), 1)),
        Slip("it does no round at all.", lambda c, g, b: (g, 0)),
))


def _neighbours(rng: np.random.Generator) -> list[tuple]:
    return [(9, [1, 2, 3], [4, 5, 6]), *((int(rng.integers(V)), text(rng, m, V), text(rng, m, V)) for m in (1, 3, 5))]


PAIRS = Question(
    "06.4", "pairs", ("last", "old", "new"), _neighbours,
    right=lambda last, old, new: list(zip([last, *old], new, strict=False)), like=[(0, 0)],
    returns="a list of pairs of tokens", slips=(
        Slip("these are neighbours of one round, computed at the same time: neither knew of the other.",
             lambda last, old, new: list(zip([last, *new], new, strict=False))),
        Slip("these are neighbours of one round, computed at the same time: neither knew of the other.",
             lambda last, old, new: list(zip(new, new[1:], strict=False))),
        Slip("these are neighbours of one round, computed at the same time: neither knew of the other.",
             lambda last, old, new: list(zip(old, old[1:], strict=False))),
        Slip("both tokens stand at the same place; the second was computed after the token to the left of it.",
             lambda last, old, new: list(zip(old, new, strict=True))),
        Slip("the first pair is missing: the first new token was computed after the last token of the context.",
             lambda last, old, new: list(zip(old, new[1:], strict=False))),
        Slip("the rounds have changed places: the left token is of the old round, the right one of the new.",
             lambda last, old, new: list(zip([last, *new], old, strict=False))),
))

QUESTIONS = (ROUND, SETTLED, SOLVE, PAIRS)
