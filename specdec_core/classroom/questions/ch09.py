"""Chapter 09: suffix decoding."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from ..question import Question, Slip, taken
from .ch05 import text


def _suffixes(rng: np.random.Generator) -> list[tuple]:
    cases = [(text(rng, L), text(rng, n)) for L, n in ((8, 1), (15, 1), (20, 2), (30, 2))]
    return [([7, 7, 7, 7], [7, 7]), ([1, 2, 3], [2, 3]), ([1, 2, 1, 3, 1, 2], [1]), *cases]


def _counts(tokens: list[int], string: list[int], step: int = 1) -> dict[int, int]:
    found: dict[int, int] = {}
    i, n = 0, len(string)
    while i + n < len(tokens):
        if tokens[i : i + n] == string:
            found[tokens[i + n]] = found.get(tokens[i + n], 0) + 1
            i += step
        else:
            i += 1
    return found


FOLLOWERS = Question(
    "09.1", "followers", ("tokens", "string"), _suffixes, right=_counts, like={0: 0},
    returns="a dict from a token to how often it followed", slips=(
        Slip("occurrences that overlap are left out; each of them has a follower of its own.",
             lambda t, s: _counts(t, s, step=len(s))),
        Slip("this counts which tokens followed, but each of them once only.",
             lambda t, s: dict.fromkeys(_counts(t, s), 1)),
        Slip("this counts the followers of the string's last token alone; all of the string must agree.",
             lambda t, s: _counts(t, s[-1:])),
        Slip("this counts all tokens of the text.", lambda t, s: {x: t.count(x) for x in t}),
))


def _lengths(rng: np.random.Generator) -> list[tuple]:
    cases = [(int(n), float(f), float(o), int(m)) for n, f, o, m in
             zip(rng.integers(1, 20, 8), rng.uniform(0.3, 2.5, 8), rng.uniform(-3, 3, 8), rng.integers(4, 30, 8),
                 strict=True)]
    return [(5, 1.0, 0.0, 16), (20, 1.0, 0.0, 16), (3, 0.5, 0.0, 16), (1, 0.5, -2.0, 16), *cases]


NODES = Question(
    "09.2", "allowed", ("match", "factor", "offset", "most"), _lengths,
    right=lambda n, f, o, m: max(0, min(m, int(np.floor(f * n + o)))), returns="a whole number", slips=(
        Slip("it rounds up or to the nearest; a part of a node is no node.",
             lambda n, f, o, m: max(0, min(m, int(np.ceil(f * n + o))))),
        Slip("it rounds up or to the nearest; a part of a node is no node.",
             lambda n, f, o, m: max(0, min(m, round(f * n + o)))),
        Slip("a draft cannot have less than no nodes.", lambda n, f, o, m: min(m, int(np.floor(f * n + o)))),
        Slip("a draft cannot have less than no nodes.", lambda n, f, o, m: min(m, int(f * n + o))),
        Slip("it never stops growing: at most `most` nodes.", lambda n, f, o, m: max(0, int(np.floor(f * n + o)))),
        Slip("the match's length has no effect.", lambda n, f, o, m: m),
        Slip("the offset has no effect.", lambda n, f, o, m: max(0, min(m, int(f * n)))),
        Slip("max and min have changed places.", lambda n, f, o, m: max(m, int(np.floor(f * n + o)))),
))


def _memory(rng: np.random.Generator) -> Callable[[Any], dict[int, int]]:
    """What followed a path, by counts that hardly ever tie."""
    seed = int(rng.integers(1 << 30))

    def followers(path: Any) -> dict[int, int]:
        path = taken(path, [0], "followers takes a path, a tuple of tokens")
        draw = np.random.default_rng([seed, *path])
        if len(path) >= 5:
            return {}
        return {int(token): int(draw.integers(1, 1000)) for token in draw.permutation(4)[: draw.integers(1, 4)]}

    return followers


def _sizes(rng: np.random.Generator) -> list[tuple]:
    sizes = [(int(rng.integers(low, 2 * low)), float(rng.uniform(0, 0.2))) for low in (1, 3, 6, 10, 20)]
    return [(_memory(rng), nodes, least) for nodes, least in (*sizes, (40, 0.3))]


def _grow(followers, nodes: int, least: float, key=None, whole: bool = False) -> list[tuple[list[int], float]]:
    """Best first; ``key`` orders the open nodes otherwise, ``whole`` leaves shares unmultiplied."""
    key = key or (lambda path, p: -p)
    draft, open_nodes, opened = [], [], 0

    def extend(path, p):
        nonlocal opened
        found = followers(path)
        for token, count in found.items():
            share = count / sum(found.values()) * (1.0 if whole else p)
            if share >= least:
                opened += 1
                heapq.heappush(open_nodes, (key(path + (token,), share), opened, path + (token,), share))

    extend((), 1.0)
    while open_nodes and len(draft) < nodes:
        *_, path, p = heapq.heappop(open_nodes)
        draft.append((list(path), p))
        extend(path, p)
    return draft


def _chain(followers, nodes: int, least: float) -> list[tuple[list[int], float]]:
    path, p, draft = (), 1.0, []
    while len(draft) < nodes and (found := followers(path)):
        token = max(found, key=found.get)
        path, p = (*path, token), p * found[token] / sum(found.values())
        if p < least:
            break
        draft.append((list(path), p))
    return draft


GROW = Question(
    "09.3", "grow", ("followers", "nodes", "min_prob"), _sizes, right=_grow, like=[([0], 0.0)],
    returns="a list of pairs (path, probability)", slips=(
        Slip("a node's probability is the product of the shares on its path, not its own share alone.",
             lambda *case: _grow(*case, whole=True)),
        Slip("it follows the likeliest token only; the next-best branch higher up may be likelier than a deep node.",
             _chain),
        Slip("it goes level by level; the likeliest open node is next, however deep.",
             lambda *case: _grow(*case, key=lambda path, p: (len(path), -p))),
        Slip("it takes the least likely open node first.", lambda *case: _grow(*case, key=lambda path, p: p)),
        Slip("min_prob has no effect: nodes below it are left out.", lambda f, n, least: _grow(f, n, 0.0)),
        Slip("nodes has no effect: the draft is larger than that.", lambda f, n, least: _grow(f, 10**6, least)),
))


def _queues(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for count, most, tokens in ((3, 3, 100), (3, 10, 12), (5, 4, 14), (1, 1, 5), (4, 8, 9)):
        past = [text(rng, int(rng.integers(1, 6))) for _ in range(count)]
        cases.append((past, text(rng, int(rng.integers(2, 6))), most, tokens))
    return [([[1, 1, 1], [2]], [3, 3], 2, 3), ([[1]], [2, 2, 2, 2], 5, 3), ([], [1], 3, 3), *cases]


def _keep(past, answer, most, tokens, oldest: bool = True, by_count: bool = True, by_tokens: bool = True):
    kept = [*past, answer]
    while kept and ((by_count and len(kept) > most) or (by_tokens and sum(map(len, kept)) > tokens)):
        kept.pop(0 if oldest else len(kept) - 1)
    return kept


def _largest(past, answer, most, tokens):
    kept = [*past, answer]
    while kept and (len(kept) > most or sum(map(len, kept)) > tokens):
        kept.remove(max(kept, key=len))
    return kept


PAST = Question(
    "09.4", "bounded", ("past", "answer", "max_requests", "max_tokens"), _queues, right=_keep, like=[[0]],
    returns="the list of the answers that are remembered", slips=(
        Slip("the oldest answers go first, not the newest.", lambda *case: _keep(*case, oldest=False)),
        Slip("max_tokens has no effect: a memory of few long answers would have no bound.",
             lambda *case: _keep(*case, by_tokens=False)),
        Slip("max_requests has no effect.", lambda *case: _keep(*case, by_count=False)),
        Slip("nothing is ever forgotten.", lambda *case: _keep(*case, by_count=False, by_tokens=False)),
        Slip("it forgets the longest first; the oldest goes first.", _largest),
        Slip("the new answer is not remembered.",
             lambda past, answer, most, tokens: _keep(past[:-1], past[-1], most, tokens) if past else []),
        Slip("it makes room before the new answer comes, and does not look again.",
             lambda past, answer, most, tokens: [*(_keep(past[:-1], past[-1], most, tokens) if past else []), answer]),
))

QUESTIONS = (FOLLOWERS, NODES, GROW, PAST)
