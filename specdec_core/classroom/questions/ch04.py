"""Chapter 04: EAGLE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..question import Question, Slip, taken


def _sequences(rng: np.random.Generator) -> list[tuple]:
    drawn = [([float(f) for f in rng.normal(size=n)], [int(t) for t in rng.integers(0, 50, n)]) for n in (2, 4, 7)]
    return [([1.5, 2.5, 3.5], [7, 8, 9]), *drawn]


def _aligned(f: int, t: int, target: int, drop: int = 1) -> Callable[..., list[tuple]]:
    """Triples (feature, token, target) by how far each is ahead of the place."""

    def triples(features: list[float], tokens: list[int]) -> list[tuple]:
        return [(features[i + f], tokens[i + t], features[i + target]) for i in range(len(tokens) - drop)]

    return triples


PAIRS = Question(
    "04.1", "examples", ("features", "tokens"), _sequences, right=_aligned(0, 1, 1), like=[(0.0, 0, 0.0)],
    returns="a list of triples (feature, token, target)", slips=(
        Slip("the token is the one that was fed to make the feature; the feature does not say which token was *drawn* "
             "after it, so that one, a place further on, must be given.", _aligned(0, 0, 1)),
        Slip("the target is the feature that is already given; the next one is to be predicted.", _aligned(0, 1, 0)),
        Slip("the feature is one place too far on: it is what is to be predicted.", _aligned(1, 1, 1)),
        Slip("the token stands two places further on; it is the one drawn right after the feature.",
             lambda f, t: _aligned(0, 2, 1, 2)(f, t) if len(t) > 2 else []),
))


def _drafted(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for n, keep in ((6, 3), (10, 5), (15, 6), (4, 10)):
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, n))]
        cases.append((parents, [1.0, *(float(x) for x in rng.uniform(0.2, 0.95, n - 1))], keep))
    return [([-1, 0, 0, 1, 2], [1.0, 0.5, 0.4, 0.5, 0.9], 2), *cases]


def _value(parents: list[int], confidence: list[float]) -> list[float]:
    value = [1.0]
    for i in range(1, len(parents)):
        value.append(value[parents[i]] * confidence[i])
    return value


def _top(values: list[float], keep: int, among=None) -> list[int]:
    rows = range(1, len(values)) if among is None else among
    return sorted(sorted(rows, key=lambda i: -values[i])[:keep])


RERANK = Question(
    "04.2", "rerank", ("parents", "confidence", "keep"), _drafted,
    right=lambda parents, c, keep: _top(_value(parents, c), keep), like=[0],
    returns="the rows that are kept, in rising order", slips=(
        Slip("a node is worth the product of the confidences on its path: this keeps nodes whose parents are gone.",
             lambda parents, c, keep: _top(c, keep)),
        Slip("the root is always there and is not counted among the nodes that are kept.",
             lambda parents, c, keep: _top(_value(parents, c), keep, range(len(c)))),
        Slip("this keeps the first rows, whatever they are worth.",
             lambda parents, c, keep: list(range(1, min(keep, len(c) - 1) + 1))),
        Slip("this keeps the rows that are worth least.",
             lambda parents, c, keep: _top([-x for x in _value(parents, c)], keep)),
        Slip("the rows come by their worth; rising order is asked for, so that parents stay before their children.",
             lambda parents, c, keep: sorted(range(1, len(c)), key=lambda i: -_value(parents, c)[i])[:keep]),
))


def _head(rng: np.random.Generator) -> Callable[[Any], dict[int, float]]:
    seed = int(rng.integers(1 << 30))

    def head(path: Any) -> dict[int, float]:
        path = taken(path, [0], "head takes a path, a tuple of tokens")
        law = np.random.default_rng([seed, *path]).dirichlet(np.full(5, 0.7))
        return {token: float(p) for token, p in enumerate(law)}

    return head


def _layers(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for nodes, k in ((1, 3), (3, 3), (4, 2), (5, 6)):
        paths = [tuple(int(t) for t in rng.integers(0, 5, 2)) + (i,) for i in range(nodes)]
        cases.append(([(path, float(v)) for path, v in zip(paths, rng.uniform(0.05, 0.9, nodes), strict=True)],
                      _head(rng), k))
    return cases


def _grow(layer, head, k: int, whole: bool = False, each: bool = False, unique: bool = False) -> list[tuple]:
    new = []
    for path, value in layer:
        found = [((*path, t), p if whole else value * p) for t, p in head(path).items()]
        found.sort(key=lambda node: -node[1])
        new += found[: k if each else 1 if unique else None]
    new.sort(key=lambda node: -node[1])
    return [(list(path), value) for path, value in (new if each else new[:k])]


LAYER = Question(
    "04.3", "next_layer", ("layer", "head", "k"), _layers, right=_grow, like=[([0], 0.0)],
    returns="a list of pairs (path, value), best first", slips=(
        Slip("this takes the k best of each node; the k best of all of them are asked for, or the tree grows as a "
             "power of k.", lambda *case: _grow(*case, each=True)),
        Slip("a child is worth its parent's value times the head's probability, not that probability alone.",
             lambda *case: _grow(*case, whole=True)),
        Slip("this takes one child of each node; a good node may have several good children, a poor one none.",
             lambda *case: _grow(*case, unique=True)),
        Slip("only the best node is continued; the others of the layer may have better children than its second.",
             lambda layer, head, k: _grow([max(layer, key=lambda node: node[1])], head, k)),
        Slip("this is the layer that was given.", lambda layer, head, k: [(list(path), v) for path, v in layer]),
))

QUESTIONS = (PAIRS, RERANK, LAYER)
