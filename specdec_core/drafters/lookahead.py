"""Lookahead decoding (Fu et al. 2024, arXiv:2402.02057): n-grams from Jacobi trajectories, pooled, checked.

Differs from `Jacobi` in two ways. Rounds are remembered, N - 1 of them for W positions, so a forward completes W
n-grams of length N instead of 2-grams. And n-grams are not trusted at the place where they arose but pooled by their
first token, and checked wherever the context's last token is that one, in the same forward.

The window is made of scratch rows of the tree. Row (j, i), level j = 0 ... N-2 and column i = 0 ... W-1,
holds the token that round j (0 the oldest) left at position i + j after the root:

    (0, 0) is the root, the current input token;
    (0, i) hangs from (0, i - 1), and (j, i) from (j - 1, i).

So a row sees the root, level 0 up to its own column, and its own column down to itself: Figure 2(b) of the
paper, where for W = 5, N = 4 the red token 6 sees the green 5, the orange 4 ... 1 and the blue 0. The root
being one of the window's rows, a step has at most W(N-1) + G(N-1) = (W + G)(N - 1) rows, root included: 120,
80 and 56 for (W, N) = (15, 5), (10, 5), (7, 5) with G = W.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ..base.arguments import flag, one_of, whole
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.tree import DraftTree
from .jacobi import random_tokens


class Lookahead(DrafterBase):
    """Proposes up to G pooled n-grams that begin with the root, beside the W x (N - 1) window. Lossless.

    The window always takes the target's argmax, also when sampling: a draft is then one fixed token,
    verification needs no q, and the pool holds ids only (section 3.2 of the paper).

    Candidates that share a prefix share its rows, where the paper keeps them disjoint. The distribution of the
    output is the same, the rows are fewer, and one walk down the tree finds the longest match among all
    candidates, which the paper's Algorithms 3 and 4 do by dropping the candidates whose prefix failed.

    The first N - 2 steps fill the window as the paper's code (lade) does, one level per step from a single level of W +
    N - 2 random tokens of the context. Lade checks nothing meanwhile; here candidates are checked where rows are left.

    Args:
        W: columns of the window, >= 1.
        N: length of the n-grams, >= 2; with N = 2 the window is one Jacobi guess.
        G: most candidates checked per step, >= 1; W by default, as in the paper.
        prompt_ngrams: also pool every n-gram of the context, of the prompt and then of what is generated.
        pool_size: n-grams kept for one first token, the least recently made dropped first; G by default.
        slide: how the window moves on after a step that accepted k draft tokens. ``"one"`` (the paper, lade's
            default): the oldest level goes, whatever k, so its tokens now stand k positions further on than
            where they arose. ``"accepted"`` (lade's ALWAYS_FWD_ONE=0): the first k columns go too, every
            token keeps its position, and random tokens of the context fill up on the right.

    Attributes:
        levels: the window, oldest level first; N - 1 lists of W tokens once it is full.
        pool: first token -> its n-grams without it, most recent last.
        max_nodes: (W + G)(N - 1) - 1, the nodes of a full step, and the budget a run gives by default.

    Where `Budget.nodes` is below `max_nodes` the rows are divided as W : G, with at least one candidate, and
    a warning says so once. Where `Budget.depth` is too small, near the end of the model's context, columns
    go from the right and candidates are cut short.

    Raises:
        ValueError: on a number below its least value, or another ``slide``.

    Example:
        >>> drafter = Lookahead(W=2, N=3, G=1, prompt_ngrams=True)
        >>> drafter.reset([5, 5, 5])
        >>> tree = drafter.propose([5, 5, 5], Budget(8, 8), Rng(0))  # one level of W + N - 2 = 3 columns so far
        >>> tree.parents.tolist(), tree.candidate.astype(int).tolist()
        ([-1, 0, 1, 0, 3], [1, 0, 0, 1, 1])
        >>> [Lookahead(W=w, N=5).max_nodes + 1 for w in (15, 10, 7)]  # the rows of the paper
        [120, 80, 56]
    """

    name = "lookahead"

    def __init__(
        self, W: int = 7, N: int = 5, G: int | None = None, prompt_ngrams: bool = False, pool_size: int | None = None,
        slide: str = "one",
    ):
        self.W, self.N = whole("W", W, 1), whole("N", N, 2)
        self.G = self.W if G is None else whole("G", G, 1)
        self.pool_size = self.G if pool_size is None else whole("pool_size", pool_size, 1)
        self.max_nodes = (self.W + self.G) * (self.N - 1) - 1
        self.prompt_ngrams = flag("prompt_ngrams", prompt_ngrams)
        self.slide = one_of("slide", slide, ("one", "accepted"))
        self._warned = False
        self.reset([])

    def reset(self, context: Sequence[int]) -> None:
        self.levels: list[list[int]] = [[]]
        self.pool: dict[int, dict[tuple[int, ...], None]] = {}
        self._columns = 0  # of the window in the last proposal
        self._tree: DraftTree | None = None
        self._pooled = 0  # every n-gram of the context that ends before this position is in the pool

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        if self.prompt_ngrams:
            for end in range(max(self._pooled + 1, self.N), len(context) + 1):
                self._remember(context[end - self.N : end])
            self._pooled = len(context)
        rows = 1 + min(budget.nodes, self.max_nodes)
        self._warn(rows)
        self._columns = self._fit(rows, budget.depth)
        if self._columns:
            for level in self.levels:
                del level[self._columns :]
                level += random_tokens(self._columns - len(level), context, rng)
            self.levels[0][0] = int(context[-1])
        self._tree = self._build(int(context[-1]), rows, budget.depth)
        return self._tree

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        if tree is not self._tree or not self._columns:
            return
        levels, first = self.levels, (len(self.levels) - 1) * self._columns
        made = out.logits[first : first + self._columns].argmax(-1).tolist()  # the newest level's successors
        if len(levels) == self.N - 1:
            for gram in zip(*levels, made, strict=True):
                self._remember(gram)
            levels = [*levels[1:], made]
        else:
            # No level is dropped yet, so it is the columns that step to the left as the root moves on.
            levels = [level[1:] for level in (*levels, made)]
        moved = verdict.accepted if self.slide == "accepted" else 0
        self.levels = [level[moved:] for level in levels]

    def _fit(self, rows: int, depth: int) -> int:
        """Columns of the window in a step of at most ``rows`` rows and ``depth``."""
        levels, length = len(self.levels), self.N - 1
        reserved = length * max(1, rows // length * self.G // (self.W + self.G))
        reserved *= levels == length  # while the window fills, candidates get what it leaves
        wanted = self.W + length - levels
        return max(0, min(wanted, (rows - reserved) // levels, depth + 2 - levels))

    def _build(self, root: int, rows: int, depth: int) -> DraftTree:
        """The window, and behind it the trie of the root's n-grams, in one tree of at most ``rows`` rows."""
        columns = self._columns
        tokens, parents = [root], [-1]
        if columns:
            tokens = [token for level in self.levels for token in level]
            parents = [*range(-1, columns - 1), *range(len(tokens) - columns)]
        window = len(tokens)
        newest_first = list(reversed(self.pool.get(root, {})))[: self.G]
        trie = DraftTree.from_paths(root, [gram[:depth] for gram in newest_first], rows - window)
        # Both trees have the root as their row 0; row i >= 1 of the trie becomes row window + i - 1 of the whole.
        behind = np.where(trie.parents[1:] == 0, 0, trie.parents[1:] + window - 1)
        candidate = np.arange(window + trie.size) >= window
        candidate[0] = True
        return DraftTree(np.append(tokens, trie.tokens[1:]), np.append(parents, behind), candidate=candidate)

    def _remember(self, gram: Sequence[int]) -> None:
        first, rest = int(gram[0]), tuple(int(token) for token in gram[1:])
        kept = self.pool.setdefault(first, {})
        kept[rest] = kept.pop(rest, None)  # now the most recent
        if len(kept) > self.pool_size:
            del kept[next(iter(kept))]

    def _warn(self, rows: int) -> None:
        if rows <= self.max_nodes and not self._warned:
            self._warned = True
            warnings.warn(
                f"W={self.W}, N={self.N}, G={self.G} need max_nodes={self.max_nodes}; the budget of "
                f"{rows - 1} leaves fewer columns and candidates",
                stacklevel=2,
            )
