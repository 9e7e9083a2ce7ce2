"""Suffix decoding: the session is the draft model (Oliaro et al. 2024, arXiv:2411.04975).

Differs from `NGramDictionary` in matching suffixes of any length, in remembering what earlier requests were
answered, and in how much it drafts: the longer the match, the longer the draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arguments import real, whole
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.tree import DraftTree
from ..stores.suffix_memory import GrowingText, Memory, PastTexts, Where
from ..stores.suffix_tree import as_text
from .ngram import grow


@dataclass(frozen=True)
class Speculation:
    """A draft from one memory and one match length.

    Attributes:
        score: sum of the nodes' path probabilities: how many of them would be accepted if the next tokens
            were distributed as the memory's counts say.
        match_len: tokens of context that were matched.
        tokens, parents: the nodes, as rows of a tree whose root is row 0.
    """

    score: float = 0.0
    match_len: int = 0
    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()


class SuffixDecoding(DrafterBase):
    """Proposes what followed the context's suffix before, in this request or in past ones. Lossless.

    Two memories count all strings of up to ``depth`` tokens: one of this request, prompt included, and one of the
    answers to past requests. For a suffix of n tokens a draft of at most ``factor * n + offset`` nodes is grown best
    first by path probability, the product of count ratios from the root down. Of all match lengths the draft with the
    largest score wins, among equals the longer match; this request wins over the past unless the past scores more.

    Adding a token costs a time that depends on ``depth`` alone, see `suffix_memory`. `reset` puts the answer
    of the request before it into the memory of past ones, which is bounded by requests and by tokens, first
    in, first out. Memory: each of the two trees has at most 2 max_tokens nodes, of about 300 bytes.

    Args:
        nodes: most nodes of a draft.
        depth: tokens of match and draft together (vLLM's 24 here; 64 in Arctic Inference).
        factor, offset: nodes of a draft per token matched, and on top.
        min_prob: least path probability of a node.
        min_n: shortest match.
        max_requests: past requests remembered.
        max_tokens: tokens remembered of this request, and of past ones together.

    Attributes:
        local, past: the two memories.
        match_len: tokens matched by the last proposal, 0 if it was empty.
        score: of the last proposal, see `Speculation`.
        source: the memory it came from: "this request", "past requests", or "none".

    Raises:
        ValueError: on a value of another kind, or outside its range.

    Example:
        >>> drafter = SuffixDecoding(nodes=4)
        >>> text = [1, 2, 3, 1, 2, 4, 1, 2, 4, 1, 2]  # 1 2 was followed by 3 once and by 4 twice
        >>> drafter.reset(text)
        >>> tree = drafter.propose(text, Budget(8, 8), Rng(0))
        >>> tree.tokens.tolist(), tree.parents.tolist(), drafter.match_len  # but 1 2 4 1 2 only by 4 1 2
        ([2, 4, 1, 2], [-1, 0, 1, 2], 5)
    """

    name = "suffix_decoding"

    def __init__(
        self, nodes: int = 16, depth: int = 24, factor: float = 1.0, offset: float = 0.0, min_prob: float = 0.1,
        min_n: int = 1, max_requests: int = 10_000, max_tokens: int = 200_000,
    ):
        self.nodes = self.max_nodes = whole("nodes", nodes, 1)
        self.min_n = whole("min_n", min_n, 1)
        self.depth = whole("depth", depth, self.min_n + 1)
        self.factor, self.offset = real("factor", factor, 0), real("offset", offset)
        self.min_prob = real("min_prob", min_prob, above=0, most=1)
        self.max_tokens = whole("max_tokens", max_tokens, 1)
        self.past = PastTexts(self.depth, whole("max_requests", max_requests, 0), self.max_tokens)
        self._start([])

    def reset(self, context: Sequence[int]) -> None:
        self.past.add(as_text(self._answer))
        self._start(context)

    def _start(self, context: Sequence[int]) -> None:
        self.local = GrowingText(self.depth, self.max_tokens)
        self._answer: list[int] = []
        self._prompt, self._seen = len(context), 0
        self.match_len, self.score, self.source = 0, 0.0, "none"
        self._add_new(context)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        self._add_new(context)
        suffix = as_text(context[-(self.depth - 1) :])
        local = self._speculate(self.local, suffix, budget, least=0.0)
        past = self._speculate(self.past, suffix, budget, least=local.score)
        best = past if past.score > local.score else local
        self.match_len, self.score = best.match_len, best.score
        self.source = "none" if not best.tokens else "past requests" if best is past else "this request"
        return DraftTree(np.array([context[-1], *best.tokens]), np.array([-1, *best.parents]))

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        self._add_new(context)

    def _add_new(self, context: Sequence[int]) -> None:
        for char in as_text(context[self._seen :]):
            self.local.append(char)
        self._answer += context[max(self._seen, self._prompt) :]
        self._seen = max(self._seen, len(context))

    def _speculate(self, memory: Memory[Where], suffix: str, budget: Budget, least: float) -> Speculation:
        """The best draft of ``memory`` over all match lengths; an empty one if none scores more than ``least``."""
        # A draft cannot score more than it has nodes or levels: match lengths are tried in the order of that bound.
        limits = []
        for n in range(self.min_n, self._longest(memory, suffix) + 1):
            nodes = min(self.nodes, budget.nodes, int(self.factor * n + self.offset))
            depth = min(self.depth - n, budget.depth)
            limits.append((min(nodes, depth), n, nodes, depth))
        best = Speculation(score=least)
        for bound, n, nodes, depth in sorted(limits, reverse=True):
            if (bound, n) <= (best.score, best.match_len) or bound <= least:
                break  # in this order, so are all that come after
            draft = self._grow(memory, suffix[len(suffix) - n :], nodes, depth)
            if draft.score > least and (draft.score, n) > (best.score, best.match_len):
                best = draft
        return best if best.tokens else Speculation()

    def _longest(self, memory: Memory[Where], suffix: str) -> int:
        """Tokens of the longest end of ``suffix`` seen followed by something, 0 if none. Every shorter end was too."""
        low, high = 0, len(suffix)
        while low < high:
            n = (low + high + 1) // 2
            place = memory.find(suffix[len(suffix) - n :])
            low, high = (n, high) if place and memory.goes_on(place) else (low, n - 1)
        return low

    def _grow(self, memory: Memory[Where], matched: str, nodes: int, depth: int) -> Speculation:
        """A draft after ``matched``, of at most ``nodes`` nodes and ``depth`` levels."""

        def likely(place: Where, probability: float) -> list[tuple[float, str]]:
            followers = memory.followers(place)
            total = sum(followers.values())
            paths = [(-probability * count / total, char) for char, count in followers.items()]
            return sorted(path for path in paths if -path[0] >= self.min_prob)

        place = memory.find(matched)
        if place is None:
            return Speculation()
        chars, parents, score = grow(place, likely, memory.step, nodes, depth)
        return Speculation(score, len(matched) if chars else 0, tuple(map(ord, chars)), tuple(parents))
