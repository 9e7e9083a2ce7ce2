"""Chapter 08: REST."""

from __future__ import annotations

import numpy as np

from ..question import Question, Slip
from .ch05 import text as _corpus


def _array(tokens: list[int]) -> list[int]:
    return sorted(range(len(tokens)), key=lambda i: tokens[i:])


ARRAY = Question(
    "08.1", "suffix_array", ("tokens",),
    lambda rng: [([2, 1, 2, 1],), ([5],), *((_corpus(rng, L),) for L in (6, 10, 20))], right=_array, like=[0],
    returns="the list of the places where the sorted suffixes begin", slips=(
        Slip("these are sorted by their first token only; where that is the same, the next one decides, and so on.",
             lambda t: sorted(range(len(t)), key=lambda i: t[i])),
        Slip("these are sorted the other way round.", lambda t: _array(t)[::-1]),
        Slip("these are the ranks of the suffixes by place; their places by rank are asked for.",
             lambda t: np.argsort(_array(t), kind="stable").tolist()),
        Slip("a suffix that is the beginning of another one comes first, not last.",
             lambda t: sorted(range(len(t)), key=lambda i: [*t[i:], 10**9])),
        Slip("this is the text sorted; places are asked for, not tokens.", lambda t: sorted(t)),
        Slip("these are the suffixes in the order of the text.", lambda t: list(range(len(t)))),
))


