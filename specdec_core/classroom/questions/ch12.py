"""Chapter 12: what rounding does to losslessness."""

from __future__ import annotations

import numpy as np

from ..question import Question, Slip


def _numbers(rng: np.random.Generator) -> list[tuple]:
    drawn = [(float(2 ** rng.uniform(-3, 8)), int(rng.choice([8, 11, 24]))) for _ in range(8)]
    return [(20.0, 8), (1.0, 8), (1.9, 11), (0.3, 24), (31.5, 8), *drawn]


def _spacing(x: float, bits: int) -> float:
    return float(2.0 ** (np.floor(np.log2(x)) - bits + 1))


SPACING = Question(
    "12.1", "spacing", ("x", "bits"), _numbers, right=_spacing, returns="a number", slips=(
        Slip("the leading one counts as a bit of the significand: of b bits b − 1 stand behind it.",
             lambda x, b: _spacing(x, b + 1)),
        Slip("this is the spacing just above 1; it doubles with every power of two.", lambda x, b: 2.0 ** (1 - b)),
        Slip("the spacing stays the same from one power of two to the next; it does not grow with x in between.",
             lambda x, b: x * 2.0 ** (1 - b)),
        Slip("take the power of two at or below x, not the nearest one.",
             lambda x, b: 2.0 ** (np.round(np.log2(x)) - b + 1)),
        Slip("take the power of two at or below x, not the one above.",
             lambda x, b: 2.0 ** (np.ceil(np.log2(x)) - b + 1)),
        Slip("this is the power of two itself; the bits divide the way to the next one.",
             lambda x, b: 2.0 ** np.floor(np.log2(x))),
))


def _measured(rng: np.random.Generator) -> list[tuple]:
    def case(n: int) -> tuple:
        gaps = [0.0, *rng.exponential(2.0, n).tolist()]
        return gaps, rng.normal(0.02, 0.1, n + 3).tolist(), float(rng.choice([0.25, 0.5, 2.0]))

    return [([0.1, 3.0, 0.3, 5.0], [0.1, -0.1], 0.5), ([2.0, 3.0], [0.1], 0.5), *(case(n) for n in (6, 20, 20, 40))]


def _density(gaps: list[float], within: float) -> float:
    return sum(gap < within for gap in gaps) / len(gaps) / within


def _size(changes: list[float]) -> float:
    return sum(abs(change) for change in changes) / len(changes)


TURNS = Question(
    "12.2", "turn_rate", ("gaps", "changes", "within"), _measured, returns="a number",
    right=lambda g, d, w: _density(g, w) * _size(d) / 2, slips=(
        Slip("a change that widens the gap turns nothing: half of them do.", lambda g, d, w: _density(g, w) * _size(d)),
        Slip("changes of both signs cancel in a mean; their size is asked for.",
             lambda g, d, w: _density(g, w) * sum(d) / len(d) / 2),
        Slip("changes of both signs cancel in a mean; their size is asked for.",
             lambda g, d, w: _density(g, w) * abs(sum(d) / len(d)) / 2),
        Slip("f(0) is a density: the share of the gaps below `within`, over `within`.",
             lambda g, d, w: _density(g, w) * w * _size(d) / 2),
        Slip("f(0) is per token: divide the number of small gaps by the number of all.",
             lambda g, d, w: _density(g, w) * len(g) * _size(d) / 2),
        Slip("this is f(0), how many near ties there are; how large the changes are matters as much.",
             lambda g, d, w: _density(g, w)),
        Slip("this is the share of the gaps below the mean change, which is a count of very few gaps, and zero for a "
             "fine format; take the density from the wider range below `within`.",
             lambda g, d, w: _density(g, _size(d)) * _size(d) / 2),
))


