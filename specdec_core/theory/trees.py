"""The best draft tree: for a number of nodes, and then for measured costs.

"Q" is Sequoia (Chen et al. 2024, arXiv:2402.12374), which finds the same trees by dynamic programming.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from . import checks
from .checks import Vector
from .speed import speedup_measured


@dataclass(frozen=True, eq=False)
class BestTree:
    """A tree shape with its value; N nodes besides the root, likeliest first.

    Attributes:
        parents: (N+1,) int64, as `DraftTree.parents` wants them.
        ranks: (N,) int64; ``ranks[i - 1]`` is the rank of node i among its parent's drafts, 0 the likeliest.
        reach: (N+1,) float64, the probability that node i is accepted; 1 for the root.
        expected_tokens: E[output tokens per step].
        speedup: over autoregressive decoding, under the costs it was chosen for.
    """

    parents: np.ndarray
    ranks: np.ndarray
    reach: np.ndarray
    expected_tokens: float
    speedup: float


def expected_tokens_tree(parents: Vector, accept: Vector) -> float:
    """E[output tokens per step] of a draft tree: the sum over its rows of the probability of reaching them.

    Source: Q, Proposition 3.4, without their assumption that acceptance depends on the rank alone. A step
    outputs the accepted nodes and one token more, so the expectation is 1 + sum_v P(v accepted), and P(v
    accepted) is the product of ``accept`` along v's path.

    Args:
        parents: (N+1,) parent of each row, -1 for row 0, an earlier row elsewhere.
        accept: (N,) for rows 1 ... N: the probability that the row is accepted given that its parent is.
            Siblings exclude one another, so theirs sum to at most 1: for a token that is tested after others,
            this is P(they are rejected and it is accepted).

    Returns:
        tokens, in [1, depth + 1].

    Example:
        >>> round(expected_tokens_tree([-1, 0, 0, 1], [0.6, 0.2, 0.5]), 12)  # 1 + 0.6 + 0.2 + 0.6 * 0.5
        2.1
    """
    parents, accept = np.asarray(parents), checks.probabilities("accept", accept)
    rows = len(accept) + 1
    if parents.shape != (rows,) or parents[0] != -1 or not all(0 <= parents[i] < i for i in range(1, rows)):
        raise ValueError(f"parents must be -1 and then {rows - 1} earlier rows, as accept has; got {parents.tolist()}")
    reach, children = np.ones(rows), np.zeros(rows)
    for i in range(1, rows):
        children[parents[i]] += accept[i - 1]
        reach[i] = reach[parents[i]] * accept[i - 1]
    if (children > 1 + 1e-9).any():
        raise ValueError(f"one child at most is accepted: siblings sum to at most 1; got {children.tolist()}")
    return float(reach.sum())


def grow_tree(accept: Sequence[Vector], nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tree of ``nodes`` nodes with the most expected tokens: always add the likeliest that can be added.

    Why greed is optimal. A tree's value is the sum of its nodes' path probabilities, and the whole of rank x depth is
    one big tree of such nodes. A child is never likelier than its parent, so the ``nodes`` likeliest nodes of the big
    tree contain every one's parent (ties go to the parent): they form a tree, and no set of as many nodes sums to more.
    Greed takes them in that order, so the best trees of all sizes are nested. Sequoia's dynamic program reaches the
    same value, and is needed only where a higher rank is likelier than a lower one and drafts must be drawn in order of
    rank. EAGLE-2 (arXiv:2406.16858) ranks its nodes in the same way.

    Args:
        accept: one row per depth, nearest first; ``accept[d][k]`` is the probability that the draft of rank k
            at depth d + 1 is accepted, given that its parent was, whichever that is (Q, Definition 3.1, by
            depth). Each sums to at most 1; they may differ in length. Non-increasing in k for drafts drawn from q
            one after another: siblings are then taken by rank.
        nodes: N >= 0. Nodes that are never accepted are left out, so the tree can be smaller.

    Returns:
        parents (N+1,), ranks (N,), reach (N+1,): see `BestTree`.

    Example:
        >>> parents, ranks, reach = grow_tree([[0.6, 0.2], [0.5, 0.1]], 3)
        >>> parents.tolist(), ranks.tolist(), reach.round(2).tolist()
        ([-1, 0, 1, 0], [0, 0, 1], [1.0, 0.6, 0.3, 0.2])
    """
    levels, nodes = _levels(accept), checks.count("nodes", nodes, 0)
    parents, reach, depths = [-1], [1.0], [0]
    ranks: list[int] = []
    frontier: list[tuple[float, int, int, int]] = []  # (-probability, order of arrival, parent, rank)
    arrived = 0

    def open_children(node: int) -> None:
        nonlocal arrived
        for rank, probability in enumerate(levels[depths[node]] if depths[node] < len(levels) else ()):
            if probability > 0:
                heapq.heappush(frontier, (-reach[node] * probability, arrived, node, rank))
                arrived += 1

    open_children(0)
    while frontier and len(ranks) < nodes:
        negative, _, parent, rank = heapq.heappop(frontier)
        parents.append(parent)
        ranks.append(rank)
        reach.append(-negative)
        depths.append(depths[parent] + 1)
        open_children(len(ranks))
    return np.array(parents), np.array(ranks, np.int64), np.array(reach)


