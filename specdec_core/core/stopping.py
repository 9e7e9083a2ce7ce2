"""When a generation ends: stop tokens, stop strings, length limits. The only place that knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stop:
    """What ends a generation besides its length.

    Attributes:
        tokens: ids that end it; the stop token itself is emitted. Empty: none does.
        strings: texts that end it; the text ends before them, and no token that reaches into one is emitted.
        tokenizer: decodes tokens for ``strings``; anything with ``decode(ids, skip_special_tokens=...)``.

    Raises:
        ValueError: for strings without a tokenizer, or an empty string.
    """

    tokens: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    tokenizer: object | None = None

    def __init__(self, tokens: Iterable[int] | int | None = None, strings: Iterable[str] | str = (), tokenizer=None):
        ids = () if tokens is None else (tokens,) if isinstance(tokens, int) else tokens
        texts = (strings,) if isinstance(strings, str) else tuple(strings)
        if texts and tokenizer is None:
            raise ValueError("stop strings are compared with text: pass the tokenizer that decodes it")
        if "" in texts:
            raise ValueError("an empty stop string would end every generation at once; leave it out")
        object.__setattr__(self, "tokens", frozenset(int(i) for i in ids))
        object.__setattr__(self, "strings", texts)
        object.__setattr__(self, "tokenizer", tokenizer)

    def watch(self) -> Watch:
        """A fresh watch over one generation."""
        return Watch(self)


class Watch:
    """Follows one generation token by token and says where it ends."""

    def __init__(self, stop: Stop):
        self._stop = stop
        self._tokens: list[int] = []
        self.reason: str | None = None
        self.text_end: int | None = None
        self.held = 0

    def keep(self, tokens: Sequence[int], remaining: int) -> int:
        """How many of the verdict's ``tokens`` to keep (at least 1); sets ``reason`` if the generation ends.

        >>> watch = Stop(tokens=[9]).watch()
        >>> watch.keep([4, 9, 5], remaining=8), watch.reason
        (2, 'stop_token')
        """
        for kept, token in enumerate(tokens, start=1):
            self._tokens.append(int(token))
            if self._found_string():
                self.reason = "stop_string"
            elif token in self._stop.tokens:
                self.reason = "stop_token"
            elif kept == remaining:
                self.reason = "length"
            if self.reason:
                return kept
        return len(tokens)

    def _found_string(self) -> bool:
        if not self._stop.strings:
            return False
        text = self._decode(self._tokens)
        starts = [start for string in self._stop.strings if (start := text.find(string)) >= 0]
        if starts:
            self.text_end = min(starts)
            return True
        # A stop string may begin before a character whose last bytes are still to come.
        whole = text.rstrip("\ufffd")
        self.held = max((_overlap(whole, string) for string in self._stop.strings), default=0)
        return False

    def finish(self) -> tuple[list[int], str | None]:
        """The tokens that may be shown, and the text (None if no tokenizer is at hand).

        After a stop string, tokens that reach into it are dropped; the text keeps what precedes it, even where
        it ends inside a token.
        """
        if self._stop.tokenizer is None:
            return list(self._tokens), None
        if self.text_end is None:
            return list(self._tokens), self._decode(self._tokens)
        text = self._decode(self._tokens)[: self.text_end]
        kept = len(self._tokens)
        while kept and len(self._decode(self._tokens[:kept])) > self.text_end:
            kept -= 1
        return self._tokens[:kept], text

    def released(self) -> str:
        """Text that no later token can take back: without the beginning of a possible stop string, and
        without a trailing character whose bytes are not complete yet."""
        text = self._decode(self._tokens)
        if self.text_end is not None:
            return text[: self.text_end]
        if self.reason is None:
            text = text.rstrip("\ufffd")
            text = text[: len(text) - self.held]
        return text

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._stop.tokenizer.decode(list(tokens), skip_special_tokens=True)


def _overlap(text: str, string: str) -> int:
    """Length of the longest end of ``text`` that begins ``string``."""
    return max((n for n in range(1, len(string)) if text.endswith(string[:n])), default=0)
