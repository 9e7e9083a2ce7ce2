"""Drafting only when it pays, and no more than pays: a drafter's drafts cut by t(q) and by what was accepted lately.

As lossless as the drafter: how many nodes are drafted is decided from past steps, never from the tokens of a draft that
was drawn by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..base.arguments import real
from ..core.contract import Budget, Drafter, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.tree import DraftTree
from .cascade import in_turn
from .methods import Context, MethodError


class Adaptive(DrafterBase):
    """Drafts only when it pays on this machine, and no more than pays.

    A draft of m nodes is worth its forward if (1 + a(m)) / (t(m + 1) + d(m)) exceeds 1 / t(1), where a(m) is
    how many of m nodes are accepted on average, t(q) the time of a forward of q rows and d(m) that of making
    the draft; the m that makes the most of it is chosen. a(m) is the sum over the first m rows of how often
    each was accepted lately: running means with decay, kept apart by match length (``match_len``; all together
    where drafts are not found by a match). Each mean starts from ``hope`` times that of the row above it.

    A draft of fixed tokens need not be checked to be judged. The tokens that come anyway, drafted or not, say
    how much of it would have been accepted: its path along them. So every proposal is remembered whole, also
    the rows that were cut off and the drafts that were not made at all, and judged as the text goes on. Being
    wrong costs nothing but the forwards of the first few steps, and a change is noticed at once.

    That does not work where the draft was drawn by chance, was not made because making it costs something, or has
    scratch rows, which the drafter must see forwarded to go on. There, rows that do not pay are tried again from
    time to time. Trials are paid from a purse into which every step puts ``explore`` of t(1), so that all of them
    together cost at most that share of autoregressive decoding. Nothing is timed while decoding: with the same
    t, the same run makes the same choices.

    Args:
        drafter: asked for drafts. A tree of fixed tokens is cut to its first m rows, which must be its best m
            (the drafters here list them so). A tree with scratch rows is kept whole or dropped. A drafter
            that samples, or costs something, is asked for no more than m nodes in the first place: what was
            drawn must not decide what is cut.
        t: seconds of a forward of q rows for q >= 1, such as `costs.Costs.t`.
        draft_seconds: d, seconds of making a draft of m nodes; 0 for lookups, which are always asked.
        explore: share of the time of autoregressive decoding to spend on trials.
        memory: drafts after which an outcome weighs 1/e.
        hope: how often a row is expected to be accepted once the row above it is; weighs as one outcome.

    Raises:
        ValueError: for a t(1) that is not positive, or a number out of its range.

    Example:
        >>> from .prompt_lookup import PromptLookup
        >>> cheap = Adaptive(PromptLookup(), t=lambda q: 1.0)
        >>> cheap.propose([1, 2, 3, 1], Budget(8, 8), Rng(0)).size
        3
        >>> costly = Adaptive(PromptLookup(), t=lambda q: float(q))  # q rows cost q steps: nothing to gain
        >>> costly.propose([1, 2, 3, 1], Budget(8, 8), Rng(0)).size
        0
    """

    name = "adaptive"

    def __init__(
        self, drafter: Drafter, t: Callable[[int], float], draft_seconds: Callable[[int], float] = lambda nodes: 0.0,
        explore: float = 0.01, memory: float = 32.0, hope: float = 0.7,
    ):
        real("t(1)", t(1), above=0)
        self.drafter, self.t, self.draft_seconds = drafter, t, draft_seconds
        self.explore, self.hope = real("explore", explore, 0, 1), real("hope", hope, 0, 1)
        self._decay = float(np.exp(-1 / real("memory", memory, 1)))
        self.name = f"adaptive({drafter.name})"
        self.needs_hidden, self.max_nodes = drafter.needs_hidden, drafter.max_nodes
        self.has_model, self.draft_ids = drafter.has_model, drafter.draft_ids
        self._learned: dict[int, _Rows] = {}
        self._forward = np.empty(0)  # t(1), t(2), ... as far as needed
        self._purse = 0.0  # seconds saved for trials
        self._asks_first = draft_seconds(1) > 0
        self._asked: tuple[DraftTree, _Rows, int] | None = None  # the last draft asked for, and whom it teaches
        self._unjudged: list[_Proposal] = []

    @classmethod
    def build(cls, context: Context, method: str = "suffix_decoding:offset=4.0", explore: float = 0.01) -> Adaptive:
        """From the name of a drafter and the context's t(q); where a model drafts, what a draft costs is measured too.

        ``method`` may be a cascade, such as "suffix_decoding:offset=4.0>rest": worth having where there is a datastore.

        By default suffix decoding is asked for drafts four nodes longer than it makes by itself: what is too long is
        cut here, what is too short is not made longer. Replayed over the own prompts (benchmarks/replay.py), it was
        the faster choice, on average over the tasks, than prompt lookup, n-grams or their cascade at every slope
        of t(q), from 0.01 to 0.5 of t(1) per row.
        """
        drafter = in_turn(method, context)
        if context.t is None:
            raise MethodError(
                "adaptive decides by t(q), which is not known here; build it with measure.context_for(lm)"
            )
        if not drafter.has_model:
            return cls(drafter, context.t, explore=explore)
        if context.draft_seconds is None:
            raise MethodError(
                f"{drafter.name} takes time to draft, which is not known here; build it with measure.context_for(lm)"
            )
        return cls(drafter, context.t, context.draft_seconds(drafter), explore)

    def reset(self, context: Sequence[int]) -> None:
        """A new request. What was learned about the drafter is kept."""
        self._asked, self._unjudged = None, []
        self.drafter.reset(context)

    def read_prompt(self, hidden: torch.Tensor) -> None:
        self.drafter.read_prompt(hidden)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        self._asked = None
        if self._asks_first:
            rows = self._rows(0, budget.nodes)
            nodes = self._choose(rows, budget.nodes, np.arange(budget.nodes + 1), trials=True)
            if not nodes:
                return DraftTree.empty(context[-1])
            self._asked = self.drafter.propose(context, Budget(nodes, budget.depth), rng), rows, nodes
            return self._asked[0]
        tree = self.drafter.propose(context, budget, rng)
        self.match_len = self.drafter.match_len
        if tree.draw != "point":
            self._asks_first = True  # from the next step on; this tree was drawn, and stays as it is
        if self._asks_first or not tree.size:
            return tree
        rows = self._rows(self.drafter.match_len, tree.size)
        self._unjudged.append(_Proposal(tree, rows, len(context)))
        scratch = not tree.candidate.all()
        cuts = np.array([0, tree.size]) if scratch else np.arange(tree.size + 1)
        nodes = self._choose(rows, tree.size, cuts, trials=scratch)
        return tree if nodes == tree.size else DraftTree(tree.tokens[: nodes + 1], tree.parents[: nodes + 1])

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        if self._asked and tree is self._asked[0]:  # in a cascade it may be another drafter's
            _, rows, nodes = self._asked
            rows.learn(verdict.path[1:], nodes, self._decay)
        self._unjudged = [proposal for proposal in self._unjudged if not proposal.judged(context, self._decay)]
        self.drafter.observe(context, tree, verdict, out)

    def _rows(self, match_len: int, size: int) -> _Rows:
        """What is known about matches like this one: of 0, 1, 2-3, 4-7, 8-15, 16-31, ... tokens."""
        rows = self._learned.setdefault(match_len.bit_length(), _Rows())
        rows.grow(size)
        return rows

    def _choose(self, rows: _Rows, size: int, cuts: np.ndarray, trials: bool) -> int:
        """How many nodes of ``size`` to draft, out of ``cuts``, which begin with 0 and increase."""
        seconds = self._seconds(size)
        expected = np.concatenate([[0.0], np.cumsum(rows.means(size, self.hope))])
        best = int(cuts[((1 + expected) / seconds)[cuts].argmax()])
        if not trials:
            return best
        # No more is saved than one full trial costs, so that a good phase does not pay for a bad one.
        self._purse = min(self._purse + self.explore * seconds[0], max(seconds.max() - seconds[0], 0.0))
        trial = int(cuts[np.searchsorted(cuts, min(max(1, 2 * best), size))])
        if trial > best and 0 < seconds[trial] - seconds[best] <= self._purse:
            self._purse -= seconds[trial] - seconds[best]
            return trial
        return best

    def _seconds(self, size: int) -> np.ndarray:
        """(size+1,) seconds of a step that drafts 0 ... size nodes."""
        if len(self._forward) <= size:
            self._forward = np.append(self._forward, [self.t(q) for q in range(len(self._forward) + 1, size + 2)])
        if not self._asks_first:
            return self._forward[: size + 1]  # the draft is there already, whatever is made of it
        return self._forward[: size + 1] + [0.0, *map(self.draft_seconds, range(1, size + 1))]


class _Proposal:
    """A draft of fixed tokens, after a context of ``length``, that the tokens to come will judge, checked or not."""

    def __init__(self, tree: DraftTree, rows: _Rows, length: int):
        self._tree, self._rows, self._next = tree, rows, length
        self._path: list[int] = []  # the rows that have come true, root first, without the root

    def judged(self, context: Sequence[int], decay: float) -> bool:
        """Follow the context down the tree; True once the path has ended, and been learned from."""
        while children := self._tree.children(self._path[-1] if self._path else 0):
            if self._next == len(context):
                return False
            token = context[self._next]
            row = next((child for child in children if self._tree.tokens[child] == token), None)
            if row is None:
                break
            self._path.append(row)
            self._next += 1
        self._rows.learn(self._path, self._tree.size, decay)
        return True


class _Rows:
    """How often each row of a tree was accepted, by decayed counts."""

    def __init__(self) -> None:
        self._tried, self._accepted = np.empty(0), np.empty(0)

    def grow(self, size: int) -> None:
        more = np.zeros(max(0, size - len(self._tried)))
        self._tried, self._accepted = np.append(self._tried, more), np.append(self._accepted, more)

    def means(self, size: int, hope: float) -> list[float]:
        """(size,) accepted / tried of rows 1 ... size, with one outcome of ``hope`` times the row above."""
        means, above = [], 1.0
        for tried, accepted in zip(self._tried[:size].tolist(), self._accepted[:size].tolist(), strict=True):
            above = (accepted + hope * above) / (tried + 1)
            means.append(above)
        return means

    def learn(self, accepted: Sequence[int], size: int, decay: float) -> None:
        """Rows 1 ... ``size`` were tried, those of ``accepted`` kept."""
        self._tried[:size] = self._tried[:size] * decay + 1
        self._accepted[:size] *= decay
        self._accepted[[row - 1 for row in accepted]] += 1
