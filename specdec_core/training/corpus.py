"""The stored conversations, as training reads them: rows of tokens, roles and hidden states, in a seeded order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from ..base.errors import SpecdecError
from .selfchat import ANSWER, LOOP, USER

HELD_OUT = 16  # one conversation in so many is never trained on


@dataclass(frozen=True)
class Batch:
    """Some conversations side by side.

    Attributes:
        tokens: (B, L) int64.
        roles: (B, L) uint8; see `selfchat`.
        hidden: (B, L, D) the target's states after each token.
        greedy: (B,) bool: answered greedily, so that each answer token is the target's best.
    """

    tokens: torch.Tensor
    roles: torch.Tensor
    hidden: torch.Tensor
    greedy: torch.Tensor

    def weights(self, shift: int, users: float = 0.25) -> torch.Tensor:
        """(B, L) float: how much the token ``shift`` places on counts: an answer's 1, a user's ``users``, others 0."""
        table = torch.zeros(4)
        table[ANSWER], table[USER] = 1.0, users
        ahead = torch.zeros_like(self.roles)
        ahead[:, : self.roles.shape[1] - shift] = self.roles[:, shift:]
        return table.to(self.hidden.device)[ahead.long()]


class Corpus:
    """The waves in a folder.

    Args:
        folder: of ``wave-000.safetensors`` and so on.
        waves: the first so many only; all by default.

    Raises:
        SpecdecError: if there is none, or waves of different lengths.
    """

    def __init__(self, folder: Path, waves: int | None = None):
        self.paths = sorted(folder.glob("wave-*.safetensors"))[:waves]
        if not self.paths:
            raise SpecdecError(f"no conversations in {folder}; write some with: specdec train selfchat")
        self._files = [safe_open(path, "pt") for path in self.paths]
        self._slices = [file.get_slice("hidden") for file in self._files]
        parts = {name: [file.get_tensor(name) for file in self._files] for name in ("tokens", "roles", "temperature")}
        if len({part.shape[1] for part in parts["tokens"]}) > 1:
            raise SpecdecError(f"the waves in {folder} differ in length; keep those of one run only")
        self.tokens, self.roles = torch.cat(parts["tokens"]), torch.cat(parts["roles"])
        self.temperature = torch.cat(parts["temperature"])
        self._first = np.cumsum([0] + [len(part) for part in parts["tokens"]])
        for row, start, end in repeated_turns(self.tokens, self.roles):
            self.roles[row, start:end] = LOOP

    @cached_property
    def held_out(self) -> np.ndarray:
        """Rows that no training sees."""
        return np.arange(HELD_OUT - 1, len(self.tokens), HELD_OUT)

    @cached_property
    def measured(self) -> np.ndarray:
        """The held-out rows that were answered greedily: on these, acceptance is counted."""
        return self.held_out[self.temperature[self.held_out].numpy() == 0]

    @cached_property
    def training(self) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.tokens)), self.held_out)

    def batch(self, rows: np.ndarray, device: torch.device | str = "cpu") -> Batch:
        """These conversations; their hidden states are read from disk now."""
        hidden = []
        for row in rows:
            part = int(np.searchsorted(self._first, row, "right")) - 1
            start = int(row - self._first[part])
            hidden.append(self._slices[part][start : start + 1])
        rows = torch.from_numpy(np.asarray(rows))
        tokens, roles, greedy = self.tokens[rows].long(), self.roles[rows], self.temperature[rows] == 0
        return Batch(tokens.to(device), roles.to(device), torch.cat(hidden).to(device), greedy.to(device))

    def order(self, size: int, seed: int) -> Iterator[np.ndarray]:
        """Batches of ``size`` training rows for ever: every row once an epoch, in an order drawn from ``seed``."""
        rng = np.random.default_rng(seed)
        while True:
            shuffled = rng.permutation(self.training)
            for start in range(0, len(shuffled) - size + 1, size):
                yield np.sort(shuffled[start : start + size])

    def frequencies(self, vocab_size: int) -> np.ndarray:
        """(V,) how often each token was written, in the rows that are trained on, by either side."""
        tokens, roles = self.tokens[self.training], self.roles[self.training]
        return np.bincount(tokens[(roles == ANSWER) | (roles == USER)].numpy(), minlength=vocab_size)

    def statistics(self) -> dict[str, float]:
        """What the text is like: counts, lengths of turns, distinct n-grams of the answers, loops dropped."""
        answers, users = (list(turns(self.tokens, self.roles, role)) for role in (ANSWER, USER))
        texts = [self.tokens[row, start:end].tolist() for row, start, end in answers]
        found: dict[str, float] = {
            "conversations": len(self.tokens),
            "held_out": len(self.held_out),
            "answer_tokens": int((self.roles == ANSWER).sum()),
            "user_tokens": int((self.roles == USER).sum()),
            "dropped_tokens": int((self.roles == LOOP).sum()),
            "answers": len(answers),
            "answer_length_median": _median_length(answers),
            "user_turns": len(users),
            "user_length_median": _median_length(users),
            "greedy_share": float((self.temperature == 0).float().mean()),
        }
        for n in (1, 2, 3):
            grams = Counter(tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1))
            found[f"distinct_{n}"] = len(grams) / max(1, grams.total())
        return found


def _median_length(found: list[tuple[int, int, int]]) -> float:
    return float(np.median([end - start for _, start, end in found])) if found else 0.0


def turns(tokens: torch.Tensor, roles: torch.Tensor, role: int) -> Iterator[tuple[int, int, int]]:
    """(row, start, end) of each stretch of one role."""
    for row, line in enumerate((roles == role).numpy()):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.view(np.int8), [0]])))
        for start, end in edges.reshape(-1, 2):
            yield row, int(start), int(end)


def repeated_turns(tokens: torch.Tensor, roles: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """Answers of eight tokens and more that were given before, word for word, in an earlier place."""
    seen = set()
    for row, start, end in turns(tokens, roles, ANSWER):
        text = tuple(tokens[row, start:end].tolist())
        if len(text) >= 8 and text in seen:
            yield row, start, end
        seen.add(text)
