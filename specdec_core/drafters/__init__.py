"""Drafters: one file a family. A new method is a new file and a line in `REGISTRY`."""

from .base import Budget, Drafter, DrafterBase
from .jacobi import Jacobi
from .lookahead import Lookahead
from .ngram import NGramDictionary
from .null import NullDrafter
from .prompt_lookup import PromptLookup

REGISTRY = {cls.name: cls for cls in (NullDrafter, PromptLookup, NGramDictionary, Jacobi, Lookahead)}

__all__ = [
    "REGISTRY",
    "Budget",
    "Drafter",
    "DrafterBase",
    "Jacobi",
    "Lookahead",
    "NGramDictionary",
    "NullDrafter",
    "PromptLookup",
]
