"""What a model must be to be run here, and the comparison with its own forward that every execution passes.

The attributes of a model tell much about it, not all. The comparison finds the rest: attention in both directions,
a mask of its own, positions that are not counted from 0, state beside attention, a layer that is not as its class
made it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from ...base.errors import SpecdecError, UnsupportedModel
from ...core.tree import DraftTree
from ..cache import Flight, KVCache
from .protocol import Execution, Facts, matrix, read

# Rounding happens at each of the operations of a model, and the nudge is one of them. An execution was seen to differ
# from a model's own forward by up to 3.3 nudges in float32, whose sums are rounded in the order in which they are
# made, and by up to 0.9 in the half types, which are summed in float32.
_NUDGES = {torch.float64: 10, torch.float32: 10, torch.float16: 3, torch.bfloat16: 3}
_LEAST = 64 * torch.finfo(torch.float32).eps  # always allowed: a model of few layers rounds more than a nudge moves
_NEVER = -1e30  # some models give tokens that may never come the least number there is
_WIDTH = 8  # rows of a forward: one width, for an execution that is compiled for each
_SHORT = 64  # windows up to this are passed by the longest text
# A model that one nudge moves further than this, relative to its logits, is random, or its numbers are too coarse.
_COARSEST = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}


class Reference:
    """What a model's own forward says of a few texts: one token, nine, and more than a short window holds.

    Made before an execution takes the model over, because that one may free the model's matrices.

    Args:
        model: a causal language model of transformers.

    Raises:
        UnsupportedModel: naming the model and the reason, for one whose memory of the past cannot be rewound, or
            whose own forward fails.
    """

    def __init__(self, model: PreTrainedModel):
        refuse_unfit(model)
        self.name, self.facts = type(model).__name__, Facts.of(model)
        rng, vocab = np.random.default_rng(0), self.facts.vocab_size
        config = self.facts.config
        limit, window = (getattr(config, name, None) for name in ("max_position_embeddings", "sliding_window"))
        longest = 2 * window if isinstance(window, int) and 16 < window <= _SHORT else 32
        lengths = [1, *(min(length, (limit or length + 1) - 1) for length in (9, longest))]
        self.texts = [rng.integers(0, vocab, length) for length in lengths]
        named = [getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos")]
        special = [token for token in named if isinstance(token, int) and 0 <= token < vocab]
        room = self.texts[2][3 : 3 + len(special)]
        room[:] = special[: len(room)]
        with _explained(f"{self.name}: its own forward fails"):
            self.logits = [self._own(model, text) for text in self.texts]
            with _nudged(model):
                nudged = [self._own(model, text) for text in self.texts]
        if any(logits.shape != (len(text), vocab) for logits, text in zip(self.logits, self.texts, strict=True)):
            shapes = [tuple(logits.shape) for logits in self.logits]
            raise UnsupportedModel(
                f"{self.name} gives logits of shapes {shapes} for texts of {lengths} tokens; expected a row of {vocab} "
                f"for each token, as many as its vocabulary projection has rows"
            )
        if any((logits.isnan() | (logits == torch.inf)).any() for logits in self.logits):
            raise UnsupportedModel(
                f"{self.name} gives logits that are no finite numbers: its weights hold some that are not, or overflow "
                f"in {self.facts.dtype}; load it in float32 or bfloat16, or download it again"
            )
        moved = [_error(ours, theirs) for ours, theirs in zip(nudged, self.logits, strict=True)]
        if not max(moved) <= _COARSEST[self.facts.dtype]:
            raise UnsupportedModel(
                f"{self.name}: one rounding of its embedding moves its logits by {max(moved):.0%}, so that nothing can "
                f"be compared with them; a model that draws random numbers in its forward does that, or float16 and "
                f"bfloat16 where they are too coarse: load it in float32"
            )
        self.bounds = [max(_NUDGES[self.facts.dtype] * error, _LEAST) for error in moved]

    @torch.no_grad()
    def _own(self, model: PreTrainedModel, text: np.ndarray) -> Tensor:
        """(L, V) logits by the model's own forward over the whole text."""
        return model(input_ids=torch.from_numpy(text)[None].to(self.facts.device), use_cache=False).logits[0]

    @torch.no_grad()
    def hold(self, execution: Execution) -> None:
        """Compare an execution of the model with its own forward, on trees made as in a decode step.

        Raises:
            UnsupportedModel: if they differ by more than rounding does.
        """
        kv = KVCache()
        kv.reserve(len(self.texts[-1]) + execution.slots(_WIDTH))
        for text, theirs, bound in zip(self.texts, self.logits, self.bounds, strict=True):
            with _explained(f"{self.name} cannot be run {execution.name}"):
                ours = _scored(execution, kv, text)
            error = _error(ours, theirs)
            if not error <= bound:
                raise UnsupportedModel(
                    f"{self.name}: its own forward and the {execution.name} one differ by {error:.2g} of the logits on "
                    f"a text of {len(text)} tokens, where rounding explains {bound:.2g} (attention in both "
                    f"directions, a mask of its own, or positions counted otherwise would do that); "
                    f"choose a decoder-only causal language model"
                )


