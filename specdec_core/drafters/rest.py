"""REST: retrieval from a datastore (He et al. 2023, arXiv:2311.08252).

Differs from `PromptLookup` in where it looks: in a corpus prepared beforehand (`SuffixStore`) instead of the context,
and in proposing a tree: of all the places where the suffix occurs, the prefixes of what follows that are most frequent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.arguments import whole
from ..core.contract import Budget, DrafterBase
from ..core.rng import Rng
from ..core.tree import DraftTree
from ..stores.store import SuffixStore
from .methods import Context


class REST(DrafterBase):
    """Proposes the most frequent continuations of the longest suffix found in a datastore. Lossless.

    Args:
        store: the datastore.
        max_n, min_n: lengths of the suffix that is looked up, longest first (the paper's 16 and 2).
        nodes: most nodes of a draft. The paper takes 64, on a GPU; what pays depends on t(q), the time of a
            forward of q rows, and on a CPU that grows early: replayed on code, 8 were faster than 16 there, and
            hardly slower where t(q) is flat.
        depth: longest continuation, in tokens (the paper's 10).
        matches: most matches that are read; the paper reads 5,000 at random, here they are spread evenly over
            the sorted matches, so that these give each share to within 1/matches.
        vocab_size: V of the target where it is smaller than the store's: continuations end before an id that
            the target lacks.

    Attributes:
        match_len: tokens matched by the last proposal, 0 if none were.

    Raises:
        ValueError: on a number below 1, or min_n > max_n.

    Example:
        >>> store = SuffixStore.in_memory([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 9]], vocab_size=10)
        >>> tree = REST(store, nodes=3).propose([8, 1, 2], Budget(8, 8), Rng(0))
        >>> tree.tokens.tolist(), tree.parents.tolist()  # 3 twice; then 9 and 4 once each, the shallower first
        ([2, 3, 9, 4], [-1, 0, 0, 1])
    """

    name = "rest"

    def __init__(
        self, store: SuffixStore, max_n: int = 16, min_n: int = 2, nodes: int = 8, depth: int = 10, matches: int = 128,
        vocab_size: int | None = None,
    ):
        self.store, self.max_n = store, whole("max_n", max_n, 1)
        self.min_n = whole("min_n", min_n, 1, self.max_n)
        self.nodes = self.max_nodes = whole("nodes", nodes, 1)
        self.depth, self.matches = whole("depth", depth, 1), whole("matches", matches, 1)
        ours = store.vocab_size if vocab_size is None else whole("vocab_size", vocab_size, 1)
        self.vocab_size = min(ours, store.vocab_size)
        self.match_len = 0

    @classmethod
    def build(
        cls, context: Context, store: str = "code", max_n: int = 16, min_n: int = 2, nodes: int = 8, depth: int = 10,
        matches: int = 128,
    ) -> REST:
        """For a target: the store of that name, refused if another tokenizer made it."""
        opened = SuffixStore.open(store, context.tokenizer)
        return cls(opened, max_n, min_n, nodes, depth, matches, context.lm.vocab_size)

    def reset(self, context: Sequence[int]) -> None:
        self.match_len = 0

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        lo, hi, self.match_len = self.store.find(context[-self.max_n :], self.max_n, self.min_n)
        nodes, depth = min(self.nodes, budget.nodes), min(self.depth, budget.depth)
        if not self.match_len or nodes < 1 or depth < 1:
            return DraftTree.empty(context[-1])
        ids, lengths = self.store.continuations(lo, hi, self.match_len, depth, self.matches)  # (R, depth), (R,)
        beyond = np.ones((len(ids), 1), bool)  # a column behind the last, where every row ends
        foreign = np.concatenate([ids >= self.vocab_size, beyond], axis=1).argmax(axis=1)  # (R,)
        tokens, parents, _ = frequent_prefixes(ids, np.minimum(lengths, foreign), nodes)
        return DraftTree(np.append(context[-1], tokens), np.append(-1, parents))


def frequent_prefixes(ids: np.ndarray, lengths: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The most frequent prefixes of sorted continuations, as nodes of a tree (arXiv:2311.08252, section 3.2).

    A prefix weighs as many as begin with it. Among equal weights the shorter comes first, then the smaller in
    token order; so a parent, which weighs at least as much as its child, always comes before it, and any
    first c nodes are a tree.

    Args:
        ids: (R, depth) continuations in lexicographic order, as `SuffixStore.continuations` gives them.
        lengths: (R,) valid tokens of each.
        nodes: c, how many to keep.

    Returns:
        tokens (c,), parents (c,) as rows of a tree whose root is row 0, and weights (c,).

    Example:
        >>> ids = np.array([[3, 4], [3, 5], [9, 0]])
        >>> [part.tolist() for part in frequent_prefixes(ids, np.array([2, 2, 1]), nodes=3)]
        [[3, 9, 4], [0, 0, 1], [2, 1, 1]]
    """
    rows, depth = ids.shape
    # In sorted order the continuations that share a prefix are neighbors: a prefix of d + 1 tokens begins at
    # the row where one of the first d + 1 columns changes.
    begins = np.ones((rows, depth), bool)
    begins[1:] = np.logical_or.accumulate(ids[1:] != ids[:-1], axis=1)  # (R, depth): a prefix begins here
    column, first = np.nonzero(begins.T)  # (P,) each: every prefix by its last column and its first row
    last_of_column = np.append(column[1:] != column[:-1], True)  # (P,)
    weight = np.where(last_of_column, rows, np.append(first[1:], rows)) - first  # (P,) rows that share the prefix
    inside = column < lengths[first]  # (P,)
    column, first, weight = column[inside], first[inside], weight[inside]
    best = np.lexsort((first, column, -weight))[:nodes]  # (c,)
    column, first, weight = column[best], first[best], weight[best]
    number = np.zeros((rows, depth), np.int64)  # the tree row of the prefix that begins at (row, column)
    number[first, column] = np.arange(1, len(best) + 1)
    began = np.maximum.accumulate(np.where(begins, np.arange(rows)[:, None], 0), axis=0)  # (R, depth): in which row
    above = np.maximum(column - 1, 0)
    parents = np.where(column == 0, 0, number[began[first, above], above])  # (c,)
    return ids[first, column], parents, weight
