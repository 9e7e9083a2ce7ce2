"""Answers to the questions of the exercises: wrong ones, each with a part of the message meant for it, and right ones
in other forms. All are source code as a student could have typed it, below ``import numpy as np``.
"""

import importlib
import pkgutil

WRONG, RIGHT = {}, {}
for module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    answers = importlib.import_module(f".{module}", __name__)
    WRONG |= answers.WRONG
    RIGHT |= answers.RIGHT