def _pairs(rng: np.random.Generator) -> list[tuple]:
    def case(count: int, n: int) -> tuple:
        pairs = []
        for _ in range(count):
            a = rng.integers(0, 4, int(rng.integers(2, 9))).tolist()
            b = list(a)
            kind = rng.integers(0, 4)
            if kind == 1:
                b[int(rng.integers(0, len(b)))] = 9
            elif kind == 2:
                b = b[: int(rng.integers(1, len(b)))]
            elif kind == 3:
                b = [9, *b[1:]]
            pairs.append((a, b))
        return pairs, n

    fixed = [([1, 2, 3], [1, 5, 3]), ([1, 2], [1, 2, 3]), ([4], [4]), ([1, 2, 3, 4], [1, 2, 3, 9])]
    return [(fixed, 3), (fixed, 1), (fixed, 2), *(case(12, n) for n in (2, 3, 5, 7))]


def _share(pairs: list[tuple], same) -> float:
    return sum(map(same, pairs)) / len(pairs)


IDENTICAL = Question(
    "12.3", "still_identical", ("pairs", "n"), _pairs, returns="a number",
    right=lambda pairs, n: _share(pairs, lambda ab: ab[0][:n] == ab[1][:n]), slips=(
        Slip("an answer that ends where the other goes on has parted from it.",
             lambda pairs, n: _share(pairs, lambda ab: ab[0][: min(n, len(ab[1]))] == ab[1][: min(n, len(ab[0]))])),
        Slip("it looks at token n alone; two answers that parted earlier may meet there by chance.",
             lambda pairs, n: _share(pairs, lambda ab: ab[0][n - 1 : n] == ab[1][n - 1 : n])),
        Slip("only the first n tokens count; these are whole answers.",
             lambda pairs, n: _share(pairs, lambda ab: ab[0] == ab[1])),
        Slip("this is the share of the *tokens* that agree; behind the first difference the contexts differ, and "
             "agreement means nothing.",
             lambda pairs, n: sum(x == y for a, b in pairs for x, y in zip(a[:n], b[:n], strict=False))
             / sum(max(len(a[:n]), len(b[:n])) for a, b in pairs)),
        Slip("this is the share that has parted.",
             lambda pairs, n: 1 - _share(pairs, lambda ab: ab[0][:n] == ab[1][:n])),
        Slip("both answers may have ended before n, at the same place: they are identical.",
             lambda pairs, n: _share(pairs, lambda ab: ab[0][:n] == ab[1][:n] and len(ab[0]) >= n)),
))


def _trees(rng: np.random.Generator) -> list[tuple]:
    def case(size: int) -> tuple:
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, size))]
        return parents, int(rng.integers(1, size)), int(rng.integers(1, 6))

    return [([-1, 0, 1, 0, 3, 4], 5, 2), ([-1, 0, 1, 2], 3, 1), ([-1], 0, 3), *(case(n) for n in (6, 9, 12, 15))]


def _path(parents: list[int], row: int) -> list[int]:
    path = [row]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path[::-1]


LAYOUT = Question(
    "12.4", "keys", ("parents", "row", "context"), _trees, like=[0], returns="the list of slots, in order",
    right=lambda p, row, c: [*range(c), *(c + r for r in _path(p, row))], slips=(
        Slip("from the root down: the order of the tokens in the text.",
             lambda p, row, c: [*range(c), *(c + r for r in reversed(_path(p, row)))]),
        Slip("a row sees itself, too.", lambda p, row, c: [*range(c), *(c + r for r in _path(p, row)[:-1])]),
        Slip("the root of the tree is missing: it is in flight like the other rows.",
             lambda p, row, c: [*range(c), *(c + r for r in _path(p, row)[1:])]),
        Slip("siblings and their branches must not be there: only the row's ancestors, and the row.",
             lambda p, row, c: list(range(c + row + 1))),
        Slip("the rows in flight stand behind the context; add its length to get their slots.",
             lambda p, row, c: [*range(c), *_path(p, row)]),
        Slip("the committed context is missing; every row sees all of it.",
             lambda p, row, c: [c + r for r in _path(p, row)]),
))

QUESTIONS = (SPACING, TURNS, IDENTICAL, LAYOUT)
