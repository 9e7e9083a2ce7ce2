"""What MTP and EAGLE share: the trained module at work, and the states that it continues.

The module (`feature_net`) turns the target's state f_i and the next token t_{i+1} into a guess of f_{i+1},
whose law drafts t_{i+2}. Place i is such a pair; it stands at rotary position i and attends to the places before it.

A step begins with the places whose true states have become known: those of the tokens that the last step emitted.
They are read in one forward, behind which only true states lie in the module's cache (EAGLE, arXiv:2401.15077,
section 3; guesses that stood in for these states are forgotten). The last of them gives the first draft. What follows
continues the module's own outputs: rows in flight, which are forgotten before the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from ..base.errors import DraftError, ModelError
from ..core.contract import Budget, DrafterBase, LMOutput
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.sampling import Sampling, argmax
from ..core.tree import DraftTree
from ..model.cache import Flight, KVCache

_CHUNK = 256  # places read in one forward


class Continues(Protocol):
    """What a drafter needs of a module: `FeatureModel`, or something small in its place.

    Attributes:
        ids: (K,) int64, the tokens that it can draft.
        length: places read.
    """

    ids: np.ndarray
    length: int

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
    """The trained module, with a cache of its own.

    It gives what `FeatureDraft.forward` gives, row by row; its products run from packed weights where the target's
    could.

    Args:
        module: a `feature_net.FeatureDraft`, in the dtype and on the device it is to run in.
        embed: the target's embedding, such as `lm.CachedLM.embed`.
    """

    def __init__(self, module: Any, embed: Callable[[torch.Tensor], torch.Tensor]):
        from ..model.execution import llama
        from ..model.execution.packed import PackedLinear, PackedNorm, no_kernels

        weight = module.join.weight
        self.dtype, self.device, self._embed = weight.dtype, weight.device, embed
        self.ids = module.frozen.ids.cpu().numpy()
        linear, norm = (llama.Linear, llama.Norm) if no_kernels(weight) else (PackedLinear, PackedNorm)
        eps = module.layer.input_layernorm.variance_epsilon
        self._norm_token, self._norm_feature, self._norm_out = (
            norm(each.weight.detach(), eps) if each is not None else None
            for each in (module.norm_token, module.norm_feature, module.norm_out)
        )
        head = nn.Linear(weight.shape[0], len(self.ids), bias=False, device="meta")
        head.weight = nn.Parameter(module.frozen.head.detach().to(weight), requires_grad=False)
        self._join, self._head = linear(module.join), linear(head)
        self._layer = llama.Layer(module.layer, eps, linear, norm)
        self._token, self._feature, self._scale = module.token, module.feature, module.scale
        self._rotary, self._tables = module.rotary, llama.rotary_tables
        self._cos = self._sin = torch.empty(0)
        self._kv = KVCache(1)
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
            some = tokens[start : start + _CHUNK]
            rows = len(some)
            places = self.length + np.arange(rows)
            guesses = self._run(some, states[start : start + rows], np.tri(rows, dtype=bool), places)
            self._kv.length += rows
        return guesses[-1:]

    @torch.no_grad()
    def draft(self, tokens: Sequence[int], states: torch.Tensor, parents: Sequence[int]) -> torch.Tensor:
        first, end = self._rows, self._rows + len(tokens)
        if end > len(self._depths):
            more = max(end, 2 * first) - first
            self._visible = np.pad(self._visible[:first, :first], (0, more))
            self._depths = np.pad(self._depths[:first], (0, more))
        for row, parent in enumerate(parents, first):
            self._visible[row] = self._visible[parent] if parent >= 0 else False
            self._visible[row, row] = True
            self._depths[row] = self._depths[parent] + 1 if parent >= 0 else 0
        self._rows = end
        return self._run(tokens, states, self._visible[first:end, :end], self.length + self._depths[:end])

    @torch.no_grad()
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self._head(states if self._norm_out is None else self._norm_out(states))

    def _run(self, tokens: Sequence[int], states: torch.Tensor, visible: np.ndarray, places: np.ndarray):
        """One forward; ``visible`` (n, m) and ``places`` (m,) are also about the m - n rows already in flight."""
        kv, first = self._kv, len(places) - len(tokens)
        kv.reserve(kv.length + len(places))
        if len(self._cos) < kv.capacity:
            self._cos, self._sin = self._tables(self._rotary, states.new_empty(0, dtype=self.dtype), kv.capacity)
        flight = Flight(kv.length, first, visible, places, self.dtype, self.device)
        at = torch.from_numpy(places[first:]).to(self.device)
        x = self._joined(torch.tensor(tokens), states.to(self.dtype))

        def attend(query, key, value, scale):
            return kv.attend(0, query, key, value, flight, scale)

        return self._layer(x, self._cos[at], self._sin[at], attend)

    def _joined(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        parts = []
        if self._token:
            part = self._embed(tokens).to(self.dtype)
            part = part if self._scale == 1 else part * self._scale
            parts.append(part if self._norm_token is None else self._norm_token(part))
        if self._feature:
            parts.append(states if self._norm_feature is None else self._norm_feature(states))
        return self._join(torch.cat(parts, -1) if len(parts) > 1 else parts[0])


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
        self.model, self.vocab_size, self.sampling = model, vocab_size, sampling or Sampling()
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
        # A text that was clipped at a stop has fewer tokens than the verdict.
        fresh = len(context) - 1 - self._known
        self._unread.append(out.hidden[list(verdict.path[:fresh])])
        self._known += len(self._unread[-1])

    def _begin(self, context: Sequence[int]) -> torch.Tensor | None:
        """The guess (1, D) that the first draft comes from, all true states read; None if there are none yet."""
        if self._known != len(context) - 1:
            raise DraftError(
                f"{self.name!r} knows the target's states after {self._known} tokens, and a context of {len(context)} "
                f"needs {len(context) - 1}; call read_prompt after reset, and observe after every step"
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
        q = None if self.sampling.greedy else np.zeros((gamma, self.vocab_size))
        while True:
            logits = self.model.logits(guess)
            if self.sampling.greedy and not self.sampling.penalizes:
                place = argmax(logits)[0]
            else:
                law = self._law(logits[0], [*context, *drafted])
                place = law.argmax() if q is None else rng.pick(law)
                if q is not None:
                    q[len(drafted), self.model.ids] = law
            drafted.append(int(self.model.ids[place]))
            if len(drafted) == gamma:
                break
            guess = self.model.draft(drafted[-1:], guess, [len(drafted) - 2])
        return DraftTree.chain(context[-1], drafted, q, "point" if q is None else "iid")

    def _law(self, logits: torch.Tensor, context: Sequence[int]) -> np.ndarray:
        """q (K,) after ``context``, processed as the target's law is; all other tokens have none of it."""
        return self.sampling.law(self._scores(logits, context))

    def _scores(self, logits: torch.Tensor, context: Sequence[int]) -> np.ndarray:
        """(K,) float64 logits after the penalties."""
        scores = logits.double().cpu().numpy()
        if self.sampling.penalizes:
            whole = np.zeros(self.vocab_size)
            whole[self.model.ids] = scores
            scores = self.sampling.penalize(whole, context, context[len(self._prompt) :])[self.model.ids]
        return scores


