"""Values between the examiner and an answer: plain data in JSON, and nothing that could run.

Only numbers, text, containers, arrays and tensors have a form of their own. Anything else travels as the name of
its type, so an object that claims to equal everything arrives as what it is.
"""

from __future__ import annotations

import base64
import sys
from fractions import Fraction
from typing import Any

import numpy as np

MOST_BYTES = 1 << 24  # of one message
_DTYPES = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}
_DTYPES |= {"float16", "float32", "float64"}
_DEEPEST = 20


class Other:
    """Stands for a value that has no plain form; ``name`` is the name of its type."""

    def __init__(self, name: str):
        self.name = str(name)[:80]


class Handle:
    """An argument that is called back rather than copied: a random source, or a function."""

    def __init__(self, kind: str, number: int):
        self.kind, self.number = kind, number


def encode(value: Any, depth: int = 0) -> Any:
    """A value as JSON data.

    Example:
        >>> decode(encode({"a": (1, np.array([0.5, 0.5]))}))
        {'a': (1, array([0.5, 0.5]))}
        >>> decode(encode(object())).name
        'object'
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return {"float": value.hex()}  # JSON has no nan, and hex loses no digit
    if kind is Fraction:
        return {"float": float(value).hex()}
    if kind is Handle:
        return {"handle": [value.kind, value.number]}
    if depth < _DEEPEST:
        if kind in (list, tuple, set, frozenset):
            name = {list: "list", tuple: "tuple"}.get(kind, "set")
            return {name: [encode(item, depth + 1) for item in value]}
        if isinstance(value, dict):  # and Counter, OrderedDict, defaultdict
            return {"dict": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]}
        if isinstance(value, (np.ndarray, np.generic)):
            return _array(value, depth)
        torch = sys.modules.get("torch")  # nothing can be a tensor before torch is loaded
        if torch is not None and isinstance(value, torch.Tensor):
            tensor = value.detach().cpu()
            # numpy has no bfloat16; float16 is as coarse, which is what the tolerance goes by
            return _array((tensor.to(torch.float16) if tensor.dtype == torch.bfloat16 else tensor).numpy(), depth)
        if kind in (range, type({}.keys()), type({}.values()), map, zip, filter, type(i for i in ())):
            return {"other": f"{kind.__name__} object"}
    return {"other": kind.__name__}


def _array(value: Any, depth: int) -> Any:
    array = np.asarray(value)
    if array.dtype == object and array.size <= 100_000:
        return encode(array.tolist(), depth + 1)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    if array.dtype.name not in _DTYPES:
        return {"other": f"array of {array.dtype.name}"}
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
    return {"array": [array.dtype.name, list(np.shape(value)), base64.b64encode(array.tobytes()).decode()]}


def decode(data: Any, handles: Any = None, depth: int = 0) -> Any:
    """The value of JSON data.

    Args:
        data: what `encode` gave, or what someone pretends it gave.
        handles: makes something callable of a `Handle`'s kind and number.

    Raises:
        ValueError: for anything that `encode` would not have made.
    """
    if data is None or type(data) in (bool, int, str):
        return data
    if not isinstance(data, dict) or len(data) != 1 or depth > _DEEPEST:
        raise ValueError("not a value of this wire")
    ((kind, inner),) = data.items()
    if kind == "float":
        return float.fromhex(inner)
    if kind == "other":
        return Other(inner)
    if kind == "array":
        name, shape, text = inner
        if name not in _DTYPES:
            raise ValueError("not a dtype of this wire")
        array = np.frombuffer(base64.b64decode(text), np.dtype(name).newbyteorder("<")).reshape(shape).astype(name)
        return array[()]  # of shape (): a number, which may be a key
    if kind == "handle":
        return handles(*inner) if handles else Other("handle")
    if kind == "dict":
        pairs = [(decode(k, handles, depth + 1), decode(v, handles, depth + 1)) for k, v in inner]
        try:
            return dict(pairs)
        except TypeError:
            return Other("dict with keys that are arrays or lists")
    items = [decode(item, handles, depth + 1) for item in inner]
    if kind == "set":
        try:
            return set(items)
        except TypeError:
            return Other("set of arrays")
    if kind in ("list", "tuple"):
        return tuple(items) if kind == "tuple" else items
    raise ValueError("not a kind of this wire")
