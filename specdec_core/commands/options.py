"""Options that several commands share, and what they mean. Imports torch only inside functions."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.sampling import Sampling
    from ..model.lm import CachedLM
    from ..model.loaded import LoadedModel

EXECUTIONS = ("auto", "eager", "packed", "compiled")  # execution.CHOICES, without importing torch
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


def add_model_arguments(parser: argparse.ArgumentParser, numerics: tuple[str, ...] = ("fast", "invariant")) -> None:
    """--model, --dtype, --device, --threads, --execution, --numerics."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", default="default", help="default, a folder, a GGUF file, or a hub name")
    group.add_argument("--dtype", default="auto", choices=DTYPES, help="default: what is fast and correct here")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps (default: auto)")
    group.add_argument("--threads", type=positive, help="CPU threads of torch (default: torch's choice)")
    text = "packed: weights laid out for this CPU; compiled: by torch; eager: transformers' own modules "
    text += "(default: auto, packed where possible)"
    group.add_argument("--execution", default="auto", choices=EXECUTIONS, help=text)
    text = "invariant: logits are the same bits whatever was drafted (slower; default: fast)"
    group.add_argument("--numerics", default="fast", choices=numerics, help=text)


def open_model(arguments: argparse.Namespace, release: bool = False) -> tuple[LoadedModel, CachedLM]:
    """The `LoadedModel` and its `CachedLM`; says on stderr what was chosen and why.

    With ``release`` the weights are held once: of the two, only the `CachedLM` can then run.
    """
    from ..model.lm import CachedLM

    loaded = load_model(arguments)
    lm = CachedLM(loaded, execution=arguments.execution, numerics=arguments.numerics, release=release)
    print(f"{loaded.label}: {loaded.why} {lm.why}.", file=sys.stderr)
    return loaded, lm


def load_model(arguments: argparse.Namespace) -> LoadedModel:
    """The model that was asked for, by as many threads as were."""
    import torch

    from ..model.loading import load

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    return load(arguments.model, dtype=arguments.dtype, device=arguments.device)


# Each setting of `Sampling`: what it is by default, what it accepts, and both in words.
_SAMPLING: dict[str, tuple[float, Callable[[float], bool], str, str]] = {
    "temperature": (0.0, lambda x: 0 <= x < math.inf, "of at least 0 (0 is greedy)", "0 is greedy"),
    "top_k": (0, lambda x: x >= 0, "of at least 0 (0 keeps all)", "keep the N likeliest tokens; 0 keeps all"),
    "top_p": (1.0, lambda x: 0 < x <= 1, "above 0, at most 1", "keep the likeliest tokens up to this mass"),
    "min_p": (0.0, lambda x: 0 <= x <= 1, "from 0 to 1", "drop tokens below this share of the likeliest one's"),
    "repetition_penalty": (1.0, lambda x: 0 < x < math.inf, "above 0 (1 is off)", "of what has occurred; 1 is off"),
    "presence_penalty": (0.0, math.isfinite, "that is finite (0 is off)", "taken off generated tokens; 0 is off"),
}


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """--temperature and the other settings of `Sampling`."""
    group = parser.add_argument_group("sampling")
    for name, (default, accepts, expected, text) in _SAMPLING.items():
        kind = type(default)
        check = partial(number, accepts=accepts, expected=f"a {'whole ' * (kind is int)}number {expected}", kind=kind)
        option, text = f"--{name.replace('_', '-')}", f"{text} (default: {default:g})"
        group.add_argument(option, type=check, default=default, metavar="N", help=text)


def sampling_of(arguments: argparse.Namespace) -> Sampling:
    """What `add_sampling_arguments` has read."""
    from ..core.sampling import Sampling

    return Sampling(**{name: getattr(arguments, name) for name in _SAMPLING})


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    return number(text, lambda value: value >= 1, "a whole number of at least 1", int)


def natural(text: str) -> int:
    """An argparse type: a whole number of at least 0."""
    return number(text, lambda value: value >= 0, "a whole number of at least 0", int)


def minutes(text: str) -> float:
    """An argparse type: a finite number above 0."""
    return number(text, lambda value: 0 < value < math.inf, "a number of minutes above 0")


def number(text: str, accepts: Callable[[float], bool], expected: str, kind: type = float) -> float:
    """The number of a kind that a text spells, if it is one that is accepted."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not accepts(value):
        raise argparse.ArgumentTypeError(f"{text!r}; expected {expected}")
    return value
