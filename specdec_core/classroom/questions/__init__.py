"""The examiners, one module for each chapter. Never loaded in a process that runs a submission."""

from __future__ import annotations

import importlib
import pkgutil

from ...base.errors import SpecdecError
from ..question import Question


def find(question: str) -> Question:
    """A question by its id.

    Raises:
        SpecdecError: if there is none of that id.

    Example:
        >>> find("01.2").name
        'residual'
    """
    chapters = sorted(module.name for module in pkgutil.iter_modules(__path__))
    name = f"ch{str(question).partition('.')[0]}"
    if name in chapters:
        for known in importlib.import_module(f".{name}", __package__).QUESTIONS:
            if known.id == question:
                return known
    raise SpecdecError(f"there is no question {question!r}; a question is a chapter and a number, such as '01.2'.")


def everything() -> list[Question]:
    """All questions, in order."""
    chapters = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [q for name in chapters for q in importlib.import_module(f".{name}", __package__).QUESTIONS]
