"""Answers come in many right forms (lists, tuples, numpy, torch, any number type): read, compare and show them."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from .wire import Other

_COARSE = {"float32": 1e-4, "float16": 2e-2}
_FINE = 1e-6  # float32 may have been used on the way, and no slip is as near as that


class Misread(Exception):
    """A value that has not the form that was asked for; the text says which one it has."""


class Loose(float):
    """A number that came in a coarse type."""

    tolerance = 1e-4


class Coarse(np.ndarray):
    """A vector that came in a coarse type."""

    tolerance = 1e-4


class Exact(dict):
    """The distribution of what a random answer returns: outcome -> probability."""


def read(value: Any, like: Any) -> Any:
    """``value`` in the form of ``like``.

    Example:
        >>> read((1.0, 2), [0])
        [1, 2]
        >>> read([0.25, 0.75], np.zeros(2))
        array([0.25, 0.75])
        >>> read("yes", 1.0)
        Traceback (most recent call last):
        specdec_core.classroom.reading.Misread: got the text 'yes'
    """
    if isinstance(value, Other):
        raise Misread(f"got an object of type {value.name}")
    if isinstance(like, np.ndarray):
        return _array(value, like)
    if isinstance(like, (bool, np.bool_)):
        return bool(_scalar(value, integral=True))
    if isinstance(like, numbers.Integral):
        return int(_scalar(value, integral=True))
    if isinstance(like, numbers.Real):
        return _real(value)
    if isinstance(like, str):
        if not isinstance(value, str):
            raise Misread(f"got {describe(value)}")
        return value.strip().lower()
    if isinstance(like, dict):
        return _dict(value, like)
    return _sequence(value, like)


def _scalar(value: Any, integral: bool) -> Any:
    if isinstance(value, np.bool_):
        value = bool(value)
    if not isinstance(value, numbers.Real):
        raise Misread(f"got {describe(value)}")
    if integral and (not np.isfinite(value) or value != int(value)):
        raise Misread(f"got {value!r}, not a whole number")
    return value


def _real(value: Any) -> float:
    tolerance = _COARSE.get(value.dtype.name, 0.0) if isinstance(value, np.generic) else 0.0
    number = float(_scalar(value, integral=False))
    if tolerance:
        number = Loose(number)
        number.tolerance = tolerance
    return number


def _array(value: Any, like: np.ndarray) -> np.ndarray:
    if isinstance(value, (set, dict, str, numbers.Real)):
        raise Misread(f"got {describe(value)}")
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.zeros(0, object)
    if array.dtype == object or array.dtype.kind not in "bifu":
        raise Misread(f"got {describe(value)}, not all of it numbers of one shape")
    if array.ndim != like.ndim or (like.size > 1 and array.shape != like.shape):
        raise Misread(f"expected shape {like.shape}, got shape {array.shape}")
    tolerance = _COARSE.get(array.dtype.name, 0.0)
    array = array.astype(bool) if like.dtype == bool else array.astype(np.float64)
    if tolerance:
        array = array.view(Coarse)
        array.tolerance = tolerance
    return array


def _dict(value: Any, like: dict) -> dict:
    if not isinstance(value, dict):
        raise Misread(f"got {describe(value)}")
    if not like:
        return value
    key, inner = next(iter(like.items()))
    pattern = list(key) if isinstance(key, tuple) else key  # n-grams are tuples of any length
    return {_frozen(read(k, pattern)): read(v, inner) for k, v in value.items()}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _sequence(value: Any, like: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim > 0:
        value = list(value)
    if isinstance(value, (set, dict, str)) or not isinstance(value, (list, tuple)):
        raise Misread(f"got {describe(value)}")
    if isinstance(like, tuple):  # a record: as many, each in its own form
        if len(value) != len(like):
            raise Misread(f"got {len(value)} things, expected {len(like)}")
        return tuple(read(item, part) for item, part in zip(value, like, strict=True))
    return [read(item, like[0] if like else 0) for item in value]


def same(a: Any, b: Any) -> bool:
    """Equal up to the rounding of the coarser of the two; nan equals nan, which lets a slip be recognized.

    Example:
        >>> same([1, 2], [1, 2]), same(0.3, 0.1 + 0.2), same(0.3, 0.31)
        (True, True, False)
    """
    if isinstance(a, Exact) or isinstance(b, Exact):
        both = isinstance(a, Exact) and isinstance(b, Exact)
        return both and all(abs(a.get(key, 0.0) - b.get(key, 0.0)) < _FINE for key in a.keys() | b.keys())
    tolerance = max(getattr(a, "tolerance", _FINE), getattr(b, "tolerance", _FINE))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        try:
            a_, b_ = np.asarray(a), np.asarray(b)
        except ValueError:  # ragged, so not the array that the other one is
            return False
        if a_.dtype.kind not in "bifu" or b_.dtype.kind not in "bifu" or a_.shape != b_.shape:
            return False
        return bool(np.allclose(a_, b_, rtol=tolerance, atol=tolerance, equal_nan=True))
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, numbers.Real) and isinstance(b, numbers.Real)):
            return False
        return bool(np.isclose(float(a), float(b), rtol=tolerance, atol=tolerance, equal_nan=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def describe(value: Any) -> str:
    """What kind of thing a value is, in words.

    Example:
        >>> describe([1, 2]), describe("yes"), describe(np.zeros(3))
        ('a list of 2', "the text 'yes'", 'an array of shape (3,)')
    """
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, (list, tuple, set, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "nothing (None)" if value is None else repr(value)[:60]


def show(value: Any) -> str:
    """A value, short enough for a message."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray):
        text = np.array2string(np.asarray(value), precision=4, separator=", ", threshold=12).replace("\n", "")
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, (list, tuple)) and len(value) <= 40:
        inner = ", ".join(show(item) for item in value)
        text = f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    elif isinstance(value, dict) and len(value) <= 40:
        text = "{" + ", ".join(f"{show(key)}: {show(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, Other):
        text = f"an object of type {value.name}"
    else:
        text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}…"
