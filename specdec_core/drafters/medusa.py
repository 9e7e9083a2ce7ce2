"""Medusa (Cai et al. 2024, arXiv:2401.10774): heads on the target's last state draft a tree of one fixed shape.

Where the heads stand. The target has just read t_i; its state f_i gave the law from which t_{i+1} was chosen, the
root of the next tree. The paper's heads read that same f_i: head 1 guesses t_{i+2}, the root's children, head 2 their
children, and so on. So a step costs one product with the heads, for the state of the last row that was kept.

No head knows what another guessed. All nodes of one depth therefore have the same candidates, and the tree is a
choice of paths of ranks, made once from the heads' measured accuracy (section 2.3.3; `theory.grow_tree`).

When sampling, a head's law q, processed as the target's is, is the same for every node of its depth; children are
drawn from it without replacement and verified accordingly. The paper draws nothing: it takes the likeliest tokens
(``draw="point"``, lossless too) and accepts them by a rule that is not lossless (`typical`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..base.errors import ModelError
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.sampling import Sampling
from ..core.tree import DraftTree
from ..theory.trees import grow_tree


class Medusa(DrafterBase):
    """Proposes the tree of ``nodes`` nodes that the heads' accuracies make best. Lossless, at any temperature.

    Args:
        heads: gives the logits (H, K) of all heads after a state (D,).
        ids: (K,) int64, the tokens that these logits stand for, each once.
        accuracy: (H, R), how often head h's guess of rank r is right; it shapes the tree.
        vocab_size: V of the target.
        nodes: N, most nodes besides the root; guesses that were never right are left out.
        draw: when sampling, "without_replacement" draws children from the heads' laws, "point" takes their
            likeliest tokens. Greedy drafts are always the likeliest.
        sampling: as the target is sampled; greedy by default.

    Raises:
        ValueError: for fewer than one node, another draw, or more ranks than tokens.

    >>> heads = lambda state: torch.stack([state.roll(2), state.roll(3)])  # after token x: x + 2, then x + 3
    >>> drafter = Medusa(heads, np.arange(4), np.array([[0.6, 0.2], [0.6, 0.2]]), vocab_size=4, nodes=2)
    >>> drafter.read_prompt(torch.eye(4)[[0]])
    >>> drafter.propose([0, 1], Budget(8, 8), Rng(0)).tokens.tolist()
    [1, 2, 3]
    """

    name = "medusa"
    needs_hidden = True
    has_model = True

    def __init__(self, heads: Callable[[torch.Tensor], torch.Tensor], ids: np.ndarray, accuracy: np.ndarray,
                 vocab_size: int, nodes: int = 7, draw: str = "without_replacement",
                 sampling: Sampling | None = None):  # fmt: skip
        if nodes < 1:
            raise ValueError(f"nodes must be at least 1; got {nodes}")
        if draw not in ("without_replacement", "point"):
            raise ValueError(f"draw must be 'without_replacement' or 'point'; got {draw!r}")
        self.heads, self.ids, self.vocab_size = heads, np.asarray(ids), vocab_size
        # Rounded shares may sum to a little more than 1.
        self.accuracy = accuracy / np.maximum(1.0, accuracy.sum(1, keepdims=True))
        if self.accuracy.shape[1] > len(self.ids):
            raise ValueError(f"the accuracy of {self.accuracy.shape[1]} ranks was given for {len(self.ids)} tokens")
        self.nodes = self.max_nodes = nodes
        self.sampling = sampling or Sampling()
        self.draw = "point" if self.sampling.greedy else draw
        self._shapes: dict[tuple[int, int], Shape] = {}
        self._prompt_length = 0
        self._state: torch.Tensor | None = None

    @classmethod
    def build(cls, context: Any, nodes: int = 7, weights: str = "medusa",
              draw: str = "without_replacement") -> Medusa:  # fmt: skip
        """From trained weights.

        Args:
            weights: the name of a file that comes with the package, or a path.

        Raises:
            ModelError: as `load`.
        """
        heads, ids, accuracy = load(weights, context.lm, context.weights_hash)
        return cls(heads, ids, accuracy, context.lm.vocab_size, nodes, draw, context.sampling)

    def reset(self, context: Sequence[int]) -> None:
        self._prompt_length, self._state = len(context), None

    def read_prompt(self, hidden: torch.Tensor) -> None:
        # Of a prompt of one token nothing has been read yet, and the first step drafts nothing.
        self._state = hidden[-1] if len(hidden) else None

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        self._state = out.hidden[verdict.path[-1]]

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        shape = self.shape(min(self.nodes, budget.nodes), budget.depth)
        if self._state is None or not len(shape.ranks):
            return DraftTree.empty(context[-1])
        logits = self.heads(self._state)[: shape.depths[1:].max()]
        if self.draw == "point":
            best = logits.topk(int(shape.ranks.max()) + 1, -1).indices.cpu().numpy()
            tokens = self.ids[best[shape.depths[1:] - 1, shape.ranks]]
            return DraftTree(np.concatenate([context[-1:], tokens]), shape.parents)
        return self._drawn(context, shape, self._laws(logits, context), rng)

    def shape(self, nodes: int, depth: int) -> Shape:
        """The best tree of at most so many nodes and levels."""
        if (nodes, depth) not in self._shapes:
            parents, ranks, _ = grow_tree(self.accuracy[: max(0, depth)], max(0, nodes))
            depths = np.zeros(len(parents), np.int64)
            for node in range(1, len(parents)):
                depths[node] = depths[parents[node]] + 1
            self._shapes[nodes, depth] = Shape(parents, ranks, depths)
        return self._shapes[nodes, depth]

    def _laws(self, logits: torch.Tensor, context: Sequence[int]) -> np.ndarray:
        """(H, V) q of every head, processed as the target's law is after ``context``."""
        scores = logits.double().cpu().numpy()
        laws = np.zeros((len(scores), self.vocab_size))
        for head, row in enumerate(scores):
            if self.sampling.penalizes:
                full = np.zeros(self.vocab_size)
                full[self.ids] = row
                row = self.sampling.penalize(full, context, context[self._prompt_length :])[self.ids]
            laws[head, self.ids] = self.sampling.law(row)
        return laws

    def _drawn(self, context: Sequence[int], shape: Shape, laws: np.ndarray, rng: Rng) -> DraftTree:
        """The shape filled by draws; a node is missing, with all below it, where q has no token left."""
        tokens, parents, q = [context[-1]], [-1], np.zeros((len(shape.parents), self.vocab_size))
        rows, left = {0: 0}, {}  # by node of the shape: its row here, and the law of its children without those drawn
        for node in range(1, len(shape.parents)):
            parent = int(shape.parents[node])
            if parent not in rows:
                continue
            if parent not in left:
                q[rows[parent]] = laws[shape.depths[parent]]
                left[parent] = laws[shape.depths[parent]].copy()
            if not left[parent].any():
                continue
            token = rng.pick(left[parent])
            left[parent][token] = 0.0  # `pick` divides by what is left
            rows[node] = len(tokens)
            tokens.append(token)
            parents.append(rows[parent])
        return DraftTree(np.array(tokens), np.array(parents), self.draw, q[: len(tokens)])


