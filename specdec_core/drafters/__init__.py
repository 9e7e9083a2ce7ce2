"""Drafters: one file a family. A new method is a new file and a line in `REGISTRY`."""

from .base import Budget, Drafter, DrafterBase
from .combine import Adaptive, Cascade
from .draft_model import DraftModel
from .eagle import EAGLE
from .jacobi import Jacobi
from .lookahead import Lookahead
from .medusa import Medusa
from .mtp import MTP
from .ngram import NGramDictionary
from .null import NullDrafter
from .prompt_lookup import PromptLookup
from .rest import REST
from .suffix_decoding import SuffixDecoding

# A class with a `build(context, **settings)` is made by it: it needs a datastore, a model or another drafter.
METHODS = (NullDrafter, PromptLookup, NGramDictionary, Jacobi, Lookahead)
METHODS += (REST, SuffixDecoding, DraftModel, Medusa, MTP, EAGLE, Cascade, Adaptive)
REGISTRY = {cls.name: cls for cls in METHODS}

__all__ = [
    "EAGLE",
    "MTP",
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
    "Medusa",
    "NGramDictionary",
    "NullDrafter",
    "PromptLookup",
    "SuffixDecoding",
]
