"""Memories of text: datastores for REST (token ids with their suffix array, memory-mapped), and trees that grow."""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".": ["bench"],
        ".build": ["build_store"],
        ".files": ["DatastoreError", "TokenizerId", "identify", "place", "read_header"],
        ".store": ["Match", "SuffixStore"],
        ".suffix_memory": ["GrowingText", "PastTexts"],
        ".suffix_tree": ["SuffixTree", "as_text"],
        ".texts": ["code_files", "files_under", "read_lines", "read_texts", "tokenized"],
    },
)