@dataclass(frozen=True, eq=False)
class Shape:
    """A tree of ranks.

    Attributes:
        parents: (N+1,) as `DraftTree.parents`.
        ranks: (N,) of each node but the root among its head's guesses, 0 the likeliest.
        depths: (N+1,).
    """

    parents: np.ndarray
    ranks: np.ndarray
    depths: np.ndarray


class Heads:
    """Trained heads, all answering in one product with the projection.

    Args:
        module: `medusa_net.MedusaHeads`.
        head: (K, D) the rows of the projection.
    """

    def __init__(self, module: nn.Module, head: torch.Tensor):
        from ..model.execution.packed import PackedLinear, no_kernels

        layer = nn.Linear(head.shape[1], len(head), bias=False, device="meta")
        layer.weight = nn.Parameter(head, requires_grad=False)
        self.count = len(module.heads)
        self._module = module.to(head.device, head.dtype).eval().requires_grad_(False)
        self._project = layer if no_kernels(head) else PackedLinear(layer, rows=self.count)

    @torch.no_grad()
    def __call__(self, state: torch.Tensor) -> torch.Tensor:
        """(H, K) logits after a state (D,)."""
        return self._project(torch.stack([self._module.states(head, state) for head in range(self.count)]))


def load(name: str, lm: Any, weights_hash: Callable[[], str] | None) -> tuple[Heads, np.ndarray, np.ndarray]:
    """Heads, the tokens (K,) that they draft, and their accuracy (H, R).

    Args:
        name: of weights that come with the package, or a path.
        lm: the target, for the rows of its projection.
        weights_hash: gives that of the target; see `methods.Context`.

    Raises:
        ModelError: if there are no such weights, they are another target's or no heads, or it is not known which
            weights the target has.
    """
    from . import weights
    from .feature_net import Frozen
    from .medusa_net import MedusaHeads

    if weights_hash is None:
        raise ModelError("Medusa's heads belong to one target, and it is not known which weights this one has; "
                         "give methods.Context a weights_hash")  # fmt: skip
    path = weights.shipped(name)
    tensors, card = weights.read(path, weights_hash(), lm.vocab_size)
    if not tensors.keys() >= {"ids", "accuracy"}:
        raise ModelError(f"{path} ({card.name}) holds no Medusa heads with their accuracy; "
                         f"train some with: specdec train medusa")  # fmt: skip
    ids, accuracy = tensors.pop("ids"), tensors.pop("accuracy")
    head = lm.head_rows(ids)
    module = MedusaHeads(Frozen(head[:0], head, ids, None), **card.recipe["options"])
    module.load_state_dict(tensors)
    module.frozen = None  # its copy of the rows; `Heads` holds the one that is used
    return Heads(module, head), ids.numpy(), accuracy.double().numpy()
