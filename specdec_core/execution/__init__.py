"""How a forward pass is executed. Every choice is exact; they differ in speed only."""

from __future__ import annotations

from . import packed
from .eager import Eager
from .packed import Packed

CHOICES = ("auto", "eager", "packed")


def choose(model, execution: str = "auto", release: bool = False) -> tuple[Eager | Packed, str]:
    """The execution asked for, and one sentence that says what was chosen and why.

    Args:
        model: a transformers causal language model.
        execution: ``"eager"``, ``"packed"``, or ``"auto"``: packed where that is possible.
        release: let `Packed` free the model's own matrices; see there.

    Raises:
        ValueError: for another name.
        UnsupportedModel: if the model cannot be run that way.
    """
    if execution not in CHOICES:
        raise ValueError(f"execution must be one of {CHOICES}; got {execution!r}")
    if execution == "eager":
        return Eager(model), "eager: asked for"
    reason = packed.unfit(model)
    if execution == "packed" or reason is None:
        why = "asked for" if execution == "packed" else "the fastest on this CPU"
        return Packed(model, release), f"packed: {why}"
    return Eager(model), f"eager: cannot be packed, {reason}"
