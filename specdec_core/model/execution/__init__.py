"""How a forward pass is executed. Every choice is exact, which is compared when it is made; they differ in speed."""

from __future__ import annotations

from transformers import PreTrainedModel

from ...base.errors import UnsupportedModel
from . import packed
from .compiled import Compiled
from .eager import Eager
from .likeness import refuse_unfit
from .packed import Packed
from .protocol import Execution

CHOICES = ("auto", "eager", "packed", "compiled")


def choose(model: PreTrainedModel, execution: str = "auto", release: bool = False) -> tuple[Execution, str]:
    """The execution asked for, and one sentence that says what was chosen and why.

    Args:
        model: a transformers causal language model.
        execution: one of `CHOICES`. ``"auto"`` packs where that is possible; otherwise it runs transformers' own
            modules, since compiling takes a minute or more that only long work repays.
        release: let `Packed` free the model's own matrices; see there.

    Raises:
        ValueError: for another name.
        UnsupportedModel: if the model cannot be run that way.
    """
    if execution not in CHOICES:
        raise ValueError(f"execution must be one of {CHOICES}; got {execution!r}")
    refuse_unfit(model)
    if execution == "eager":
        return Eager(model), "eager: asked for"
    if execution == "compiled":
        return Compiled(model), "compiled: asked for"
    reason = packed.unfit(model)
    if execution == "packed" or reason is None:
        why = "asked for" if execution == "packed" else "the fastest on this CPU"
        try:
            return Packed(model, release), f"packed: {why}"
        except UnsupportedModel as error:
            if execution == "packed" or release:  # whose matrices are gone
                raise
            reason = str(error)
    return Eager(model), f"eager: cannot be packed, {reason}"