def best_tree(
    accept: Sequence[Vector], t: Callable[[int], float], max_nodes: int, t_draft: float = 0.0
) -> BestTree:
    """The tree with the largest speedup at measured costs: E[tokens] t(1) / (t(nodes + 1) + depth t_draft).

    Source: Q, section 4.1, hardware-aware optimization: G(n, d) / (t(n) + d c). For each depth d the best
    tree of every size is a prefix of one greedy order (`grow_tree`), so all (size, depth) pairs are tried.

    Args:
        accept: as in `grow_tree`.
        t: time > 0 of a target forward over q rows, for q = 1 ... max_nodes + 1, such as `measure.Costs.t`.
        max_nodes: largest N tried, >= 0.
        t_draft: time >= 0 to draft one level of the tree, in the unit of t: a draft model's forward; 0 for Medusa
            heads and for lookups.

    Returns:
        the `BestTree`: the root alone if no tree gains. The smaller tree on a tie.

    Example:
        >>> tree = best_tree([[0.6, 0.2], [0.5, 0.1]], t=lambda q: 1.0 + 0.05 * q, max_nodes=8)
        >>> tree.parents.tolist(), round(tree.expected_tokens, 4), round(tree.speedup, 4)
        ([-1, 0, 1, 0, 3], 2.2, 1.848)
    """
    levels, max_nodes = _levels(accept), checks.count("max_nodes", max_nodes, 0)
    t_draft = checks.nonnegative("t_draft", t_draft)
    costs = [checks.cost(t, nodes + 1) for nodes in range(max_nodes + 1)]
    best = BestTree(np.array([-1]), np.array([], np.int64), np.ones(1), 1.0, 1.0)
    for depth in range(1, len(levels) + 1):
        parents, ranks, reach = grow_tree(levels[:depth], max_nodes)
        for nodes in range(1, len(ranks) + 1):
            expected = float(reach[: nodes + 1].sum())
            gain = float(speedup_measured(expected, costs[nodes], depth * t_draft, costs[0]))
            if gain > best.speedup * (1 + 1e-12):
                best = BestTree(parents[: nodes + 1], ranks[:nodes], reach[: nodes + 1], expected, gain)
    return best


def _levels(accept: Sequence[Vector]) -> list[np.ndarray]:
    levels = [checks.probabilities(f"accept[{depth}]", row) for depth, row in enumerate(accept)]
    for depth, row in enumerate(levels):
        if row.sum() > 1 + 1e-9:
            raise ValueError(f"one child at most is accepted: accept[{depth}] sums to <= 1; got {row.sum()}")
    return levels
