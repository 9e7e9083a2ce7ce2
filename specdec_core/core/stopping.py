"""When a generation ends: stop tokens, stop strings, length limits. The only place that knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex

import torch

from ..base.arguments import ids, whole
from ..base.arguments import text as checked_text

_WHOLE = 8  # tokens that the bytes of one character may be spread over; more are bytes that never become one


class Decoder(Protocol):
    """What stop strings need of a tokenizer."""

    def decode(self, token_ids: Any, **options: Any) -> Any: ...


@dataclass(frozen=True)
class Stop:
    """What ends a generation besides its length.

    Attributes:
        tokens: ids that end it; the stop token itself is emitted. Empty: none does.
        strings: texts that end it; the text ends before them, and no token that reaches into one is emitted.
        tokenizer: decodes tokens for ``strings``.
        special: id -> the stop string that is this special token, which decoded text never shows.

    Raises:
        ValueError: for ids that are no whole numbers >= 0, strings without a tokenizer, an empty string, or one that
            holds a special token and more.

    Example:
        >>> Stop(tokens=7).tokens
        frozenset({7})
    """

    tokens: frozenset[int]
    strings: tuple[str, ...]
    tokenizer: Decoder | None
    special: dict[int, str]

    def __init__(
        self,
        tokens: Iterable[SupportsIndex] | SupportsIndex | None = None,
        strings: Iterable[str] | str = (),
        tokenizer: Decoder | None = None,
    ):
        ends = () if tokens is None else _ends(tokens)
        texts = (strings,) if isinstance(strings, str) else tuple(strings)
        for text in texts:
            checked_text("a stop string", text)
        if texts and tokenizer is None:
            raise ValueError("stop strings are compared with text: pass the tokenizer that decodes it")
        if "" in texts:
            raise ValueError("an empty stop string would end every generation at once; leave it out")
        unseen = _special_tokens(tokenizer) if texts else {}
        special = {id: token for id, token in unseen.items() if token in texts}
        for text in set(texts) - set(special.values()):
            if mixed := [token for token in unseen.values() if token in text]:
                raise ValueError(
                    f"the stop string {text!r} holds the special token {mixed[0]!r}, which decoded text never shows; "
                    f"make {mixed[0]!r} a stop string of its own, or pass its id as a stop token"
                )
        shown = tuple(text for text in texts if text not in special.values())
        vars(self).update(tokens=frozenset(ends), strings=shown, tokenizer=tokenizer, special=special)

    def watch(self) -> Watch:
        """A fresh watch over one generation."""
        return Watch(self)


def _ends(tokens: Iterable[SupportsIndex] | SupportsIndex) -> list[int]:
    """One id or several, of whatever kind of whole number."""
    several = isinstance(tokens, Iterable) and getattr(tokens, "shape", None) != ()
    return ids("tokens", tokens) if several else [whole("tokens", tokens, 0)]


def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """The tokens of a tokenizer of transformers that decoding skips, by id; none for anything simpler."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {id: token.content for id, token in added.items() if token.special}


@dataclass(frozen=True)
class HeldBack:
    """A processor (see `Sampling`) under which stop tokens are impossible while the text is short.

    Attributes:
        tokens: ids; what is not in the vocabulary is never drawn anyway.
        length: tokens, prompt included, that the text must have before one of them.

    Example:
        >>> HeldBack(frozenset({1}), 3)(torch.tensor([[5, 5]]), torch.zeros(1, 3)).tolist()
        [[0.0, -inf, 0.0]]
    """

    tokens: frozenset[int]
    length: int

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] >= self.length:
            return scores
        known = [token for token in self.tokens if token < scores.shape[1]]
        return scores.index_fill(1, torch.tensor(known, dtype=torch.int64), -torch.inf)


class Watch:
    """Follows one generation token by token and says where it ends.

    The text grows by the few tokens whose characters are not complete yet, never by decoding all of it again, so that
    the time per token does not depend on the length of the answer.
    """

    def __init__(self, stop: Stop):
        self._stop, self.ends = stop, stop.tokens
        self._tokens: list[int] = []
        self._text = ""  # of the first `_read` tokens, whose characters are complete
        self._start = self._read = 0  # the window that is decoded: a token's text may depend on the one before it
        self._searched = 0  # no stop string begins before this place of the text
        self._reach = max(map(len, stop.strings), default=1) - 1  # characters that a string may begin before new ones
        self.reason: str | None = None
        self.text_end: int | None = None

    def keep(self, tokens: Sequence[int], remaining: int) -> int:
        """How many of the verdict's ``tokens`` to keep (at least 1); sets ``reason`` if the generation ends.

        Example:
            >>> watch = Stop(tokens=[9]).watch()
            >>> watch.keep([4, 9, 5], remaining=8), watch.reason
            (2, 'stop_token')
        """
        for kept, token in enumerate(tokens, start=1):
            self._tokens.append(int(token))
            if self._found_string(int(token)):
                self.reason = "stop_string"
            elif token in self._stop.tokens:
                self.reason = "stop_token"
            elif kept == remaining:
                self.reason = "length"
            if self.reason:
                return kept
        return len(tokens)

    def finish(self) -> tuple[list[int], str | None]:
        """The tokens that may be shown, and the text (None if no tokenizer is at hand).

        After a stop string, tokens that reach into it are dropped; the text keeps what precedes it, even where
        it ends inside a token.
        """
        if self._stop.tokenizer is None:
            return list(self._tokens), None
        text = self._decode(self._tokens)[: self.text_end]
        if self.text_end is None:
            return list(self._tokens), text
        kept = len(self._tokens)
        if self._tokens[-1] in self._stop.special:
            kept -= 1  # it has no characters that could reach beyond the end
        while kept and len(self._decode(self._tokens[:kept])) > self.text_end:
            kept -= 1
        return self._tokens[:kept], text

    def released(self) -> str:
        """Text that no later token can take back: without the beginning of a possible stop string, and
        without a trailing character whose bytes are not complete yet."""
        pending = self._grow()
        text = (self._text + pending)[: self.text_end]
        if self.text_end is not None or self.reason is not None:
            return text
        text = text.rstrip("\ufffd")
        return text[: len(text) - max((_overlap(text, string) for string in self._stop.strings), default=0)]

    def _found_string(self, token: int) -> bool:
        special = token in self._stop.special
        if not (special or self._stop.strings):
            return False
        pending = self._grow()
        if special:
            self.text_end = len(self._text) + len(pending)
            return True
        unsearched = self._text[self._searched :] + pending
        starts = [start for string in self._stop.strings if (start := unsearched.find(string)) >= 0]
        if starts:
            self.text_end = self._searched + min(starts)
            return True
        self._searched = max(self._searched, len(self._text) - self._reach)
        return False

    def _grow(self) -> str:
        """Add what has become complete to the text; returns the text of the tokens that have not."""
        if self._read == len(self._tokens):
            return ""
        window = self._tokens[self._start :]
        before = len(self._decode(window[: self._read - self._start]))
        fresh = self._decode(window)[before:]
        if fresh.endswith("\ufffd") and len(self._tokens) - self._read < _WHOLE:
            return fresh
        self._text += fresh
        self._start, self._read = self._read, len(self._tokens)
        return ""

    def _decode(self, tokens: Sequence[int]) -> str:
        assert self._stop.tokenizer is not None
        return self._stop.tokenizer.decode(list(tokens), skip_special_tokens=True)


def _overlap(text: str, string: str) -> int:
    """Length of the longest end of ``text`` that begins ``string``."""
    return max((n for n in range(1, len(string)) if text.endswith(string[:n])), default=0)
