"""Methods by name: `autoregressive`, `prompt_lookup`, `prompt_lookup:num_tokens=5,match=first`, ...

A name is looked up in `REGISTRY`, so a new drafter is raced, and generated with, without a change elsewhere: a new
method is a new file and a line here. What comes after the colon are arguments of its ``build``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..base.errors import SpecdecError
from ..core.contract import Drafter, DrafterBase, LanguageModel, NullDrafter
from ..core.sampling import Sampling
from ..model.chat import Tokenizer

if TYPE_CHECKING:
    from ..model.lm import CachedLM

BASELINE = NullDrafter.name

# name: (module, class), imported when the method is asked for; or the class itself, for one of your own.
REGISTRY: dict[str, tuple[str, str] | type[DrafterBase]] = {
    BASELINE: ("..core.contract", "NullDrafter"),
    "prompt_lookup": (".prompt_lookup", "PromptLookup"),
    "ngram": (".ngram", "NGramDictionary"),
    "jacobi": (".jacobi", "Jacobi"),
    "lookahead": (".lookahead", "Lookahead"),
    "rest": (".rest", "REST"),
    "suffix_decoding": (".suffix_decoding", "SuffixDecoding"),
    "draft_model": (".draft_model", "DraftModel"),
    "medusa": (".medusa", "Medusa"),
    "mtp": (".mtp", "MTP"),
    "eagle": (".eagle", "EAGLE"),
    "cascade": (".cascade", "Cascade"),
    "adaptive": (".adaptive", "Adaptive"),
}


class MethodError(SpecdecError):
    """A method that does not exist, or settings that it does not take."""


@dataclass(frozen=True)
class Context:
    """What a drafter may be built from.

    Attributes:
        lm: the target. If it was made of a loaded model, the tokenizer and the hash are that model's.
        sampling: how ``lm`` is sampled; a drafter that draws has to draw alike. Greedy by default.
        t: t(q), the seconds of a forward of ``lm`` with q rows here; None where it is not known.
        draft_seconds: gives d(m), the seconds that a drafter takes for a draft of m nodes; None where nobody can
            measure it. `measure.context_for` fills both in.
        tokenizer: of ``lm``.
        weights_hash: gives the hash of the target's weights, by which trained drafters know their target; asked only
            by these, since it may take a while. None where it is not known.
    """

    lm: LanguageModel
    sampling: Sampling = Sampling()
    t: Callable[[int], float] | None = None
    draft_seconds: Callable[[Drafter], Callable[[int], float]] | None = None
    tokenizer: Tokenizer | None = None
    weights_hash: Callable[[], str] | None = None

    def __post_init__(self) -> None:
        from ..model.lm import CachedLM

        if isinstance(self.lm, CachedLM) and (loaded := self.lm.loaded):
            object.__setattr__(self, "tokenizer", self.tokenizer or loaded.tokenizer)
            object.__setattr__(self, "weights_hash", self.weights_hash or (lambda: loaded.weights_hash))

    def cached(self) -> CachedLM:
        """The target, for a drafter that shares its embedding and vocabulary projection.

        Raises:
            MethodError: if it is not a `CachedLM`.
        """
        from ..model.lm import CachedLM

        if not isinstance(self.lm, CachedLM):
            raise MethodError(f"trained drafters need a CachedLM as their target; got a {type(self.lm).__name__}")
        return self.lm


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
    """The drafter's name and its settings; values are Python literals, or else strings, as names always are.

    Raises:
        MethodError: no such drafter, or a setting without a value, or with two.

    Example:
        >>> parse("prompt_lookup:num_tokens=5,match=first")
        ('prompt_lookup', {'num_tokens': 5, 'match': 'first'})
    """
    base, _, rest = name.partition(":")
    if base not in REGISTRY:
        raise MethodError(f"no method {base!r}; choose from: {', '.join(REGISTRY)}.")
    settings: dict[str, Any] = {}
    defaults = _settings(base) if rest else {}
    for piece in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not (key and equals and value):
            raise MethodError(f"{name!r}: expected key=value, such as num_tokens=5; got {piece!r}.")
        if key in settings:
            raise MethodError(f"{name!r}: {key} is set twice, to {settings[key]!r} and to {value}; leave one out.")
        read = _value(value)  # text may stand in quotes; a number that is text, such as a store's name, stays text
        settings[key] = value if isinstance(defaults.get(key), str) and not isinstance(read, str) else read
    return base, settings


def build(name: str, context: Context) -> Drafter:
    """A fresh drafter: its class's ``build(context, **settings)``.

    Raises:
        MethodError: no such drafter, a setting it does not take, or a value it refuses.

    Example:
        >>> from specdec_core import TableLM
        >>> build("prompt_lookup:num_tokens=5", Context(TableLM.random(4))).num_tokens
        5
    """
    make, settings = _maker(name)
    try:
        return make(context, **settings)
    except (TypeError, ValueError) as error:
        raise MethodError(f"{name!r}: {error}") from error


def settings(name: str) -> dict[str, Any]:
    """All settings of a method, the defaults included, for the record.

    Example:
        >>> settings("prompt_lookup:max_n=2")
        {'num_tokens': 10, 'max_n': 2, 'min_n': 1, 'match': 'last'}
    """
    base, given = parse(name)
    return {key: value for key, value in _settings(base).items() if value is not inspect.Parameter.empty} | given


def check(names: Iterable[str]) -> list[str]:
    """The methods of a race: each once, the baseline first, every name and setting known.

    Raises:
        MethodError: as `parse` and `build`.

    Example:
        >>> check(["prompt_lookup"])
        ['autoregressive', 'prompt_lookup']
    """
    for name in (methods := list(dict.fromkeys([BASELINE, *names]))):
        _maker(name)
    return methods


def drafter_class(name: str) -> type[DrafterBase]:
    """The class behind a name of `REGISTRY`."""
    entry = REGISTRY[name]
    return entry if isinstance(entry, type) else vars(import_module(entry[0], __package__))[entry[1]]


def _maker(name: str) -> tuple[Callable[..., Drafter], dict[str, Any]]:
    base, given = parse(name)
    known = _settings(base)
    if unknown := [key for key in given if key not in known]:
        takes = f"it takes: {', '.join(known)}" if known else "it takes none"
        raise MethodError(f"{name!r}: {base} has no setting {', '.join(map(repr, unknown))}; {takes}.")
    return drafter_class(base).build, given


def _settings(base: str) -> dict[str, Any]:
    """The settings of a method with their defaults: arguments of its ``build``, or of its constructor."""
    cls = drafter_class(base)
    parameters = inspect.signature(partial(cls.build, None) if "build" in vars(cls) else cls).parameters
    return {key: parameter.default for key, parameter in parameters.items()}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
