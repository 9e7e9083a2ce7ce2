"""Checks of the formulas' arguments: each returns the value in the type that the formula computes with.

Formulas take a number or an array; what comes out of a check is the same of the two, which no type can say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Number = float | np.ndarray
Vector = Sequence[float] | np.ndarray


def probability(name: str, value: Number) -> Any:
    """A number or an array with every entry in [0, 1]."""
    return _within(name, value, 0.0, 1.0, "a probability, in [0, 1]")


def probabilities(name: str, values: Vector) -> np.ndarray:
    """(n,) float64, every entry in [0, 1]; n may be 0."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a vector of probabilities; got shape {array.shape}")
    probability(name, array)
    return array


def nonnegative(name: str, value: Number | Vector) -> Any:
    """A finite number or array >= 0."""
    return _within(name, value, 0.0, np.finfo(float).max, "finite and >= 0")


def positive(name: str, value: Number | Vector) -> Any:
    """A finite number or array > 0."""
    return _within(name, value, np.finfo(float).tiny, np.finfo(float).max, "finite and > 0")


def at_least_one(name: str, value: Number | Vector) -> Any:
    """A finite number or array >= 1."""
    return _within(name, value, 1.0, np.finfo(float).max, "finite and >= 1")


def count(name: str, value: int, least: int) -> int:
    """One integer >= least."""
    if not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be one integer >= {least}; got {value!r}")
    return int(value)


def distribution(name: str, value: Vector) -> np.ndarray:
    """(V,) float64 probabilities that sum to one."""
    value = np.asarray(value, np.float64)
    if value.ndim != 1 or not value.size or not (value >= 0).all() or abs(value.sum() - 1) > 1e-6:
        raise ValueError(
            f"{name} must be a vector of probabilities that sum to 1 (apply softmax to logits first); "
            f"got shape {value.shape}, least entry {value.min(initial=np.inf)}, sum {value.sum()}"
        )
    return value


def cost(t: Callable[[int], float], q: int) -> float:
    """t(q), the time of a forward over q rows, which must be finite and positive."""
    seconds = float(t(q))
    if not 0 < seconds < np.inf:
        raise ValueError(f"t({q}) must be a finite time > 0; got {seconds}")
    return seconds


def plain(value: Number) -> Any:
    """A Python float where the result is one number, the array where it is several."""
    return float(value) if np.ndim(value) == 0 else value


def _within(name: str, value: Number | Vector, low: float, high: float, words: str) -> Any:
    array = np.asarray(value, np.float64)
    if not ((array >= low) & (array <= high)).all():  # written so that nan fails too
        raise ValueError(f"{name} must be {words}; got {value!r}")
    return plain(array)
