"""Chapter 03: multi-token prediction and Medusa."""

from __future__ import annotations

from itertools import product

import numpy as np

from ..question import Question, Slip
from .ch01 import laws


def _trees(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for n in (3, 5, 8, 12):
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, n))]
        cases.append((parents, [1.0, *(float(x) for x in rng.uniform(0.1, 0.6, n - 1))]))
    return [([-1, 0, 0, 1], [1.0, 0.6, 0.3, 0.5]), ([-1], [1.0]), *cases]


def _reach(parents: list[int], shares: list[float]) -> list[float]:
    reach = [1.0]
    for i in range(1, len(parents)):
        reach.append(reach[parents[i]] * shares[i])
    return reach


EXPECTED = Question(
    "03.1", "expected_tokens", ("parents", "shares"), _trees,
    right=lambda parents, shares: float(sum(_reach(parents, shares))), returns="a number", slips=(
        Slip("a node counts only if all nodes above it were accepted: multiply the shares down to it.",
             lambda parents, shares: float(sum(shares))),
        Slip("the target's own token comes in every step as well; in a tree it is the root's 1.",
             lambda parents, shares: float(sum(_reach(parents, shares))) - 1),
        Slip("siblings exclude one another, so their probabilities add up; this takes the best path alone.",
             lambda parents, shares: float(max(_path(parents, shares, i) for i in range(len(parents))))),
        Slip("this is the largest depth; most of the time the walk ends before it.",
             lambda parents, shares: float(max(_depth(parents, i) for i in range(len(parents))) + 1)),
        Slip("this is the number of rows, not of tokens written.", lambda parents, shares: float(len(parents))),
))


def _path(parents: list[int], shares: list[float], i: int) -> float:
    """The sum of the reach along one path."""
    reach, total = _reach(parents, shares), 0.0
    while i >= 0:
        total += reach[i]
        i = parents[i]
    return total


def _depth(parents: list[int], i: int) -> int:
    return 0 if parents[i] < 0 else 1 + _depth(parents, parents[i])


def _heads(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for heads, ranks, nodes in ((2, 3, 5), (3, 2, 6), (3, 4, 12), (1, 4, 2)):
        table = np.sort(rng.dirichlet(np.ones(ranks + 1), heads)[:, 1:], axis=1)[:, ::-1]
        cases.append((table.copy(), nodes))
    return cases


def _best_paths(table: np.ndarray, nodes: int, key=None) -> list[list[int]]:
    heads, ranks = table.shape
    paths = [path for depth in range(1, heads + 1) for path in product(range(ranks), repeat=depth)]
    return [list(path) for path in sorted(paths, key=key or (lambda path: -_worth(table, path)))[:nodes]]


def _worth(table: np.ndarray, path: tuple[int, ...]) -> float:
    return float(np.prod([table[i, rank] for i, rank in enumerate(path)]))


def _local(table: np.ndarray):
    return lambda path: -table[len(path) - 1, path[-1]]


MEDUSA = Question(
    "03.2", "best_paths", ("accuracy", "nodes"), _heads, right=_best_paths, like=[[0]],
    returns="a list of paths, each a list of ranks", slips=(
        Slip("this fills the tree level by level; a deep node on a likely path may be worth more than a rare sibling.",
             lambda t, n: _best_paths(t, n, key=lambda path: (len(path), -_worth(t, path)))),
        Slip("a node is worth the product of the accuracies on its path, not that of its own head alone.",
             lambda t, n: _best_paths(t, n, key=_local(t))),
        Slip("a node is worth the product of the accuracies on its path, not their sum: so deep nodes come first.",
             lambda t, n: _best_paths(t, n, key=lambda path: -sum(t[i, r] for i, r in enumerate(path)))),
        Slip("these are the least likely paths.", lambda t, n: _best_paths(t, n, key=lambda path: _worth(t, path))),
        Slip("this is one path, the top guess of every head.",
             lambda t, n: [[0] * d for d in range(1, min(n, len(t)) + 1)]),
))


def _checked(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for n in (4, 6, 9, 12, 12):
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, n))]
        tokens, taken = [0], set()
        for i in range(1, n):  # siblings differ
            free = [t for t in range(6) if (parents[i], t) not in taken]
            tokens.append(int(rng.choice(free)))
            taken.add((parents[i], tokens[-1]))
        best = [int(t) for t in rng.integers(0, 6, n)]
        for i in range(1, n):  # often right
            if rng.random() < 0.6:
                best[parents[i]] = tokens[i]
        cases.append((tokens, parents, best))
    tree = ([9, 1, 2, 3], [-1, 0, 0, 1])
    return [(*tree, [1, 3, 5, 7]), ([9], [-1], [4]), (*tree, [2, 3, 5, 7]), *cases]


