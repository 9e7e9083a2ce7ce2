"""transformers' own generation as contestants of a race: greedy, with prompt lookup, and with a draft model.

The weights, dtype, threads, prompts, stop ids and limit are ours; attention, cache and loop are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from ..drafters import methods
from ..model.loaded import LoadedModel
from .rounds import Contestant

PREFIX = "transformers:"


def contestants(loaded: LoadedModel, ours: Sequence[str] = ()) -> dict[str, TransformersPeer]:
    """The peer's methods by name.

    Prompt lookup gets the number of tokens and the longest n-gram of our first prompt lookup in the race, or our
    defaults; transformers has no other settings for it. Where a draft model of ours is in the race, so is
    `AssistedPeer`, with the weights and the number of tokens of the first one.

    Args:
        loaded: the model, and what ends its answers.
        ours: the methods of ours in the race.
    """
    same = next((name for name in ours if methods.parse(name)[0] == "prompt_lookup"), "prompt_lookup")
    settings = methods.settings(same)
    lookup = TransformersPeer(
        loaded, prompt_lookup_num_tokens=settings["num_tokens"], max_matching_ngram_size=settings["max_n"]
    )
    found = {PREFIX + "greedy": TransformersPeer(loaded), PREFIX + "prompt_lookup": lookup}
    if drafting := next((name for name in ours if methods.parse(name)[0] == "draft_model"), None):
        found[PREFIX + "assisted"] = AssistedPeer(loaded, methods.settings(drafting))
    return found


class TransformersPeer(Contestant):
    """One way in which transformers' ``generate`` decodes greedily.

    Args:
        loaded: the model, and what ends its answers.
        fields: further ones of `transformers.GenerationConfig`.
    """

    def __init__(self, loaded: LoadedModel, **fields: Any):
        self.model, self.stop_ids, self._fields = loaded.model, sorted(loaded.stop_ids), fields

    @property
    def settings(self) -> dict[str, Any]:
        attention = self.model.config._attn_implementation
        return {**self._fields, "attention": attention, "other": "transformers' defaults"}

    def more(self) -> dict[str, Any]:
        """Further arguments of ``generate``."""
        return {}

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[list[int], int]:
        """The new tokens (a stop token included), and the forwards of the model that they took.

        transformers' first forward reads the prompt and gives the first token, so it counts. Ours reads the prompt
        without its last token and gives no token, so it does not count: tokens per call mean the same on both sides.
        """
        from transformers import GenerationConfig

        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=self.stop_ids or None,
            pad_token_id=self.stop_ids[0] if self.stop_ids else 0,  # pads nothing; without it there is a warning
            **self._fields,
        )
        ids = torch.tensor([list(prompt_ids)], device=self.model.device)  # (1, L)
        calls: list[None] = []
        hook = self.model.register_forward_pre_hook(lambda *_: calls.append(None))
        # What a config leaves open, generate() takes from the model's own, whose repetition penalty (Qwen's) or
        # smallest length would make it another task.
        own, self.model.generation_config = self.model.generation_config, GenerationConfig()
        try:
            mask = torch.ones_like(ids)
            out = self.model.generate(ids, attention_mask=mask, generation_config=config, **self.more())
        finally:
            self.model.generation_config = own
            hook.remove()
        return out[0, ids.shape[1] :].tolist(), len(calls)


class AssistedPeer(TransformersPeer):
    """transformers' assisted generation with the draft model that one of our methods has.

    It drafts as many tokens per step as ours. transformers needs a draft model with the target's whole vocabulary, so a
    distilled one gets the target's whole head; embedding and head are the target's own matrices.

    Args:
        loaded: the model.
        ours: settings of our method, as in `methods.settings`.
    """

    def __init__(self, loaded: LoadedModel, ours: dict[str, Any]):
        super().__init__(
            loaded,
            num_assistant_tokens=ours["num_tokens"],
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )
        self._ours, self._loaded = ours, loaded

    @cached_property
    def assistant(self) -> Any:
        """The draft model, a causal language model of transformers.

        Raises:
            ModelError: if there is no model of this name, or the weights belong to another target.
        """
        from transformers import GenerationConfig

        from ..drafters import distilled, weights
        from ..model import loading as models

        embedding, head = self.model.get_input_embeddings(), self.model.get_output_embeddings().weight
        if self._ours["model"]:
            assistant = models.load(self._ours["model"], dtype=head.dtype, device=head.device).model
        else:
            known, name = lambda: self._loaded.weights_hash, self._ours["weights"]
            _, tensors, _ = weights.load(name, len(head), known, "distilled draft model", "draft_model")
            assistant = distilled.assemble(self.model.config, tensors, embedding, head)
        assistant.generation_config = GenerationConfig(**self._fields)
        return assistant

    def more(self) -> dict[str, Any]:
        return {"assistant_model": self.assistant}