def load(name: str, lm: Any, weights_hash: Callable[[], str] | None) -> FeatureModel:
    """The module from trained weights, beside the target that it was trained for.

    Args:
        name: of weights that come with the package, or a path.
        lm: the target, a `lm.CachedLM`.
        weights_hash: gives that of the target; see `methods.Context`.

    Raises:
        ModelError: if there are no such weights, they are another target's or another kind of drafter's, or it is
            not known which weights the target has.
    """
    from . import weights
    from .feature_net import FeatureDraft, Frozen

    path = weights.shipped(name)
    if weights_hash is None:
        raise ModelError(f"{path.stem} belongs to one target, and it is not known which weights this one has; "
                         f"give methods.Context a weights_hash")  # fmt: skip
    tensors, card = weights.read(path, weights_hash(), lm.vocab_size)
    if not tensors.keys() >= {"ids", "join.weight"}:
        raise ModelError(f"{path} ({card.name}) holds no module of MTP or EAGLE; "
                         f"train one with: specdec train eagle")  # fmt: skip
    ids, execution = tensors.pop("ids"), lm.execution
    head = lm.head_rows(ids)
    module = FeatureDraft(Frozen(head, head, ids, execution.config), **card.recipe["options"])
    module.load_state_dict(tensors)
    module.scale = card.recipe.get("scale", module.scale)
    for part, child in module.named_children():
        if part != "rotary":  # positions are computed in float32
            child.to(execution.device, execution.dtype)
    module.rotary.to(execution.device)
    return FeatureModel(module.eval().requires_grad_(False), lm.embed)
