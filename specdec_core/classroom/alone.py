"""One rule at home and at grading: an answer is one cell of plain Python, and runs by itself.

`check` and the grader take the source of that cell, never the notebook around it. They run it in a fresh namespace
in which there is numpy as ``np``, and examine what it defines. So what passes in one place passes in the other, and
what is missing in the cell is missing in both.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import re
from collections.abc import Callable, Iterable
from typing import Any

OWN_CELL = "an answer runs by itself: its imports and helpers go into its own cell"
_MARK = re.compile(r"\s*# Answer (\d\d\.\d)\b")
_OURS = re.compile(r"specdec_core(\.\w+)*")
_DOOR = "specdec_core.classroom"  # that of `check`, the one thing an answer may import from here


def mark(question: str) -> str:
    """The first line of an answer's cell, by which `check` and the grader know it."""
    return f"# Answer {question}: imports and helpers go into this cell, too"


def marked(source: str) -> str:
    """The question that a cell says it answers; empty if it says nothing.

    Example:
        >>> marked(mark("01.2")), marked("x = 1  # Answer 01.2")
        ('01.2', '')
    """
    found = _MARK.match(source)
    return found[1] if found else ""


def last_marked(question: str, cells: Iterable[str]) -> str | None:
    """The last of these cells that is marked as the answer to a question."""
    return next((source for source in reversed(list(cells)) if marked(source) == question), None)


def refused(source: str) -> str:
    """Why a cell can be no answer, in words; empty if it can.

    Example:
        >>> refused("!pip install numpy\\nf = max")
        "'!pip install numpy' is for the notebook, and an answer is Python alone; put it into another cell"
        >>> refused("from specdec_core.core import rules")
        'it uses specdec_core.core; an answer is written, not taken from the package'
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        for line in source.splitlines():
            if line.strip()[:1] in ("!", "%", "?"):
                about = "is for the notebook, and an answer is Python alone; put it into another cell"
                return f"'{line.strip()[:60]}' {about}"
        return ""  # running it says what is wrong
    for node in nodes:
        for name in _named(node):
            if _OURS.fullmatch(name) and name != _DOOR:
                return f"it uses {name}; an answer is written, not taken from the package"
    return ""


def _named(node: ast.AST) -> list[str]:
    """Modules that a piece of code names, in an import or as a text."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def alone(source: str, name: str) -> Callable[..., Any]:
    """What a cell defines under this name when it is run by itself; if that fails, a function that fails so.

    Example:
        >>> alone("def twice(x):\\n    return np.add(x, x).item()", "twice")(3)
        6
        >>> alone("def f(x):\\n    return helper(x)", "f")(3)
        Traceback (most recent call last):
        NameError: name 'helper' is not defined
    """
    import numpy as np

    space: dict[str, Any] = {"__name__": "__main__", "np": np}
    space["__builtins__"] = {**vars(builtins), "__import__": _import}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it was printed when the cell itself was run
            exec(compile(source, "<answer>", "exec"), space)
        if name not in space:
            raise NameError(f"the cell of the answer does not define {name}")
        return space[name]
    except Exception as error:
        failure = error

    def failed(*arguments: Any) -> Any:
        raise failure

    return failed


def _import(name: str, *rest: Any, **named: Any) -> Any:
    if _OURS.fullmatch(name) and name != _DOOR:
        raise ImportError(f"an answer is written, not taken from the package: {name}")
    return builtins.__import__(name, *rest, **named)
