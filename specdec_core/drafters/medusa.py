"""Medusa (Cai et al. 2024, arXiv:2401.10774): heads on the target's last state draft a tree of one fixed shape.

Where the heads stand. The target has just read t_i; its state f_i gave the distribution from which t_{i+1} was chosen,
the root of the next tree. The paper's heads read that same f_i: head 1 guesses t_{i+2}, the root's children, head 2
their children, and so on. So each step costs one product with the heads, for the state of the last row that was kept.

No head knows what another guessed. All nodes of one depth therefore have the same candidates, and the tree is a
choice of paths of ranks, made once from the heads' measured accuracy (section 2.3.3; `theory.grow_tree`).

When sampling, a head's law q, processed as the target's is, is the same for every node of its depth; children are
drawn from it without replacement and verified accordingly. The paper draws nothing: it takes the likeliest tokens
(``draw="point"``, lossless too) and accepts them by a rule that is not lossless (`typical`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from ..base.arguments import one_of, whole
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.sampling import Sampling, refuse_broken
from ..core.tree import DraftTree
from ..model.execution.packed import PackedLinear, no_kernels
from ..model.lm import CachedLM
from ..theory.trees import grow_tree
from . import weights
from .feature_net import Frozen
from .medusa_net import MedusaHeads
from .methods import Context
from .reduced import Reduced, place


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

    Example:
        >>> heads = lambda state: torch.stack([state.roll(2), state.roll(3)])  # after token x: x + 2, then x + 3
        >>> drafter = Medusa(heads, np.arange(4), np.array([[0.6, 0.2], [0.6, 0.2]]), vocab_size=4, nodes=2)
        >>> drafter.read_prompt(torch.eye(4)[[0]])
        >>> drafter.propose([0, 1], Budget(8, 8), Rng(0)).tokens.tolist()
        [1, 2, 3]
    """

    name = "medusa"
    needs_hidden = True
    has_model = True

    def __init__(
        self, heads: Callable[[torch.Tensor], torch.Tensor], ids: np.ndarray, accuracy: np.ndarray, vocab_size: int,
        nodes: int = 7, draw: str = "without_replacement", sampling: Sampling | None = None,
    ):
        one_of("draw", draw, ("without_replacement", "point"))
        self.heads, self.reduced = heads, Reduced(ids, vocab_size, sampling)
        self.draft_ids = self.reduced.ids
        # Rounded shares may sum to a little more than 1.
        self.accuracy = accuracy / np.maximum(1.0, accuracy.sum(1, keepdims=True))  # (H, R)
        if self.accuracy.shape[1] > len(ids):
            raise ValueError(f"the accuracy of {self.accuracy.shape[1]} ranks was given for {len(ids)} tokens")
        self.nodes = self.max_nodes = whole("nodes", nodes, 1)
        self.draw = "point" if self.reduced.sampling.greedy else draw
        self._shapes: dict[tuple[int, int], DraftTree] = {}
        self._prompt_length = 0
        self._state: torch.Tensor | None = None

    @classmethod
    def build(
        cls, context: Context, nodes: int = 7, weights: str = "medusa", draw: str = "without_replacement"
    ) -> Medusa:
        """From trained weights: the name of a file that comes with the package, or a path; see `load`."""
        heads, ids, accuracy = load(weights, context.cached(), context.weights_hash)
        return cls(heads, ids, accuracy, context.lm.vocab_size, nodes, draw, context.sampling)

    def reset(self, context: Sequence[int]) -> None:
        self._prompt_length, self._state = len(context), None

    def read_prompt(self, hidden: torch.Tensor) -> None:
        self._state = hidden[-1] if len(hidden) else None  # a prompt of one token has not been read yet

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        assert out.hidden is not None  # `needs_hidden`
        self._state = out.hidden[verdict.path[-1]]  # (D,)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        shape = self.shape(min(self.nodes, budget.nodes), budget.depth)
        if self._state is None or not shape.size:
            return DraftTree.empty(context[-1])
        logits = self.heads(self._state)[: shape.depths.max()]  # (deepest, K)
        if self.draw == "point":
            tops, ranked = logits.topk(int(shape.tokens.max()) + 1, -1)
            refuse_broken(float(tops[:, 0].cpu().double().sum()), place(context))
            best = ranked.cpu().numpy()  # (deepest, ranks) rows of K
            tokens = self.reduced.ids[best[shape.depths[1:] - 1, shape.tokens[1:]]]  # (N,)
            return DraftTree(np.concatenate([context[-1:], tokens]), shape.parents)
        laws = [self.reduced.law(row, context, self._prompt_length) for row in logits]
        return self._drawn(context, shape, [self.reduced.spread(law) for law in laws], rng)

    def shape(self, nodes: int, depth: int) -> DraftTree:
        """The best tree of at most so many nodes and levels; a node's "token" is its rank among its head's guesses."""
        if (nodes, depth) not in self._shapes:
            parents, ranks, _ = grow_tree(self.accuracy[: max(0, depth)], max(0, nodes))
            self._shapes[nodes, depth] = DraftTree(np.append(0, ranks), parents)
        return self._shapes[nodes, depth]

    def _drawn(self, context: Sequence[int], shape: DraftTree, laws: Sequence[np.ndarray], rng: Rng) -> DraftTree:
        """The shape filled by draws from laws (V,); a node is missing, with all below it, where q has no token left."""
        tokens, parents, q = [context[-1]], [-1], np.zeros((len(shape.parents), self.reduced.vocab_size))
        rows = {0: 0}  # node of the shape -> its row here
        left: dict[int, np.ndarray] = {}  # node of the shape -> the law of its children, without those drawn
        for node in range(1, len(shape.parents)):
            parent = int(shape.parents[node])
            if parent in rows and parent not in left:
                q[rows[parent]] = laws[shape.depths[parent]]
                left[parent] = laws[shape.depths[parent]].copy()
            if parent not in rows or not left[parent].any():
                continue
            token = rng.pick(left[parent])
            left[parent][token] = 0.0  # `pick` divides by what is left
            rows[node] = len(tokens)
            tokens.append(token)
            parents.append(rows[parent])
        return DraftTree(np.array(tokens), np.array(parents), self.draw, q[: len(tokens)])


