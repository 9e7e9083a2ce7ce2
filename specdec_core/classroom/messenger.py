"""What crosses between an answer and its examiner: messages, calls, and stand-ins for what cannot be copied."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .wire import MOST_BYTES, decode, encode


def send(stream: Any, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def receive(stream: Any) -> dict[str, Any]:
    """The next message.

    Raises:
        ConnectionError: if the other side hung up, or sent something else than a message.
    """
    line = stream.readline(MOST_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionError("the examination was broken off")
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ConnectionError("not a message")
    return message


def perform(function: Callable[..., Any], message: dict[str, Any], invoke: Callable[..., Any]) -> dict[str, Any]:
    """Call the answer once.

    Args:
        function: the answer.
        message: ``{"call": [arguments]}``, encoded.
        invoke: ``invoke(handle, method, arguments) -> {"result": ...} or {"error": text}`` reaches the examiner
            from inside the call.

    Returns:
        ``{"return": value, "changed": [indices]}``, or ``{"raise": [type, text]}``.
    """
    arguments = [decode(data, lambda kind, number: _STANDINS[kind](number, invoke)) for data in message["call"]]
    copied = [i for i, data in enumerate(message["call"]) if not (isinstance(data, dict) and "handle" in data)]
    try:
        value = function(*arguments)
        changed = [i for i in copied if encode(arguments[i]) != message["call"][i]]
        return {"return": encode(value), "changed": changed}
    except Exception as error:  # whatever an answer raises is its answer
        return {"raise": [type(error).__name__, str(error)[:500]]}


def _remote(invoke: Callable[..., Any], handle: list, method: str, *arguments: Any) -> Any:
    reply = invoke(handle, method, [encode(argument) for argument in arguments])
    if "error" in reply:
        raise TypeError(reply["error"])
    return decode(reply["result"])


class RemoteRng:
    """A random source whose every draw the examiner answers: it goes through all ways in which they can fall."""

    def __init__(self, number: int, invoke: Callable[..., Any]):
        self._handle, self._invoke = ["rng", number], invoke

    def uniform(self) -> Uniform:
        """A fresh u in [0, 1), to be compared with a number."""
        return Uniform(self._invoke, self._handle, _remote(self._invoke, self._handle, "uniform"))

    def pick(self, law: Any) -> int:
        """An index drawn from a distribution."""
        return _remote(self._invoke, self._handle, "pick", law)


class Uniform:
    """a u + b for a u that is only known to lie in [0, 1): it can be compared, shifted and scaled."""

    __array_ufunc__ = None  # numpy's numbers leave comparisons with it to it

    def __init__(self, invoke: Callable[..., Any], handle: list, number: int, scale: float = 1.0, shift: float = 0.0):
        self._parts, self._scale, self._shift = (invoke, handle, number), scale, shift

    def __lt__(self, x: Any) -> bool:
        invoke, handle, number = self._parts
        if self._scale == 0:
            return self._shift < float(x)
        below = _remote(invoke, handle, "below", number, (float(x) - self._shift) / self._scale)
        return below if self._scale > 0 else not below

    __le__ = __lt__  # that u equals x has probability zero

    def __gt__(self, x: Any) -> bool:
        return not self < x

    __ge__ = __gt__

    def _moved(self, scale: float, shift: float) -> Uniform:
        return Uniform(*self._parts, self._scale * float(scale), self._shift * float(scale) + float(shift))

    def __mul__(self, x: Any) -> Uniform:
        return self._moved(x, 0.0)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> Uniform:
        return self._moved(1.0 / float(x), 0.0)

    def __add__(self, x: Any) -> Uniform:
        return self._moved(1.0, x)

    __radd__ = __add__

    def __sub__(self, x: Any) -> Uniform:
        return self._moved(1.0, -float(x))

    def __rsub__(self, x: Any) -> Uniform:
        return self._moved(-1.0, x)

    def __neg__(self) -> Uniform:
        return self._moved(-1.0, 0.0)

    def __float__(self) -> float:
        raise TypeError("rng.uniform() is to be compared with a number; to draw a token use rng.pick(law)")


def _function(number: int, invoke: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: _remote(invoke, ["function", number], "call", *arguments)


_STANDINS: dict[str, Callable[..., Any]] = {"rng": RemoteRng, "function": _function}
