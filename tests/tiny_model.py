"""A Llama of two layers with random weights, and a tokenizer with one token a byte, as a model folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdec_core.model.loaded import LoadedModel

END = "<|end|>"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token=END)
    made.chat_template = TEMPLATE
    return made


def model(seed=0, context=4096):
    """300 rows of vocabulary, more than the tokenizer has; float32."""
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.3,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def loaded(model, stop_ids=(), weights_hash="unknown"):
    """What `load` would give of a model."""
    made = LoadedModel(
        model=model,
        tokenizer=tokenizer(),
        name="tiny",
        path=Path("tiny"),
        dtype=torch.float32,
        device=torch.device("cpu"),
        why="made by a test",
        stop_ids=frozenset(stop_ids),
        parameters=1,
    )
    vars(made)["weights_hash"] = weights_hash
    return made


def save(folder, **options):
    """Write both as transformers does; returns the folder."""
    model(**options).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
