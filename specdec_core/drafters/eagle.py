"""EAGLE: the module drafts a tree, whose shape follows its own confidence (EAGLE-2, arXiv:2406.16858, section 4).

Three trees. ``"chain"`` is one path. ``"static"`` is one small tree of ranks for every step, as EAGLE-1 had
(arXiv:2401.15077). ``"dynamic"`` is EAGLE-2's: the value of a node is the product of the module's probabilities along
its path. Layer by layer the module reads the ``top_k`` most valuable nodes of the last layer and each gets its
``top_k`` likeliest children; then the ``total`` most valuable nodes of all layers are kept. A child is never worth
more than its parent, so what is kept is a tree.

When sampling, children are drawn from q without replacement, and to keep the most valuable of nodes already drawn would
change the distribution that they were drawn from. What is exact is to decide whether a node shall exist before its
token is drawn, and then to keep it (chapter 04 proves it).

So the dynamic tree grows by open places. A node whose law is known has one: its next child. The place is worth the
node's value times the next largest of its q's probabilities, whatever token comes. A round fills the most valuable
open places anywhere in the tree, an equal share of ``total`` in each of ``depth`` rounds; then the module reads the
``top_k`` most valuable of the nodes just drawn. Children at a node are thereby a prefix of the order of drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np
import torch

from ..base.arguments import one_of, whole
from ..core.contract import Budget
from ..core.rng import Rng
from ..core.sampling import Sampling, refuse_broken
from ..core.tree import DraftTree
from .feature import Continues, FeatureDrafter, load
from .methods import Context
from .reduced import place

TREES = ("dynamic", "static", "chain")
# Nodes by the ranks on their path, 0 the likeliest, the most valuable first. Any first part of it is a tree, in which
# siblings have consecutive ranks. It follows what a module guesses right: half and more at rank 0, less further down.
_RANKS = ["0", "00", "1", "000", "01", "10", "2", "0000", "001", "010", "100", "02", "3", "00000", "11", "20"]
STATIC: list[tuple[int, ...]] = [tuple(map(int, ranks)) for ranks in _RANKS]
_WIDEST = 4  # children of one node in it


@dataclass(frozen=True)
class Growth:
    """How the last tree came about.

    Attributes:
        tokens, parents: (M+1,) the root and all nodes that were thought of, parents before children.
        values: (M+1,) log probability of each node's path under the module.
        read: by layer or round, the nodes that the module read; the root's law was there at first.
        kept: (N,) the nodes that became rows 1 ... N of the tree, in their order.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    values: tuple[float, ...]
    read: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]


