"""Jacobi decoding: guess m tokens, let the target correct all of them at once, guess its corrections next.

Differs from the lookup drafters in having no memory of the text: the m greedy equations y_i = argmax p(. |
y_<i) are solved by fixed-point iteration (Santilli et al. 2023, arXiv:2305.10427; arXiv:2402.02057,
Algorithm 1). In a tree's terms the guess is a chain, and the next guess is the target's argmax at every row
of it, the rejected rows too. Positions the target confirmed leave the guess on the left and fresh ones enter
on the right, so the guess is always m tokens long; restricted to any fixed m positions this is Algorithm 1,
because a position never depends on those to its right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base.arguments import ids, whole
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.tree import DraftTree


class Round(NamedTuple):
    """One Jacobi iteration. ``guess[d]`` and ``argmax[d]`` both stand at position ``context_length + d``.

    Attributes:
        context_length: committed tokens before the round.
        guess: the tokens guessed, at most m of them.
        argmax: one more: ``argmax[d]`` is the target's choice after the context and ``guess[:d]``. The pair
            (``guess[d - 1]``, ``argmax[d]``) is the 2-gram hidden between two rounds.
    """

    context_length: int
    guess: tuple[int, ...]
    argmax: tuple[int, ...]


class Jacobi(DrafterBase):
    """Proposes the last round's corrections. Lossless, at any temperature: the guess is one fixed chain.

    Args:
        m: length of the guess, in tokens; m tokens take at most m rounds.
        init: what a position holds before its first round: ``"random"`` (a token of the context, drawn
            uniformly), ``"repeat"`` (the last token of the context), or token ids, the first for the first
            position after the prompt and so on, over again where they run out.

    Attributes:
        trajectory: one `Round` per step since the last `reset`.

    Raises:
        ValueError: for m < 1 or another ``init``.

    Example:
        >>> drafter = Jacobi(3, init=[7, 8])
        >>> drafter.reset([5, 6])
        >>> drafter.propose([5, 6], Budget(8, 8), Rng(0)).tokens.tolist()
        [6, 7, 8, 7]
    """

    name = "jacobi"

    def __init__(self, m: int = 8, init: str | Sequence[int] = "random"):
        self.m = self.max_nodes = whole("m", m, 1)
        self.init = init if isinstance(init, str) else tuple(ids("init", init))
        if self.init not in ("random", "repeat") and (isinstance(init, str) or not self.init):
            raise ValueError(f"init must be 'random', 'repeat' or a sequence of token ids; got {init!r}")
        self.reset([])

    def reset(self, context: Sequence[int]) -> None:
        self.trajectory: list[Round] = []
        self._guess: list[int] = []
        self._tree: DraftTree | None = None
        self._prompt_length = self._length = len(context)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        length = min(self.m, budget.nodes, budget.depth)
        start = len(context) - self._prompt_length + len(self._guess)
        self._guess = self._guess[:length] + self._fresh(length - len(self._guess), start, context, rng)
        self._tree, self._length = DraftTree.chain(context[-1], self._guess), len(context)
        return self._tree

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        if tree is not self._tree:  # another drafter's turn: what is left of the guess moves up
            self._guess = self._guess[len(verdict.tokens) :]
            return
        argmax = out.logits.argmax(-1).tolist()
        self.trajectory.append(Round(self._length, tuple(self._guess), tuple(argmax)))
        self._guess = argmax[verdict.accepted + 1 :]

    def _fresh(self, count: int, start: int, context: Sequence[int], rng: Rng) -> list[int]:
        """First guesses for ``count`` positions, the first of them ``start`` tokens after the prompt."""
        init = self.init
        if isinstance(init, str):
            return random_tokens(count, context, rng) if init == "random" else [context[-1]] * count
        return [init[position % len(init)] for position in range(start, start + count)]


def random_tokens(count: int, context: Sequence[int], rng: Rng) -> list[int]:
    """``count`` tokens of the context, drawn uniformly with replacement: the usual first guess.

    Example:
        >>> random_tokens(3, [4, 4], Rng(0))
        [4, 4, 4]
    """
    if count <= 0:
        return []
    uniform = np.full(len(context), 1 / len(context))
    return [int(context[rng.pick(uniform)]) for _ in range(count)]