def _walk(tokens: list[int], parents: list[int], best: list[int]) -> list[int]:
    out, at = [], 0
    while True:
        child = next((i for i in range(len(tokens)) if parents[i] == at and tokens[i] == best[at]), None)
        out.append(best[at])
        if child is None:
            return out
        at = child


def _first_child(tokens: list[int], parents: list[int], best: list[int]) -> list[int]:
    out, at = [], 0
    while True:
        child = next((i for i in range(len(tokens)) if parents[i] == at), None)
        out.append(best[at])
        if child is None or tokens[child] != best[at]:
            return out
        at = child


WALK = Question(
    "03.3", "walk", ("tokens", "parents", "best"), _checked, right=_walk, like=[0],
    returns="the list of the tokens to emit", slips=(
        Slip("it tries the first child only; any child may be the target's choice.", _first_child),
        Slip("behind the last accepted node the target's own token is missing.", lambda *case: _walk(*case)[:-1]),
        Slip("it stops after one level.", lambda t, p, b: _walk(t, p, b)[:1]),
        Slip("it takes every node that equals its parent's choice, on whatever branch; the walk follows one path.",
             lambda t, p, b: [t[i] for i in range(1, len(t)) if b[p[i]] == t[i]] + [b[_last(t, p, b)]]),
        Slip("it reads the rows as a chain; a row follows its parent, not the row before it.",
             lambda t, p, b: _walk(t, list(range(-1, len(t) - 1)), b)),
))


def _last(tokens: list[int], parents: list[int], best: list[int]) -> int:
    at = 0
    for i in range(1, len(tokens)):  # a child comes after its parent
        if parents[i] == at and tokens[i] == best[at]:
            at = i
    return at


def _typical_cases(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for V in (3, 4, 6, 8):
        p = laws(rng, V) ** float(rng.uniform(0.5, 4))
        cases.append((p / p.sum(), float(rng.uniform(0.05, 0.2)), float(rng.uniform(0.2, 0.8))))
    return [(np.array([0.97, 0.01, 0.01, 0.01]), 0.09, 0.3), (np.full(5, 0.2), 0.3, 0.9),
            (np.array([0.4, 0.3, 0.3, 0.0]), 0.3, 0.5), *cases]


def _entropy(p: np.ndarray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def _threshold(p, eps, delta, combine=min) -> float:
    return combine(eps, delta * np.exp(-_entropy(p)))


def _kept(p: np.ndarray, threshold: float) -> np.ndarray:
    return p > threshold


TYPICAL = Question(
    "03.4", "typical", ("p", "epsilon", "delta"), _typical_cases, right=lambda p, e, d: _kept(p, _threshold(p, e, d)),
    returns="an array of True and False, one for each token", slips=(
        Slip("of the two thresholds the smaller one counts.",
             lambda p, e, d: _kept(p, _threshold(p, e, d, combine=max))),
        Slip("this is the fixed threshold ε throughout; is the entropy used, and with the right sign?",
             lambda p, e, d: _kept(p, e)),
        Slip("the fixed threshold ε is not used.", lambda p, e, d: _kept(p, d * np.exp(-_entropy(p)))),
        Slip("a token with p = 0 adds nothing to the entropy; 0 · log 0 is nan.",
             lambda p, e, d: _kept(p, _threshold(p, e, d)) if (p > 0).all() else _kept(p, e)),
        Slip("a token with p = 0 adds nothing to the entropy; 0 · log 0 is nan.",
             lambda p, e, d: _kept(p, _threshold(p, e, d)) if (p > 0).all() else np.zeros(len(p), bool)),
        Slip("this is what is rejected.", lambda p, e, d: ~_kept(p, _threshold(p, e, d))),
))

QUESTIONS = (EXPECTED, MEDUSA, WALK, TYPICAL)
