"""Tiny random float64 models of many architectures, with windows and groups that a short text already exercises."""

from functools import cache

import torch
import transformers as hf

VOCAB, LIMIT, WINDOW = 61, 96, 5
LLAMA = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=LIMIT, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
GPT2 = dict(vocab_size=VOCAB, n_positions=LIMIT, n_embd=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)
GEMMA = {**LLAMA, "head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 8}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]

# name -> (configuration, its options)
MODELS = {
    "llama": (hf.LlamaConfig, LLAMA),
    "qwen2": (hf.Qwen2Config, LLAMA),
    "qwen3": (hf.Qwen3Config, {**LLAMA, "head_dim": 8}),
    "gpt2": (hf.GPT2Config, GPT2),
    "gemma": (hf.GemmaConfig, {**LLAMA, "head_dim": 8}),
    # transformers caps the scores of Gemma 2 in its eager attention only, in some versions.
    "gemma2": (hf.Gemma2Config, {**GEMMA, "attn_implementation": "eager"}),
    "gemma3": (hf.Gemma3TextConfig, {**GEMMA, "layer_types": MIXED}),
    "phi": (hf.PhiConfig, {**LLAMA, "num_key_value_heads": 4}),
    "phi3": (hf.Phi3Config, LLAMA),
    "mistral": (hf.MistralConfig, {**LLAMA, "sliding_window": WINDOW}),
}


@cache
def tiny(name, **changes):
    """One of `MODELS`. Its weights are wide enough that a token depends on all tokens before it."""
    config, options = MODELS[name]
    return randomized(hf.AutoModelForCausalLM.from_config(config(**{**options, **changes})))


def randomized(model):
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return model.double().eval()


@torch.no_grad()
def plain_logits(model, ids):
    """(V,) logits after ``ids``, by the model's own forward over the whole text."""
    return model(torch.tensor([list(ids)])).logits[0, -1]
