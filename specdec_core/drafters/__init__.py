"""Drafters: one file a family. A new method is a new file and a line in `REGISTRY`."""

from .base import Budget, Drafter, DrafterBase
from .combine import Adaptive, Cascade
from .draft_model import DraftModel
from .jacobi import Jacobi
from .lookahead import Lookahead
from .ngram import NGramDictionary
from .null import NullDrafter
from .prompt_lookup import PromptLookup
from .rest import REST
from .suffix_decoding import SuffixDecoding

# A class with a `build(context, **settings)` is made by it: it needs a datastore, a model or another drafter.
METHODS = (NullDrafter, PromptLookup, NGramDictionary, Jacobi, Lookahead)
METHODS += (REST, SuffixDecoding, DraftModel, Cascade, Adaptive)
REGISTRY = {cls.name: cls for cls in METHODS}

__all__ = [
    "REGISTRY",
    "REST",
    "Adaptive",
    "Budget",
    "Cascade",
    "DraftModel",
    "Drafter",
    "DrafterBase",
    "Jacobi",
    "Lookahead",
    "NGramDictionary",
    "NullDrafter",
    "PromptLookup",
    "SuffixDecoding",
]
