"""Weights for the drafters that need some: the target's own text, and one recipe per drafter."""

from ..base.lazy import face

__getattr__, __dir__ = face(__name__, {".selfchat": ["ANSWER", "LOOP"], ".waves": ["TEXT", "documents"]})
