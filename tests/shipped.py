"""The methods that come with the package, by name: what is asked of each of them need not hold of a contributor's."""

SHIPPED = (
    "autoregressive", "prompt_lookup", "ngram", "jacobi", "lookahead", "rest", "suffix_decoding", "draft_model",
    "medusa", "mtp", "eagle", "cascade", "adaptive",
)  # fmt: skip
