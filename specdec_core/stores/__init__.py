"""Memories of text: datastores for REST (token ids with their suffix array, memory-mapped), and trees that grow."""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".": ["bench"],
        ".files": ["DatastoreError", "TokenizerId", "identify", "place", "read_header"],
        ".store": ["Match", "SuffixStore"],
        ".suffix_memory": ["GrowingText", "PastTexts"],
        ".suffix_tree": ["as_text"],
        ".texts": ["code_files", "read_texts", "tokenized"],
    },
)
