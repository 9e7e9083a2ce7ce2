"""The one door for arguments: numbers are checked where they come in, for kind and for range.

A whole number is what `operator.index` takes: Python's integers, those of numpy and torch, arrays of no axis. A bool is
none, nor is a fraction, a text, or an array with axes. Every refusal is a ValueError that names the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from operator import index
from typing import Any

import numpy as np

from .errors import TextError


def whole(name: str, value: Any, least: float = -inf, most: float = inf) -> int:
    """``value`` as an int from ``least`` to ``most``.

    Raises:
        ValueError: for another kind, or outside this range.

    Example:
        >>> whole("num_tokens", np.int64(3), least=1)
        3
        >>> whole("num_tokens", 2.5)
        Traceback (most recent call last):
        ValueError: num_tokens: expected a whole number, got 2.5
    """
    if type(value) is not int:
        try:
            value = index(_plain(value))
        except TypeError:
            raise ValueError(f"{name}: expected a whole number, got {_shown(value)}") from None
    if not least <= value <= most:
        raise ValueError(f"{name} must be {_range(least, most)}; got {value}")
    return value


def real(name: str, value: Any, least: float = -inf, most: float = inf, above: float = -inf) -> float:
    """``value`` as a finite float from ``least`` to ``most``, and greater than ``above``.

    Raises:
        ValueError: for another kind, infinity, NaN, or outside this range.

    Example:
        >>> real("top_p", np.float32(0.5), above=0, most=1)
        0.5
        >>> real("top_p", 0, above=0, most=1)
        Traceback (most recent call last):
        ValueError: top_p must be above 0 and at most 1; got 0.0
    """
    try:
        plain = _plain(value)
        if isinstance(plain, (str, bytes)):
            raise TypeError
        number = float(plain)
    except (TypeError, OverflowError):
        raise ValueError(f"{name}: expected a number, got {_shown(value)}") from None
    if not (isfinite(number) and least <= number <= most and number > above):
        raise ValueError(f"{name} must be {_range(least, most, above)}; got {number}")
    return number


def flag(name: str, value: Any) -> bool:
    """``value``, which must be True or False.

    Example:
        >>> flag("raw", "false")
        Traceback (most recent call last):
        ValueError: raw: expected True or False, got 'false'
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: expected True or False, got {_shown(value)}")
    return bool(value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """``value``, which must be one of some words.

    Example:
        >>> one_of("match", "best", ("first", "last"))
        Traceback (most recent call last):
        ValueError: match must be 'first' or 'last'; got 'best'
    """
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}; got {_shown(value)}")
    return value


def text(name: str, value: Any) -> str:
    """``value``, which must be text that can be written: no half of a surrogate pair.

    Raises:
        ValueError: for another kind.
        TextError: for such a half, which also stands for a byte that was not UTF-8; it says where.

    Example:
        >>> text("the prompt", "caf\\udce9")
        Traceback (most recent call last):
        specdec_core.base.errors.TextError: the prompt: character 4 is '\\udce9', which is no text; expected UTF-8
    """
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        wrong = value[error.start]
        raise TextError(f"{name}: character {error.start + 1} is {wrong!r}, which is no text; expected UTF-8") from None
    return value


def ids(name: str, values: Any, least: float = 0, most: float = inf) -> list[int]:
    """Token ids: a sequence, or an array or tensor of one axis, of whole numbers from ``least`` to ``most``.

    Example:
        >>> ids("prompt", np.array([3, 5]))
        [3, 5]
        >>> ids("prompt", [[3, 5]])
        Traceback (most recent call last):
        ValueError: prompt[0]: expected a whole number, got [3, 5]
    """
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name}: expected token ids, got the text {_shown(values)}; encode it with the tokenizer")
    if (axes := len(getattr(values, "shape", (0,)))) != 1:
        shape = tuple(values.shape)
        raise ValueError(f"{name}: expected a vector of token ids, got shape {shape}" + ("; pass one row" * (axes > 1)))
    if not isinstance(values, Iterable):
        raise ValueError(f"{name}: expected a sequence of token ids, got {_shown(values)}")
    found = values.tolist() if hasattr(values, "tolist") else list(values)
    if all(type(value) is int and least <= value <= most for value in found):  # as nearly always
        return found
    return [whole(f"{name}[{place}]", value, least, most) for place, value in enumerate(found)]


def vector(name: str, values: Any, dtype: type = np.int64) -> np.ndarray:
    """(n,) or of any shape: an array whose numbers are whole (``dtype`` int64), or True and False (``dtype`` bool).

    Example:
        >>> vector("tokens", [1.5])
        Traceback (most recent call last):
        ValueError: tokens: expected whole numbers, got [1.5]
    """
    array = np.asarray(values)
    if array.size and array.dtype.kind not in ("b" if dtype is bool else "iu"):
        expected = "True or False for each row" if dtype is bool else "whole numbers"
        raise ValueError(f"{name}: expected {expected}, got {_shown(values)}")
    return array.astype(dtype, copy=False)


def _plain(value: Any) -> Any:
    """The same value, if it can be a number at all: no bool, nothing with axes, nothing complex."""
    kind = str(getattr(value, "dtype", type(value)))
    return None if "bool" in kind or "complex" in kind or len(getattr(value, "shape", ())) else value


def _shown(value: Any) -> str:
    shape = tuple(getattr(value, "shape", ()))
    text = f"an array of shape {shape}" if shape else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _range(least: float, most: float, above: float = -inf) -> str:
    if least > -inf and most < inf:
        return f"from {least} to {most}"
    parts = [f"above {above}" * (above > -inf), f"at least {least}" * (least > -inf), f"at most {most}" * (most < inf)]
    return " and ".join(filter(None, parts)) or "finite"