class EAGLE(FeatureDrafter):
    """Proposes a tree, or a chain, of what the module continues. Lossless, at any temperature.

    Greedy, the nodes are the module's likeliest tokens. When sampling they are drawn from q, processed as the
    target's law is: without replacement at a node of a tree, one per node in a chain.

    Args:
        model, vocab_size, sampling: see `FeatureDrafter`.
        tree: one of `TREES`.
        depth: of the longest path, at least 1: that many forwards of the module per step.
        top_k: nodes that the module reads in one forward, and children that a node may get (dynamic tree only).
        total: N, most nodes besides the root (not of a chain).

    Attributes:
        growth: of the last static or dynamic tree; None before.

    Raises:
        ValueError: for another tree, or a number below 1.
    """

    name = "eagle"

    def __init__(
        self, model: Continues, vocab_size: int, tree: str = "dynamic", depth: int = 3, top_k: int = 4, total: int = 7,
        sampling: Sampling | None = None,
    ):
        super().__init__(model, vocab_size, sampling)
        self.tree, static = one_of("tree", tree, TREES), tree == "static"
        self.depth = whole("depth", depth, 1, max(map(len, STATIC)) if static else inf)
        self.total = whole("total", total, 1, len(STATIC) if static else inf)
        self.top_k = whole("top_k", top_k, 1)
        self.max_nodes = self.depth if tree == "chain" else self.total
        self.growth: Growth | None = None

    @classmethod
    def build(
        cls, context: Context, tree: str = "dynamic", depth: int = 3, top_k: int = 4, total: int = 7,
        weights: str = "eagle",
    ) -> EAGLE:
        """From trained weights: the name of a file that comes with the package, or a path; see `feature.load`."""
        model = load(weights, context.cached(), context.weights_hash)
        return cls(model, context.lm.vocab_size, tree, depth, top_k, total, context.sampling)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        if self.tree == "chain":
            return self._chain(context, budget, self.depth, rng)
        nodes = min(self.total, budget.nodes)
        depth = min(self.depth, budget.depth, nodes)
        guess = self._begin(context) if depth > 0 else None
        if guess is None:
            return DraftTree.empty(context[-1])
        sketch = _Sketch(self, context, guess, rng)
        if self.tree == "static":
            kept = self._static(sketch, [path for path in STATIC if len(path) <= depth][:nodes])
        elif self.reduced.sampling.greedy:
            kept = self._ranked(sketch, nodes, depth)
        else:
            kept = self._drawn(sketch, nodes, depth)
        tokens, parents, values = tuple(sketch.tokens), tuple(sketch.parents), tuple(sketch.values)
        self.growth = Growth(tokens, parents, values, tuple(sketch.read), tuple(kept))
        return sketch.finish(kept)

    def _static(self, sketch: _Sketch, shape: list[tuple[int, ...]]) -> list[int]:
        """The shape's nodes; a node is missing, with all below it, where q has no token left."""
        found: dict[tuple[int, ...], int] = {(): 0}  # path of ranks -> node
        inner: list[tuple[int, ...]] = [()]
        while inner:
            if inner[0]:
                sketch.let_read([found[path] for path in inner])
            for path in inner:
                children = [other for other in shape if other[:-1] == path]
                found.update(zip(children, sketch.children(found[path], len(children)), strict=False))
            depth = len(inner[0]) + 1
            inner = [path for path in found if len(path) == depth and any(other[:-1] == path for other in shape)]
        return [found[path] for path in shape if path in found]

    def _ranked(self, sketch: _Sketch, nodes: int, depth: int) -> list[int]:
        """EAGLE-2: expand the best of each layer, then keep the best of all."""
        layer = sketch.children(0, self.top_k)
        for _ in range(depth - 1):
            best = sketch.best(layer, self.top_k)
            sketch.let_read(best)
            layer = [child for node in best for child in sketch.children(node, self.top_k)]
        return sketch.best(range(1, len(sketch.tokens)), nodes)

    def _drawn(self, sketch: _Sketch, nodes: int, depth: int) -> list[int]:
        """Its counterpart for draws: the best open places of each round are filled, and all that was drawn is kept."""
        places: list[tuple[float, int]] = []  # the next place of each node, as (-value, node)
        fresh = [0]
        for level in range(depth):
            for node in fresh:
                sketch.open(node, places)
            drawn: list[int] = []
            share = nodes * (level + 1) // depth - nodes * level // depth
            while places and len(drawn) < share:
                _, node = heappop(places)
                drawn += sketch.children(node, 1)
                sketch.open(node, places)
            fresh = sketch.best(drawn, self.top_k)
            if level + 1 == depth or not fresh:
                break
            sketch.let_read(fresh)
        return list(range(1, len(sketch.tokens)))


