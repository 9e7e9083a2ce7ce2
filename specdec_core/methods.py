"""Methods by name: `autoregressive`, `prompt_lookup`, `prompt_lookup:num_tokens=5,match=first`, ...

A name is looked up in the drafters' registry, so a new drafter is raced, and generated with, without a
change here. What comes after the colon are arguments of its constructor.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .costs import Costs
from .drafters import REGISTRY, Drafter, NullDrafter
from .errors import SpecdecError
from .interface import LanguageModel
from .sampling import Sampling

BASELINE = NullDrafter.name


class MethodError(SpecdecError):
    """A method that does not exist, or settings that it does not take."""


@dataclass(frozen=True)
class Context:
    """What a drafter may be built from.

    Attributes:
        lm: the target.
        tokenizer: of transformers.
        sampling: how ``lm`` is sampled; a drafter that draws has to draw alike. Greedy by default.
        costs: t(q) of ``lm`` as it runs here; None where it is not known, and a drafter that needs it measures.
        weights_hash: gives the hash of the target's weights (`models.LoadedModel.weights_hash`), by which trained
            drafters know their target; asked only by these, since it may take a while. None where it is not known.
    """

    lm: LanguageModel
    tokenizer: Any
    costs: Costs | None = None
    sampling: Sampling = Sampling()
    weights_hash: Callable[[], str] | None = None


def split(names: str) -> list[str]:
    """The method names of a list separated by commas, each with its settings.

    Settings are separated by commas too: a piece with "=" and no ":" belongs to the method before it.

    Example:
        >>> split("autoregressive, prompt_lookup:num_tokens=5,max_n=2,prompt_lookup")
        ['autoregressive', 'prompt_lookup:num_tokens=5,max_n=2', 'prompt_lookup']
    """
    methods: list[str] = []
    for piece in (piece.strip() for piece in names.split(",")):
        if methods and "=" in piece and ":" not in piece:
            methods[-1] += "," + piece
        elif piece:
            methods.append(piece)
    return methods


def parse(name: str) -> tuple[str, dict[str, Any]]:
    """The drafter's name and its settings; values are Python literals, or else strings.

    Raises:
        MethodError: no such drafter, or a setting without a value.

    Example:
        >>> parse("prompt_lookup:num_tokens=5,match=first")
        ('prompt_lookup', {'num_tokens': 5, 'match': 'first'})
    """
    base, _, rest = name.partition(":")
    if base not in REGISTRY:
        raise MethodError(f"no method {base!r}; choose from: {', '.join(REGISTRY)}.")
    settings = {}
    for piece in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not (key and equals and value):
            raise MethodError(f"{name!r}: {piece!r} is no setting; expected key=value, such as num_tokens=5.")
        settings[key] = _value(value)
    return base, settings


def build(name: str, context: Context) -> Drafter:
    """A fresh drafter: its class called with the settings, or the class's ``build(context, **settings)``.

    Raises:
        MethodError: no such drafter, a setting it does not take, or a value it refuses.

    Example:
        >>> build("prompt_lookup:num_tokens=5", Context(None, None)).num_tokens
        5
    """
    make, settings = _maker(name, context)
    try:
        return make(**settings)
    except (TypeError, ValueError) as error:
        raise MethodError(f"{name!r}: {error}") from error


def settings(name: str) -> dict[str, Any]:
    """All settings of a method, the defaults included, for the record.

    Example:
        >>> settings("prompt_lookup:max_n=2")
        {'num_tokens': 10, 'max_n': 2, 'min_n': 1, 'match': 'last'}
    """
    make, given = _maker(name, Context(None, None))
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(make).parameters.items()
        if parameter.default is not parameter.empty
    }
    return {**defaults, **given}


def check(names: Iterable[str]) -> list[str]:
    """The methods of a race: each once, the baseline first, every name and setting known.

    Raises:
        MethodError: as `parse` and `build`.

    Example:
        >>> check(["prompt_lookup"])
        ['autoregressive', 'prompt_lookup']
    """
    methods = list(dict.fromkeys([BASELINE, *names]))
    for name in methods:
        _maker(name, Context(None, None))
    return methods


def _maker(name: str, context: Context) -> tuple[Callable[..., Drafter], dict[str, Any]]:
    base, given = parse(name)
    cls = REGISTRY[base]
    make = partial(cls.build, context) if hasattr(cls, "build") else cls
    known = inspect.signature(make).parameters
    if unknown := [key for key in given if key not in known]:
        takes = f"it takes: {', '.join(known)}" if known else "it takes none"
        raise MethodError(f"{name!r}: {base} has no setting {', '.join(map(repr, unknown))}; {takes}.")
    return make, given


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