def _scored(execution: Execution, kv: KVCache, text: np.ndarray) -> Tensor:
    """(L, V) logits of a text, in trees of one width whose rejected siblings are dropped."""
    facts, scores = execution.facts, []
    kv.length = 0
    for start in range(0, len(text), _WIDTH - 1):
        path = text[start : start + _WIDTH - 1]
        tokens = np.resize(path[::-1], _WIDTH)  # what is not on the path is a child of the root
        at = [0, *range(_WIDTH - len(path) + 1, _WIDTH)]  # rows of the path, the others before it
        tokens[at], parents = path, np.zeros(_WIDTH, np.int64)
        parents[at] = [-1, *at[:-1]]
        tree = DraftTree(tokens, parents)
        flight = Flight(kv.length, 0, tree.ancestors, kv.length + tree.depths, facts.dtype, facts.device)
        scores.append(read(execution, kv, tree.tokens, flight, _WIDTH)[0][at])
        kv.commit(at)
    return torch.cat(scores)


def _error(ours: Tensor, theirs: Tensor) -> float:
    """How far two sets of logits (L, V) differ, relative to their length: of ten rows the worst, or nearly so.

    Not the worst of many, because in a mixture of experts rounding can send a single row to another expert.
    """
    ours, theirs = ours.cpu(), theirs.cpu()  # not every device has float64
    named = theirs > _NEVER  # (L, V)
    if not torch.equal(ours > _NEVER, named):
        return math.inf
    ours, theirs = (torch.where(named, logits.double(), 0.0) for logits in (ours, theirs))
    errors = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)  # (L,)
    return float(errors.quantile(0.9))


@contextmanager
def _nudged(model: PreTrainedModel) -> Iterator[None]:
    """Each number that the embedding gives is moved to a neighbour, up or down: one rounding more."""

    def nudge(module: torch.nn.Module, inputs: object, states: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        signs = torch.randint(0, 2, states.shape, generator=generator).to(states) * 2 - 1
        return states * (1 + signs * max(torch.finfo(dtype).eps for dtype in (states.dtype, torch.float32)))

    hook = model.get_input_embeddings().register_forward_hook(nudge)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Whatever an unknown model raises when it is tried is the reason for which it is refused."""
    try:
        yield
    except (SpecdecError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise UnsupportedModel(f"{what} ({type(error).__name__}: {first})") from error


def refuse_unfit(model: PreTrainedModel) -> None:
    """Refuse models whose memory of the past cannot be rewound to an accepted prefix.

    Raises:
        UnsupportedModel: for what is no model of transformers; for encoder-decoder, recurrent, hybrid or
            chunked-attention models, for models that do not let their attention function be replaced, without a
            vocabulary projection, or in training mode.
    """
    name, whole = type(model).__name__, getattr(model, "config", None)
    if not (isinstance(model, torch.nn.Module) and isinstance(whole, PretrainedConfig)):
        raise UnsupportedModel(f"expected a causal language model of transformers, or what `load` gave; got a {name}")
    with _explained(f"{name} is not a causal language model"):
        config, head = whole.get_text_config(), model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(f"{name} has no vocabulary projection; load it with AutoModelForCausalLM")
    if config.is_encoder_decoder:
        raise UnsupportedModel(f"{name} is an encoder-decoder model; a decoder-only causal language model is needed")
    kinds = getattr(config, "layer_types", None) or []
    recurrent = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if getattr(model, "_is_stateful", False) or recurrent:
        what = f"layers of type {recurrent}" if recurrent else "a recurrent state"
        raise UnsupportedModel(
            f"{name} has {what}, whose memory cannot be rewound when a draft token is rejected; "
            f"choose a model whose layers are all attention"
        )
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModel(
            f"{name} does not let its attention function be replaced (transformers' AttentionInterface), "
            f"which the preallocated cache needs"
        )
    training = [part for part in model.modules() if part.training]
    dropouts = [getattr(part, name, 0) for part in training for name in ("p", "attention_dropout")]
    for place, part in model.named_modules():  # accelerate's own hook loads what it offloads
        if any(weight.is_meta for weight in part.parameters(recurse=False)) and "_hf_hook" not in vars(part):
            raise UnsupportedModel(f"{name}: {place} is on the meta device, without numbers; load the model whole")
    matrix(model.get_input_embeddings())
    matrix(head)
    if model.training or any(dropouts):
        raise UnsupportedModel(f"{name} is in training mode, where dropout makes it random; call model.eval()")
