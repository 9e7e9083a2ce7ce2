"""A model that is ready to run, with all that a record of a run has to say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..base.records import file_hash
from ..core.stopping import Stop
from . import manifest
from .chat import Tokenizer, encode


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model of transformers and its tokenizer; `loading.load` makes one.

    Attributes:
        model: in eval mode, needing no gradient.
        tokenizer: its vocabulary may be smaller or larger than the model's.
        name: as it was asked for.
        path: the folder that holds its files, or its GGUF file.
        why: one sentence: what was chosen, and why.
        stop_ids: token ids that end an answer; may be empty.
        parameters: each counted once, as loaded: an execution may free the model's own matrices.
    """

    model: PreTrainedModel
    tokenizer: Tokenizer
    name: str
    path: Path
    dtype: torch.dtype
    device: torch.device
    why: str
    stop_ids: frozenset[int]
    parameters: int

    @property
    def label(self) -> str:
        """The model's name for a title: its folder's or file's, or the name by which a hub knows it."""
        return self.path.name if self.name == "default" or self.path.name == Path(self.name).name else self.name

    @property
    def stop(self) -> Stop:
        """What ends an answer of this model: `stop_ids`. Its tokenizer decodes the text."""
        return Stop(self.stop_ids, tokenizer=self.tokenizer)

    def encode(self, turns: str | Sequence[str], system: str | None = None, answers: Sequence[str] = ()) -> list[int]:
        """The token ids of a question, or of a conversation up to the next answer; see `chat.encode`."""
        return encode(turns, self.tokenizer, system, answers)

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)

    @cached_property
    def weights_hash(self) -> str:
        """The sha256 of the stored weights: see `manifest.weights_hash`. Of a GGUF file: that of the file.

        Taken from the folder's record where there is one, otherwise computed at the first use
        (about a second per gigabyte).
        """
        if self.path.is_file():
            return file_hash(self.path)
        if (self.path / manifest.MANIFEST).is_file() and "sha256" in (record := manifest.read(self.path)):
            return record["weights_sha256"]
        return manifest.weights_hash(self.path)
