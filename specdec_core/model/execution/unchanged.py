"""Whether a model is still the one that was wrapped: an execution was compared with it once, and may hold copies.

Read at every prefill, in about a millisecond for the default model's 900 modules and tensors; nothing is computed, and
nothing waits for a GPU. Numbers written past torch's own counter (``weight.data.mul_(2)``, as merging an adapter does)
show on a CPU, where a few bytes in the middle of each tensor are looked at.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from transformers import PreTrainedModel

from ...base.errors import UnsupportedModel
from .llama import CAPTURING

_BYTES = 16
_OF_A_MODULE = ("class", "training mode", "hooks", "forward")
_OF_A_TENSOR = ("kind", "dtype", "device", "size", "numbers", "identity", "count of changes", "place in memory")


class Unchanged:
    """What a model was like when this was made.

    Args:
        model: referred to weakly: what is left of it in an execution cannot be changed from outside.
        copied: the execution has the matrices itself, so that another one may free the model's.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2)
        >>> seen = Unchanged(model)
        >>> seen.check()
        >>> _ = model.weight.data.add_(2)
        >>> try:
        ...     seen.check()
        ... except UnsupportedModel as error:
        ...     print(str(error).partition(";")[0])
        the Linear was changed after it was wrapped: weight has other numbers
    """

    def __init__(self, model: PreTrainedModel | Module, copied: bool = False):
        self._model, self._seen, self._copied = weakref.ref(model), _facts(model), copied

    def check(self) -> None:
        """
        Raises:
            UnsupportedModel: naming what was changed since.
        """
        model = self._model()
        if model is None or (now := _facts(model)) == self._seen:
            return
        places = [place for place in {**self._seen, **now} if self._seen.get(place) != now.get(place)]
        if self._copied:
            places = [place for place in places if not _freed(now.get(place))]
        if not places:
            return
        what = _difference(places[0], self._seen.get(places[0]), now.get(places[0]))
        more = f" (and {len(places) - 1} more places)" if places[1:] else ""
        raise UnsupportedModel(
            f"the {type(model).__name__} was changed after it was wrapped: {what}{more}; undo that, or wrap it again: "
            f"CachedLM(model)"
        )


def _freed(now: tuple[Any, ...] | None) -> bool:
    return now is not None and len(now) == len(_OF_A_TENSOR) and now[_OF_A_TENSOR.index("size")] == 0


def _difference(place: str, before: tuple[Any, ...] | None, now: tuple[Any, ...] | None) -> str:
    place = place or "the model"
    if before is None or now is None:
        return f"{place} is {'new' if before is None else 'gone'}"
    names = _OF_A_MODULE if len(now) == len(_OF_A_MODULE) else _OF_A_TENSOR
    changed = [name for name, a, b in zip(names, before, now, strict=False) if a != b]
    return f"{place} has other {' and '.join(changed)}" if changed else f"{place} is another"


def _facts(model: Module) -> dict[str, tuple[Any, ...]]:
    """By name, what is true of each module and each tensor."""
    facts: dict[str, tuple[Any, ...]] = {}
    todo = [("", model)]
    while todo:
        place, module = todo.pop()
        own, prefix = vars(module), f"{place}." if place else ""
        before, after = own["_forward_pre_hooks"], own["_forward_hooks"]
        hooks = before or after
        if hooks:
            both = (*before.items(), *after.items())
            hooks = [key for key, hook in both if getattr(hook, "__module__", None) != CAPTURING]
        facts[place] = (type(module), own["training"], list(hooks), id(own.get("forward")))
        for name, weight in own["_parameters"].items():
            facts[prefix + name] = _of(weight, True)
        for name, buffer in own["_buffers"].items():  # a forward may make those anew that are not saved
            facts[prefix + name] = _of(buffer, name not in own["_non_persistent_buffers_set"])
        todo += [(prefix + name, child) for name, child in own["_modules"].items() if child is not None]
    return facts


def _of(tensor: Tensor | None, lasting: bool) -> tuple[Any, ...]:
    if tensor is None or tensor.is_meta:  # offloaded: it comes and goes
        return (None,)
    kind, numbers, place, size = type(tensor), b"", 0, tensor.numel()
    if kind is Parameter or kind is Tensor:
        place = tensor.data_ptr()
        if size and tensor.is_cpu:
            middle, count = (size // 2, size - size // 2) if tensor.is_contiguous() else (0, 1)
            numbers = ctypes.string_at(place + middle * tensor.itemsize, min(_BYTES, count * tensor.itemsize))
    facts = (kind, tensor.dtype, tensor.device, size, numbers)
    return (*facts, id(tensor), 0 if tensor.is_inference() else tensor._version, place) if lasting else facts
