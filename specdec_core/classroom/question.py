"""What a question of an exercise is: its inputs, its right value, and the usual slips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .reading import Misread, read


class Fail(Exception):
    """Why an answer does not pass."""


def taken(value: Any, like: Any, words: str) -> Any:
    """What an answer calls a given function with, in the form of ``like``; ``words`` say what it takes."""
    try:
        return read(value, like)
    except Misread as error:
        raise Fail(f"{words}; {error}.") from None


@dataclass(frozen=True)
class Slip:
    """A usual mistake: what it gives, and what to say of it.

    Attributes:
        message: what to say where the answer agrees with ``wrong`` on every input.
        wrong: the same arguments as the answer's; may raise where the mistake would.
    """

    message: str
    wrong: Callable[..., Any]


@dataclass(frozen=True)
class Question:
    """What is asked, and how it is judged.

    Attributes:
        id: exercise and number, ``"01.2"``.
        name: of the function that the student writes.
        arguments: names of its parameters, for messages.
        cases: the inputs by a numpy generator; each a tuple of arguments.
        right: the right value for a case, by definition and slowly.
        slips: usual mistakes, the most specific first.
        observe: ``observe(ask, *case, like, read)``: how to get a value from the answer; by calling it, unless
            given. Where the answer draws at random it is `law_of`, and the value is the law of what it returns.
        like: a value of the right form where the right value of a case does not show it (an empty list).
        returns: the right form in words, such as ``"a law over the vocabulary"``.
    """

    id: str
    name: str
    arguments: tuple[str, ...]
    cases: Callable[[np.random.Generator], list[tuple]]
    right: Callable[..., Any]
    returns: str
    slips: tuple[Slip, ...] = ()
    observe: Callable[..., Any] | None = None
    like: Any = None
