"""Datastores for REST: a corpus of token ids with its suffix array, on disk, memory-mapped."""

from .files import DatastoreError, TokenizerId, identify, place, read_header
from .store import Match, SuffixStore

__all__ = ["DatastoreError", "Match", "SuffixStore", "TokenizerId", "identify", "place", "read_header"]
