"""Drafters: one file a family. A new method is a new file and a line in `methods.REGISTRY`."""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".": ["weights"],
        "..core.contract": ["Budget", "Drafter", "DrafterBase", "NullDrafter"],
        ".adaptive": ["Adaptive"],
        ".cascade": ["Cascade"],
        ".draft_model": ["DraftModel"],
        ".eagle": ["EAGLE"],
        ".jacobi": ["Jacobi"],
        ".lookahead": ["Lookahead"],
        ".medusa": ["Medusa"],
        ".methods": [
            "BASELINE", "REGISTRY", "Context", "MethodError", "build", "check", "drafter_class", "settings", "split",
        ],
        ".mtp": ["MTP"],
        ".ngram": ["NGramDictionary"],
        ".prompt_lookup": ["PromptLookup"],
        ".rest": ["REST"],
        ".suffix_decoding": ["SuffixDecoding"],
        ".weights": ["SHIPPED", "ablations", "read_card", "shipped"],
    },
)