class _Sketch:
    """A tree while it grows."""

    def __init__(self, drafter: EAGLE, context: Sequence[int], guess: torch.Tensor, rng: Rng):
        self._model, self._reduced, self._greedy = drafter.model, drafter.reduced, drafter.reduced.sampling.greedy
        self._width, self._prompt_length = max(drafter.top_k, _WIDEST), len(drafter._prompt)
        self._context, self._rng = list(context), rng
        self.tokens, self.parents, self.values = [int(context[-1])], [-1], [0.0]
        self.read: list[tuple[int, ...]] = []
        self._flight = {0: -1}  # node -> its row in flight
        self._guesses: dict[int, torch.Tensor] = {}  # node -> (1, D) the module's output there
        self._likely: dict[int, list[tuple[int, float]]] = {}  # greedy: node -> places in q, with log probabilities
        self._laws: dict[int, np.ndarray] = {}  # when sampling: node -> q (K,),
        self._left: dict[int, np.ndarray] = {}  # q without the tokens drawn from it,
        self._falling: dict[int, list[float]] = {}  # and its probabilities from the largest down, without as many
        self._learn([0], guess)

    def let_read(self, nodes: Sequence[int]) -> None:
        """Let the module read these nodes, whose parents it has read."""
        parents = [self.parents[node] for node in nodes]
        states = torch.cat([self._guesses[parent] for parent in parents])  # (n, D)
        guesses = self._model.draft([self.tokens[node] for node in nodes], states, [self._flight[p] for p in parents])
        self._flight.update(zip(nodes, range(len(self._flight) - 1, len(self._flight) - 1 + len(nodes)), strict=True))
        self._learn(nodes, guesses)
        self.read.append(tuple(nodes))

    def children(self, node: int, count: int) -> list[int]:
        """Up to ``count`` more children of a node: the likeliest tokens if greedy, else draws from what is left."""
        if self._greedy:
            found = self._likely[node][:count]
        else:
            found, law, left = [], self._laws[node], self._left[node]
            while len(found) < count and left.any():
                place = self._rng.pick(left)
                left[place] = 0.0  # `pick` divides by what is left
                self._falling[node].pop()
                found.append((place, float(np.log(law[place]))))
        first = len(self.tokens)
        for place, log in found:
            self.tokens.append(int(self._reduced.ids[place]))
            self.parents.append(node)
            self.values.append(self.values[node] + log)
        return list(range(first, len(self.tokens)))

    def open(self, node: int, places: list[tuple[float, int]]) -> None:
        """Add the next place of a node, if there is one. Its value is known before its token is drawn."""
        if self._falling[node]:
            heappush(places, (-self.values[node] - float(np.log(self._falling[node][-1])), node))

    def best(self, nodes: Sequence[int], count: int) -> list[int]:
        """The ``count`` most valuable nodes, from the most valuable down; of equals the earlier."""
        return sorted(nodes, key=lambda node: (-self.values[node], node))[:count]

    def finish(self, kept: Sequence[int]) -> DraftTree:
        """The tree of these nodes, in this order."""
        row = {0: 0} | {node: row for row, node in enumerate(kept, 1)}
        tokens = np.array([self.tokens[node] for node in row])
        parents = np.array([-1] + [row[self.parents[node]] for node in kept])
        if self._greedy:
            return DraftTree(tokens, parents)
        q = np.zeros((len(tokens), self._reduced.vocab_size))
        for node, law in self._laws.items():
            q[row[node], self._reduced.ids] = law
        return DraftTree(tokens, parents, "without_replacement", q)

    def _learn(self, nodes: Sequence[int], guesses: torch.Tensor) -> None:
        """What the module says after these nodes."""
        logits, length = self._model.logits(guesses), self._prompt_length  # (n, K)
        for index, node in enumerate(nodes):
            self._guesses[node] = guesses[index : index + 1]
        if not self._greedy:
            for node, row in zip(nodes, logits, strict=True):
                law = self._reduced.law(row, self._text(node), length)
                self._laws[node], self._left[node] = law, law.copy()
                self._falling[node] = np.sort(law[law > 0]).tolist()
            return
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self._reduced.sampling.penalizes:
            rows = zip(nodes, logits, strict=True)
            penalized = [self._reduced.scores(row, self._text(node), length) for node, row in rows]
            scores = torch.from_numpy(np.stack(penalized))  # (n, K)
        best, places = scores.topk(min(self._width, scores.shape[-1]), -1)  # (n, width) each
        refuse_broken(float(best[:, 0].cpu().double().sum()), place(self._text(nodes[0])))
        logs = (best - scores.logsumexp(-1, keepdim=True)).clamp(max=0)  # rounding must not lift a child above
        for node, likely in zip(nodes, zip(places.tolist(), logs.tolist(), strict=True), strict=True):
            self._likely[node] = list(zip(*likely, strict=True))

    def _text(self, node: int) -> list[int]:
        """The context and the path to a node."""
        path = []
        while node:
            path.append(self.tokens[node])
            node = self.parents[node]
        return self._context + path[::-1]
