"""Chapter 07: lookahead decoding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..question import Question, Slip


def _sizes(rng: np.random.Generator) -> list[tuple]:
    return [(15, 5, 15), (7, 5, 7), (1, 2, 1), *(tuple(int(x) for x in rng.integers((1, 2, 0), 20)) for _ in range(6))]


ROWS = Question(
    "07.1", "rows", ("W", "N", "G"), _sizes, right=lambda W, N, G: (W + G) * (N - 1), returns="a whole number", slips=(
        Slip("the window holds N − 1 levels, and a candidate N − 1 tokens besides its first: not N of either.",
             lambda W, N, G: (W + G) * N),
        Slip("a candidate has N − 1 rows, not one.", lambda W, N, G: W * (N - 1) + G),
        Slip("the input token is not an extra row: it is (level 0, column 0).", lambda W, N, G: (W + G) * (N - 1) + 1),
        Slip("the candidates are missing.", lambda W, N, G: W * (N - 1)),
        Slip("the first token of a candidate is the input token, which has its row already.",
             lambda W, N, G: W * (N - 1) + G * N),
        Slip("the window has N − 1 levels of W columns.", lambda W, N, G: W + G * (N - 1)),
))


def _windows(rng: np.random.Generator) -> list[tuple]:
    return [(5, 4), (1, 3), (4, 2), *((int(w), int(n)) for w, n in zip(rng.integers(2, 7, 3), rng.integers(2, 6, 3),
                                                                       strict=True))]


def _mask(sees: Callable[[int, int, int, int], bool]) -> Callable[[int, int], np.ndarray]:
    """The mask of a window by a rule on (level, column) of the row that sees and of the row that is seen."""

    def mask(W: int, N: int) -> np.ndarray:
        places = [(j, i) for j in range(N - 1) for i in range(W)]
        return np.array([[bool(sees(j, i, k, c)) for k, c in places] for j, i in places])

    return mask


def _sees(j: int, i: int, k: int, c: int) -> bool:
    return (k == 0 and c <= i) or (c == i and k <= j)


_seen = _mask(_sees)

MASK = Question(
    "07.2", "window_mask", ("W", "N"), _windows, right=_seen, returns="a square array of True and False", slips=(
        Slip("that is plain causal attention: a row sees every row before it. Rows of other columns are no part of the "
             "text that it continues, except in level 0.", _mask(lambda j, i, k, c: (k, c) <= (j, i))),
        Slip("that is the rule by numbers: a row sees every smaller position, and itself. Numbers do not decide it, "
             "columns do.", _mask(lambda j, i, k, c: k + c < j + i or (k, c) == (j, i))),
        Slip("a row sees level 0 up to its own column only, not all of it.",
             _mask(lambda j, i, k, c: k == 0 or (c == i and k <= j))),
        Slip("level 0 is missing: the column continues what stands to its left in level 0.",
             _mask(lambda j, i, k, c: c == i and k <= j)),
        Slip("a row sees itself, too.", _mask(lambda j, i, k, c: _sees(j, i, k, c) and (k, c) != (j, i))),
        Slip("rows and columns of the mask have changed places: mask[i, j] says whether row i sees row j.",
             lambda W, N: _seen(W, N).T),
        Slip("the other levels are seen up to the column as well; of those a row sees its own column only.",
             _mask(lambda j, i, k, c: c <= i and k <= j)),
))


def _levels(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for W, N in ((3, 4), (1, 3), (5, 2), (2, 5)):
        draw = rng.permutation(100)[: W * N].reshape(N, W).tolist()
        cases.append((draw[:-1], draw[-1]))
    return cases


GRAMS = Question(
    "07.3", "ngrams", ("levels", "made"), _levels,
    right=lambda levels, made: [tuple(column) for column in zip(*levels, made, strict=True)], like=[[0]],
    returns="the list of the n-grams, one a column", slips=(
        Slip("these are the levels; an n-gram is read down a column, through all levels.",
             lambda levels, made: [*levels, made]),
        Slip("the new token at the end of each column is missing.",
             lambda levels, made: [list(column) for column in zip(*levels, strict=True)]),
        Slip("the new tokens come first; they are the newest, and stand at the end.",
             lambda levels, made: [list(column) for column in zip(made, *levels, strict=True)]),
        Slip("the columns are read upwards; the oldest level comes first.",
             lambda levels, made: [list(column)[::-1] for column in zip(*levels, made, strict=True)]),
        Slip("the oldest level is missing.",
             lambda levels, made: [list(column) for column in zip(*levels[1:], made, strict=True)]),
))


def _pools(rng: np.random.Generator) -> list[tuple]:
    cases = [({}, [1, 2, 3], 2), ({1: [(2, 3), (4, 5)]}, [1, 6, 7], 2), ({1: [(2, 3), (4, 5)]}, [1, 2, 3], 2),
             ({1: [(2, 3)], 9: [(1, 1)]}, [9, 2, 2], 1)]
    for _ in range(4):
        pool = {first: [(int(a), first) for a in rng.permutation(6)[:3]] for first in range(3)}
        cases.append((pool, [int(rng.integers(4)), int(rng.integers(6)), int(rng.integers(3))], 3))
    return cases


def _remember(pool: dict, gram: list[int], size: int, again: bool = True, oldest: bool = True, key: int = 0) -> dict:
    first, rest = gram[key], tuple(gram[1:])
    kept = [*pool.get(first, [])]
    if rest in kept and again:
        kept.remove(rest)
    kept.append(rest)
    return {**pool, first: kept[-size:] if oldest else kept[:size]}


POOL = Question(
    "07.4", "remember", ("pool", "gram", "size"), _pools, right=_remember, like={0: [[0]]},
    returns="the new pool: a dict from a token to a list of n-grams without it", slips=(
        Slip("an n-gram that is in the pool already moves to the end; it is not there twice.",
             lambda *case: _remember(*case, again=False)),
        Slip("when there are too many, the oldest goes, not the newest.", lambda *case: _remember(*case, oldest=False)),
        Slip("the pool is not bounded: at most `size` n-grams for one first token.",
             lambda pool, gram, size: _remember(pool, gram, 10**6)),
        Slip("an n-gram stands under its first token, without it.",
             lambda pool, gram, size: {**pool, gram[0]: [*[x for x in pool.get(gram[0], []) if x != tuple(gram)],
                                                         tuple(gram)][-size:]}),
        Slip("an n-gram that is in the pool already must become the most recent one.",
             lambda pool, gram, size: pool if tuple(gram[1:]) in pool.get(gram[0], [])
             else _remember(pool, gram, size)),
        Slip("it forgets what else stood under that token.",
             lambda pool, gram, size: {**pool, gram[0]: [tuple(gram[1:])]}),
))


def _settings(rng: np.random.Generator) -> list[tuple]:
    cases = [(float(a), float(f), int(n), int(b)) for a, f, n, b in
             zip(rng.uniform(0.1, 0.9, 6), rng.uniform(1, 5, 6), rng.integers(2, 8, 6), rng.integers(2, 16, 6),
                 strict=True)]
    return [(0.5, 3.0, 3, 2), (0.425, 3.106, 5, 15), *cases]


def _E(alpha: float, gamma: int, b: int) -> float:
    return 1 + sum(1 - (1 - alpha**i) ** b for i in range(1, gamma + 1))


S = Question(
    "07.5", "step_compression", ("alpha", "f", "N", "b"), _settings,
    right=lambda a, f, N, b: (f - 1 + _E(a, N - 1, b)) / f, returns="a number", slips=(
        Slip("this is E, the tokens of a step that has good drafts; only one step in f has them.",
             lambda a, f, N, b: _E(a, N - 1, b)),
        Slip("the other f − 1 steps write one token each; they count too.", lambda a, f, N, b: _E(a, N - 1, b) / f),
        Slip("a draft has γ = N − 1 tokens: the first of the N is the input token.",
             lambda a, f, N, b: (f - 1 + _E(a, N, b)) / f),
        Slip("this has one draft per step; with b of them, all must fall short for the step to fall short.",
             lambda a, f, N, b: (f - 1 + _E(a, N - 1, 1)) / f),
        Slip("the target's own token is missing in E.", lambda a, f, N, b: (f - 2 + _E(a, N - 1, b)) / f),
        Slip("E of b drafts is not b times the tokens of one: they answer for the same places.",
             lambda a, f, N, b: (f + b * (_E(a, N - 1, 1) - 1)) / f),
))

QUESTIONS = (ROWS, MASK, GRAMS, POOL, S)