def _searches(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for L, n in ((8, 1), (12, 2), (20, 2), (30, 3), (30, 4)):
        text = _corpus(rng, L)
        start = int(rng.integers(0, L - n))
        cases.append((text, _array(text), text[start : start + n]))
    text = _corpus(rng, 9)
    return [*cases, (text, _array(text), [9, 9]), (text, _array(text), text)]


def _range(tokens: list[int], order: list[int], pattern: list[int]) -> tuple[int, int]:
    hits = [rank for rank, i in enumerate(order) if tokens[i : i + len(pattern)] == pattern]
    return (hits[0], hits[-1] + 1) if hits else (0, 0)


FIND = Question(
    "08.2", "find", ("tokens", "order", "pattern"), _searches, right=_range, returns="the pair (lo, hi)", slips=(
        Slip("hi stands behind the last match, so that hi − lo is how many there are; here it stands on it.",
             lambda t, o, p: (r := _range(t, o, p)) and (r if r == (0, 0) else (r[0], r[1] - 1))),
        Slip("these are places in the text; lo and hi are places in the suffix array.",
             lambda t, o, p: (min(o[slice(*_range(t, o, p))]), max(o[slice(*_range(t, o, p))]) + 1)
             if _range(t, o, p) != (0, 0) else (0, 0)),
        Slip("this is one match only; all of them are neighbours in the suffix array.",
             lambda t, o, p: (r := _range(t, o, p)) and (r if r == (0, 0) else (r[0], r[0] + 1))),
        Slip("this goes by the first token of the pattern only.", lambda t, o, p: _range(t, o, p[:1])),
        Slip("where there is no match, return (0, 0).",
             lambda t, o, p: _range(t, o, p) if _range(t, o, p) != (0, 0) else
             (n := sum(t[i:] < p for i in o), n)),
))


def _backs(rng: np.random.Generator) -> list[tuple]:
    cases = [(_corpus(rng, L, V), _corpus(rng, n, V), most, least) for L, V, n, most, least in
             ((12, 3, 5, 4, 1), (20, 3, 6, 6, 2), (20, 4, 4, 3, 2), (30, 2, 8, 8, 1), (6, 5, 3, 3, 2))]
    text = [1, 2, 3, 4]
    return [(text, [9, 2, 3], 3, 1), (text, [3, 2], 2, 2), ([1, 2], [7], 4, 1), (text, [1, 2, 3], 2, 1), *cases]


def _occurs(corpus: list[int], piece: list[int]) -> bool:
    return any(corpus[i : i + len(piece)] == piece for i in range(len(corpus) - len(piece) + 1))


def _longest(corpus, context, most, least, piece=None, order=reversed) -> int:
    piece = piece or (lambda n: context[len(context) - n :])
    for n in order(range(least, min(most, len(context)) + 1)):
        if _occurs(corpus, piece(n)):
            return n
    return 0


BACKOFF = Question(
    "08.3", "match_length", ("corpus", "context", "max_n", "min_n"), _backs, right=_longest, returns="a whole number",
    slips=(
        Slip("it drops the newest token when there is no match; the oldest one says least about what comes next.",
             lambda c, x, M, m: _longest(c, x, M, m, piece=lambda n: x[max(0, len(x) - M) :][:n])),
        Slip("it looks up the beginning of the context; its end is what is to be continued.",
             lambda c, x, M, m: _longest(c, x, M, m, piece=lambda n: x[:n])),
        Slip("it begins with the shortest suffix, which nearly always matches; the longest says most.",
             lambda c, x, M, m: _longest(c, x, M, m, order=iter)),
        Slip("min_n has no effect: a match shorter than that does not count.", lambda c, x, M, m: _longest(c, x, M, 1)),
        Slip("max_n has no effect.", lambda c, x, M, m: _longest(c, x, len(x), m)),
        Slip("it does not back off: where max_n tokens do not occur, try fewer.",
             lambda c, x, M, m: _longest(c, x, M, max(m, min(M, len(x))))),
))


def _continuations(rng: np.random.Generator) -> list[tuple]:
    sizes = ((5, 3), (8, 5), (12, 6), (3, 20))
    cases = [([_corpus(rng, int(rng.integers(1, 4))) for _ in range(k)], c) for k, c in sizes]
    return [([[1, 2], [1, 2], [3, 4]], 3), ([[5]], 4), *cases]


def _weights(texts: list[list[int]]) -> dict[tuple, int]:
    weights: dict[tuple, int] = {}
    for text in texts:
        for d in range(1, len(text) + 1):
            weights[tuple(text[:d])] = weights.get(tuple(text[:d]), 0) + 1
    return weights


def _best(texts: list[list[int]], c: int, key=None) -> list[tuple[list[int], int]]:
    weights = _weights(texts)
    key = key or (lambda prefix: (-weights[prefix], len(prefix), prefix))
    return [(list(prefix), weights[prefix]) for prefix in sorted(weights, key=key)[:c]]


PREFIXES = Question(
    "08.4", "heaviest", ("continuations", "c"), _continuations, right=_best, like=[([0], 0)],
    returns="a list of pairs (prefix, weight)", slips=(
        Slip("these are whole continuations only; a prefix of one is a node too, and weighs as many as begin with it.",
             lambda texts, c: [(list(t), n) for t, n in sorted(
                 {tuple(t): texts.count(t) for t in texts}.items(), key=lambda x: (-x[1], len(x[0]), x[0]))[:c]]),
        Slip("it takes the shallow nodes first; the heavier comes first, however deep.",
             lambda texts, c: _best(texts, c, key=lambda prefix: (len(prefix), -_weights(texts)[prefix], prefix))),
        Slip("it takes the deepest of equally heavy nodes first; then a child would come before its parent.",
             lambda texts, c: _best(texts, c, key=lambda prefix: (-_weights(texts)[prefix], -len(prefix), prefix))),
        Slip("it takes the lightest first.",
             lambda texts, c: _best(texts, c, key=lambda prefix: (_weights(texts)[prefix], len(prefix), prefix))),
        Slip("c has no effect.", lambda texts, c: _best(texts, 10**6)),
        Slip("it counts single tokens, whatever stands before them; a node is a prefix, its place in the tree.",
             lambda texts, c: [([x], n) for x, n in sorted(
                 {x: sum(t.count(x) for t in texts) for t in texts for x in t}.items(),
                 key=lambda x: (-x[1], x[0]))[:c]]),
))


def _trees(rng: np.random.Generator) -> list[tuple]:
    cases = [([-1, *(int(rng.integers(0, i)) for i in range(1, n))],) for n in (3, 5, 8)]
    return [([-1, 0, 0, 1],), ([-1],), ([-1, 0, 1, 2],), *cases]


def _ancestors(parents: list[int], itself: bool = True) -> np.ndarray:
    mask = np.zeros((len(parents), len(parents)), bool)
    for i in range(len(parents)):
        at = i if itself else parents[i]
        while at >= 0:
            mask[i, at] = True
            at = parents[at]
    return mask


def _parents_only(parents: list[int], root: bool) -> np.ndarray:
    mask = np.eye(len(parents), dtype=bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask[i, parent] = True
        mask[i, 0] |= root
    return mask


TREE = Question(
    "08.5", "tree_mask", ("parents",), _trees, right=_ancestors, returns="a square array of True and False", slips=(
        Slip("this is plain causal attention: a row would see siblings, which are other versions of the same place.",
             lambda parents: np.tri(len(parents), dtype=bool)),
        Slip("a row sees all its ancestors, not its parent alone.", lambda parents: _parents_only(parents, False)),
        Slip("a row sees all its ancestors, not its parent and the root alone.",
             lambda parents: _parents_only(parents, True)),
        Slip("a row sees itself, too.", lambda parents: _ancestors(parents, itself=False)),
        Slip("rows and columns have changed places: mask[i, j] says whether row i sees row j.",
             lambda parents: _ancestors(parents).T),
        Slip("every row sees itself alone.", lambda parents: np.eye(len(parents), dtype=bool)),
))

QUESTIONS = (ARRAY, FIND, BACKOFF, PREFIXES, TREE)
