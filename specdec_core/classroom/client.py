"""The student's side of an examination: `check`, and the messenger that it is at grading."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from ..base.errors import SpecdecError
from .messenger import perform, receive, send

PLACE = "SPECDEC_EXAMINER"  # port:token of the examiner, set at grading only


class CheckFailed(SpecdecError):
    """An answer that is not right yet; the message says what is wrong with it."""

    def _render_traceback_(self) -> list[str]:  # IPython shows this instead of twenty lines of our code
        return [f"CheckFailed: {self}"]


def check(question: str, function: Callable[..., Any]) -> None:
    """Examine an answer: silence would be ambiguous, so it prints that all is right, or raises with the reason.

    Args:
        question: its number, such as ``"01.2"``.
        function: the answer.

    Raises:
        CheckFailed: with what is wrong, and where it can be told, why.

    Example:
        >>> check("01.1", lambda p_x, q_x: min(1.0, p_x / q_x))
        01.1 The accept rule: right. 1 point.
        >>> check("01.1", lambda p_x, q_x: p_x / q_x)
        Traceback (most recent call last):
        specdec_core.classroom.client.CheckFailed: 01.1 The accept rule: this is p(x)/q(x), which exceeds 1 \
where the target likes x better than the draft does; a probability stops at 1.
    """
    if PLACE in os.environ:
        report = _travel(question, function)
    else:
        from .examiner import examine_here

        report = examine_here(question, function)
    if not report["passed"]:
        raise CheckFailed(report["message"])
    print(report["message"])


def _travel(question: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Carry the examiner's inputs to the function and its answers back; the verdict is made over there."""
    port, token = os.environ[PLACE].split(":")
    with socket.create_connection(("127.0.0.1", int(port))) as connection, connection.makefile("rwb") as stream:
        send(stream, {"token": token, "question": question})
        while True:
            message = receive(stream)
            if "passed" in message:
                return message

            def invoke(handle: list, method: str, arguments: list) -> dict[str, Any]:
                send(stream, {"invoke": [handle, method, arguments]})
                return receive(stream)

            send(stream, perform(function, message, invoke))
