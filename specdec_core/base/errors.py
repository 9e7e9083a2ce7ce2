"""The errors this package raises on purpose: one family, so that one `except` catches them.

A message says what came, what was expected and what to do. The command line prints it as it is,
without a traceback, and exits with status 2.
"""


class SpecdecError(RuntimeError):
    """Anything that a user of the package can put right.

    Example:
        >>> issubclass(ModelError, SpecdecError)
        True
    """


class TextError(SpecdecError, ValueError):
    """Text that is not Unicode: half of a surrogate pair, or bytes that were not UTF-8."""


class ModelError(SpecdecError):
    """A model that could not be fetched, read, or run: offline, corrupt, unknown, refused."""


class UnsupportedModel(ModelError):
    """A model whose cache cannot be rewound, or whose attention cannot be replaced."""


class BrokenLogits(ModelError):
    """Logits of which none is the largest finite one: NaN, infinity, or minus infinity for every token."""


class ContextLimitError(SpecdecError):
    """A prompt that leaves no room for a new token."""


class SharedCacheError(SpecdecError):
    """A step of one text in a cache that another text has been read into since."""


class DraftError(SpecdecError):
    """A drafter that broke its contract: a wrong root, a tree over budget, a token outside the vocabulary."""
