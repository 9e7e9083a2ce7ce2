"""The student's side of an examination: `check`, and the messenger that it is at grading."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from ..base.errors import SpecdecError
from .alone import alone, last_marked, mark, refused
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
        function: the answer. In a notebook the cell that is marked as the answer is run by itself (`alone`), and what
            it defines is examined.

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
        from .questions import find

        name, source = find(question).name, _own_cell(question)
        report = examine_here(question, function if source is None else alone(source, name))
    if not report["passed"]:
        raise CheckFailed(report["message"])
    print(report["message"])


def _cells() -> list[str] | None:
    """The cells that this notebook has run, growing; None outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return None
    cells = list(shell.history_manager.input_hist_raw)
    shell.events.register("pre_run_cell", lambda info: cells.append(info.raw_cell))
    return cells


_CELLS = _cells()


def _own_cell(question: str) -> str | None:
    """The source of the answer's cell; None outside of a notebook, where the function is all that there is."""
    if _CELLS is None:
        return None
    source = last_marked(question, _CELLS)
    if source is None:
        first = mark(question).partition(":")[0]
        raise CheckFailed(f"{question}: no cell that begins with '{first}' has been run; that line marks the answer.")
    if why := refused(source):
        raise CheckFailed(f"{question}: {why}.")
    return source


def _travel(question: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Carry the examiner's inputs to the function and its answers back; the verdict is made over there."""
    port, token = os.environ[PLACE].split(":")
    with socket.create_connection(("127.0.0.1", int(port))) as connection, connection.makefile("rwb") as stream:
        send(stream, {"token": token, "question": question})
        while True:
            message = receive(stream)
            if "passed" in message:
                return message
            if "source" in message:
                function = alone(message["source"], message["name"])
                continue

            def invoke(handle: list, method: str, arguments: list) -> dict[str, Any]:
                send(stream, {"invoke": [handle, method, arguments]})
                return receive(stream)

            send(stream, perform(function, message, invoke))
