"""What MTP and EAGLE share: the trained module at work, and the states that it continues.

The module (`feature_net`) turns the target's state f_i and the next token t_{i+1} into a guess of f_{i+1}, from whose
distribution t_{i+2} is drafted. Place i is such a pair; it stands at rotary position i and attends to the places
before it.

A step begins with the places whose true states have become known: those of the tokens that the last step emitted.
They are read in one forward, behind which only true states lie in the module's cache (EAGLE, arXiv:2401.15077,
section 3; guesses that stood in for these states are forgotten). The last of them gives the first draft. What follows
continues the module's own outputs: rows in flight, which are forgotten before the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import nn

from ..base.errors import DraftError
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.sampling import Sampling
from ..core.tree import DraftTree
from ..model.cache import Flight, KVCache
from ..model.execution import llama
from ..model.execution.packed import PackedLinear, PackedNorm, no_kernels
from ..model.lm import CachedLM
from . import weights
from .feature_net import FeatureDraft, Frozen
from .reduced import Reduced

_CHUNK = 256  # places read in one forward


class Continues(Protocol):
    """What a drafter needs of a module: `FeatureModel`, or something small in its place.

    All of its methods are called at every step but `reset`, which is called once per request.

    Attributes:
        ids: (K,) int64, the tokens that it can draft.
        length: places read.
    """

    @property
    def ids(self) -> np.ndarray: ...

    @property
    def length(self) -> int: ...

    def reset(self) -> None:
        """Forget all places."""

    def read(self, tokens: Sequence[int], states: torch.Tensor) -> torch.Tensor:
        """Read the next places, true states (m, D) with the tokens after them; (1, D) the guess after the last."""

    def drop(self) -> None:
        """Forget the rows in flight."""

    def draft(self, tokens: Sequence[int], states: torch.Tensor, parents: Sequence[int]) -> torch.Tensor:
        """Guesses (n, D) after n rows in flight, each from a token and its parent's guess (n, D).

        Rows count from 0 after `read` or `drop`; a row whose parent is -1 follows the last place read.
        """

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """(n, K) of the tokens that guesses (n, D) draft."""


class FeatureModel:
    """The trained module, with a cache of its own: gives what `FeatureDraft.forward` gives, row by row.

    Its products run from packed weights where the target's could.

    Args:
        module: in the dtype and on the device it is to run in.
        embed: the target's embedding: (n, D) of tokens (n,).
    """

    def __init__(self, module: FeatureDraft, embed: Callable[[torch.Tensor], torch.Tensor]):
        weight = module.join.weight
        self.dtype, self.device, self._embed = weight.dtype, weight.device, embed
        self.ids = module.frozen.ids.cpu().numpy()
        linear, norm = (llama.Linear, llama.Norm) if no_kernels(weight) else (PackedLinear, PackedNorm)
        eps = module.layer.input_layernorm.variance_epsilon
        norms = (module.norm_token, module.norm_feature, module.norm_out)
        self._norms = [None if each is None else norm(each.weight.detach(), eps) for each in norms]
        head = nn.Linear(weight.shape[0], len(self.ids), bias=False, device="meta")
        head.weight = nn.Parameter(module.frozen.head.detach().to(weight), requires_grad=False)
        self._join, self._head = linear(module.join), linear(head)
        self._layer = llama.Layer(module.layer, eps, linear, norm)
        self._token, self._feature, self._scale = module.token, module.feature, module.scale
        self._rotary = module.rotary
        self._cos = self._sin = torch.empty(0)
        self._kv = KVCache()
        self._rows = 0  # in flight;
        self._visible, self._depths = np.zeros((8, 8), bool), np.zeros(8, np.int64)  # which sees which; how deep

    @property
    def length(self) -> int:
        return self._kv.length

    def reset(self) -> None:
        self._kv.length = self._rows = 0

    def drop(self) -> None:
        self._rows = 0

    @torch.no_grad()
    def read(self, tokens: Sequence[int], states: torch.Tensor) -> torch.Tensor:
        self._rows = 0
        for start in range(0, len(tokens), _CHUNK):
            rows = len(some := tokens[start : start + _CHUNK])
            places = self.length + np.arange(rows)
            guesses = self._run(some, states[start : start + rows], np.tri(rows, dtype=bool), places)  # (rows, D)
            self._kv.length += rows
        return guesses[-1:]  # (1, D)

    @torch.no_grad()
    def draft(self, tokens: Sequence[int], states: torch.Tensor, parents: Sequence[int]) -> torch.Tensor:
        first, end = self._rows, self._rows + len(tokens)
        if end > len(self._depths):
            more = max(end, 2 * first) - first
            self._visible = np.pad(self._visible[:first, :first], (0, more))  # (first + more, first + more)
            self._depths = np.pad(self._depths[:first], (0, more))  # (first + more,)
        for row, parent in enumerate(parents, first):
            self._visible[row] = self._visible[parent] if parent >= 0 else False
            self._visible[row, row] = True
            self._depths[row] = self._depths[parent] + 1 if parent >= 0 else 0
        self._rows = end
        return self._run(tokens, states, self._visible[first:end, :end], self.length + self._depths[:end])

    @torch.no_grad()
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        norm = self._norms[2]
        return self._head(states if norm is None else norm(states))

    def _run(
        self, tokens: Sequence[int], states: torch.Tensor, visible: np.ndarray, places: np.ndarray
    ) -> torch.Tensor:
        """One forward (n, D); ``visible`` (n, m) and ``places`` (m,) also cover the m - n rows already in flight."""
        kv, first = self._kv, len(places) - len(tokens)
        kv.reserve(kv.length + len(places))
        if len(self._cos) < kv.capacity:
            self._cos, self._sin = llama.rotary_tables(self._rotary, states.new_empty(0, dtype=self.dtype), kv.capacity)
        flight = Flight(kv.length, first, visible, places, self.dtype, self.device)
        at = torch.from_numpy(places[first:]).to(self.device)  # (n,)
        x = self._joined(torch.tensor(tokens), states.to(self.dtype))  # (n, D)

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
            return kv.attend(0, query, key, value, flight, scale)

        return self._layer(x, self._cos[at], self._sin[at], attend)

    def _joined(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """(n, D) input of the layer, from tokens (n,) and states (n, D)."""
        parts, (norm_token, norm_feature, _) = [], self._norms
        if self._token:
            part = self._embed(tokens).to(self.dtype)  # (n, D)
            part = part if self._scale == 1 else part * self._scale
            parts.append(part if norm_token is None else norm_token(part))
        if self._feature:
            parts.append(states if norm_feature is None else norm_feature(states))
        return self._join(torch.cat(parts, -1) if len(parts) > 1 else parts[0])  # (n, D or 2 D) to (n, D)


class FeatureDrafter(DrafterBase):
    """Keeps the target's states until they are read, and drafts chains.

    Args:
        model: the module; this drafter's alone while a run lasts.
        vocab_size: V of the target.
        sampling: as the target is sampled; greedy by default.
    """

    needs_hidden = True
    has_model = True

    def __init__(self, model: Continues, vocab_size: int, sampling: Sampling | None = None):
        self.model, self.reduced = model, Reduced(model.ids, vocab_size, sampling)
        self.draft_ids = self.reduced.ids
        self.reset([])

    def reset(self, context: Sequence[int]) -> None:
        self.model.reset()
        self._prompt = list(context)
        self._known = 0  # places whose true states are known, read or not
        self._unread: list[torch.Tensor] = []
        self._guess: torch.Tensor | None = None  # after the last place read

    def read_prompt(self, hidden: torch.Tensor) -> None:
        self._known = places = len(hidden)
        if places > 1:
            self.model.read(self._prompt[1:places], hidden[:-1])
        if places:
            self._unread = [hidden[-1:]]  # read when a draft is asked for, which continues it

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        assert out.hidden is not None  # `needs_hidden`
        # A text that was clipped at a stop has fewer tokens than the verdict.
        fresh = len(context) - 1 - self._known
        self._unread.append(out.hidden[list(verdict.path[:fresh])])  # (fresh, D)
        self._known += len(self._unread[-1])

    def _begin(self, context: Sequence[int]) -> torch.Tensor | None:
        """The guess (1, D) that the first draft comes from, all true states read; None if there are none yet."""
        if self._known != len(context) - 1:
            raise DraftError(
                f"{self.name!r} knows the target's states after {self._known} tokens, and a context of {len(context)} "
                f"needs {len(context) - 1}; call read_prompt after reset, and observe after each step"
            )
        if self._unread:
            self._guess = self.model.read(context[self.model.length + 1 :], torch.cat(self._unread))
            self._unread = []
        else:
            self.model.drop()
        return self._guess

    def _chain(self, context: Sequence[int], budget: Budget, num_tokens: int, rng: Rng) -> DraftTree:
        """Up to ``num_tokens`` tokens, the likeliest if greedy, else drawn from q."""
        gamma = min(num_tokens, budget.nodes, budget.depth)
        guess = self._begin(context) if gamma > 0 else None
        if guess is None:
            return DraftTree.empty(context[-1])
        drafted: list[int] = []
        q = None if self.reduced.sampling.greedy else np.zeros((gamma, self.reduced.vocab_size))
        while True:
            logits, text = self.model.logits(guess)[0], [*context, *drafted]
            if q is None:
                drafted.append(self.reduced.best(logits, text, len(self._prompt)))
            else:
                law = self.reduced.law(logits, text, len(self._prompt))  # (K,)
                q[len(drafted), self.reduced.ids] = law
                drafted.append(int(self.reduced.ids[rng.pick(law)]))
            if len(drafted) == gamma:
                break
            guess = self.model.draft(drafted[-1:], guess, [len(drafted) - 2])  # (1, D)
        return DraftTree.chain(context[-1], drafted, q, "point" if q is None else "iid")


def load(name: str, lm: CachedLM, weights_hash: Callable[[], str] | None) -> FeatureModel:
    """The module from trained weights, beside the target ``lm`` that it was trained for; see `weights.load`."""
    what = "module of MTP or EAGLE"
    ids, tensors, card = weights.load(name, lm.vocab_size, weights_hash, what, "eagle", needs=["join.weight"])
    facts, head = lm.execution.facts, lm.execution.head_rows(ids)  # (K, D)
    module = FeatureDraft(Frozen(head, head, ids, facts.config), **card.recipe["options"])
    module.load_state_dict(tensors)
    module.scale = card.recipe.get("scale", module.scale)
    for part, child in module.named_children():
        if part != "rotary":  # positions are computed in float32
            child.to(facts.device, facts.dtype)
    module.rotary.to(facts.device)
    return FeatureModel(module.eval().requires_grad_(False), lm.execution.embed)
