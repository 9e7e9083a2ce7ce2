"""A chat model small enough to talk to itself in a test: a tiny Llama, and a tokenizer of letters with a template."""

import random
from pathlib import Path

import torch
from tiny_models import tiny

from specdec_core.model.loaded import LoadedModel
from specdec_core.training import waves
from specdec_core.training.corpus import Corpus

MARKS = "<>us"  # end of turn, begin of turn, user, system
LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.@"


class Letters:
    """One id a character; turns look like ``>u...<`` and ``>s...<``."""

    chat_template = "letters"
    name_or_path = "letters"
    alphabet = MARKS + LETTERS
    all_special_ids = list(range(len(MARKS)))

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [self.alphabet.index(letter) if letter in self.alphabet else 60 for letter in text]}

    def get_vocab(self):
        return {letter: index for index, letter in enumerate(self.alphabet)}

    def decode(self, ids, skip_special_tokens=False):
        return "".join(self.alphabet[i] if i < len(self.alphabet) else "?" for i in ids)

    def apply_chat_template(self, messages, tokenize=False, add_generation_prompt=True):
        return "".join(f">{'u' if m['role'] == 'user' else 's'}{m['content']}<" for m in messages) + ">s"


def chat_model(dtype=torch.float32):
    """What `load` would return for it."""
    model = tiny("llama", max_position_embeddings=256)
    model = type(model)(model.config).to(dtype).eval().requires_grad_(False)
    weights = tiny("llama", max_position_embeddings=256).state_dict()
    model.load_state_dict({name: value.to(dtype) for name, value in weights.items()})
    why, device, parameters = f"{dtype} on cpu.", torch.device("cpu"), sum(p.numel() for p in model.parameters())
    loaded = LoadedModel(model, Letters(), "tiny", Path("tiny"), dtype, device, why, frozenset([0]), parameters)
    vars(loaded)["weights_hash"] = "tiny"  # it has no files
    return loaded


def corpus(folder, loaded, answer_tokens=900, rows=16, length=72):
    """Conversations of the tiny model, written into the folder."""
    random.seed(0)
    waves.write(loaded, folder, answer_tokens, rows, length, quiet=True)
    return Corpus(folder)