class Heads:
    """Trained heads, all answering in one product with the rows ``head`` (K, D) of the projection."""

    def __init__(self, module: MedusaHeads, head: torch.Tensor):
        layer = nn.Linear(head.shape[1], len(head), bias=False, device="meta")
        layer.weight = nn.Parameter(head, requires_grad=False)
        self.count = len(module.heads)
        self._module = module.to(head.device, head.dtype).eval().requires_grad_(False)
        self._project = layer if no_kernels(head) else PackedLinear(layer, rows=self.count)

    @torch.no_grad()
    def __call__(self, state: torch.Tensor) -> torch.Tensor:
        """(H, K) logits after a state (D,)."""
        states = torch.stack([self._module.states(head, state) for head in range(self.count)])  # (H, D)
        return self._project(states)


def load(name: str, lm: CachedLM, weights_hash: Callable[[], str] | None) -> tuple[Heads, np.ndarray, np.ndarray]:
    """Heads, the tokens (K,) that they draft, and their accuracy (H, R), for the target ``lm``; see `weights.load`."""
    what = "Medusa heads with their accuracy"
    ids, tensors, card = weights.load(name, lm.vocab_size, weights_hash, what, "medusa", needs=["accuracy"])
    accuracy, head = tensors.pop("accuracy"), lm.execution.head_rows(ids)  # (H, R), (K, D)
    none = head[:0]  # `Heads` holds the rows that are used
    module = MedusaHeads(Frozen(none, none, ids, lm.execution.facts.config), **card.recipe["options"])
    module.load_state_dict(tensors)
    return Heads(module, head), ids.numpy(), accuracy.double().numpy()
