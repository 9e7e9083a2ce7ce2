"""From a GGUF file of the Llama family to an ordinary transformers folder.

transformers can read GGUF itself, and a test checks that both ways give the same numbers. We do it
here, in one screen, because the folder must be the same whatever is installed: transformers writes
`config.json` and `tokenizer_config.json` in the dialect of its own version (one that an older one
misreads without a word: the base of the rotary embedding moved), refuses to save a model it has
read from GGUF, and takes the tokenizer for GPT-2's, which splits numbers and spaces differently.

Nothing here imports torch or transformers, so converting needs no more memory than the weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specdec_core.base.errors import ModelError
from specdec_core.model.gguf_file import read, smollm_splits

WEIGHTS = "model.safetensors"

# GGUF's names for the tensors of a Llama-family model, and transformers'.
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # the value of `tokenizer.ggml.token_type` for a special token


def tensor_name(gguf_name: str) -> str:
    """The name transformers gives to one GGUF tensor of a Llama-family model.

    Example:
        >>> tensor_name("blk.3.attn_q.weight")
        'model.layers.3.self_attn.q_proj.weight'
        >>> tensor_name("token_embd.weight")
        'model.embed_tokens.weight'
    """
    stem, _, kind = gguf_name.rpartition(".")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{kind}"
    block, layer, part = (stem.split(".", 2) + ["", ""])[:3]
    if block != "blk" or part not in _IN_LAYER:
        raise ModelError(
            f"The GGUF file has a tensor {gguf_name!r}; expected those of a Llama-family model. "
            "Use a transformers folder or a hub name for models of other families."
        )
    return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}"


def interleave_to_halves(weight: Any, heads: int) -> Any:
    """Undo llama.cpp's row order of a query or key projection, (heads * d, D) -> (heads * d, D).

    Rotary embeddings turn pairs of coordinates. llama.cpp stores the two of a pair side by side
    (0, d/2, 1, d/2 + 1, ...), transformers in two halves (0, 1, ..., d/2, d/2 + 1, ...).

    Example:
        One head of four rows, whose pairs are (0, 1) and (2, 3) when read in two halves.

        >>> import numpy as np
        >>> interleave_to_halves(np.array([[0], [1], [2], [3]]), heads=1).ravel().tolist()
        [0, 2, 1, 3]
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def convert(gguf: Path, folder: Path) -> None:
    """Write `folder` (config, tokenizer with its chat template, float32 weights) from a GGUF file.

    The weights are the dequantized values, unrounded: float32 holds every `scale * q + minimum`
    exactly as GGUF's own reference computes it. The folder is made by the caller.

    Raises:
        ModelError: the file is no GGUF, or describes a model of another family.
        OSError, SafetensorError: the folder cannot be written to.
    """
    from gguf.quants import dequantize
    from safetensors.numpy import save_file

    reader, fields = read(gguf)
    if (family := fields.get("general.architecture")) != "llama":
        raise ModelError(f"{gguf} holds a model of family {family!r}; expected 'llama'.")
    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype("float32", copy=False)
        if (part := tensor.name.split(".")[-2]) in heads:
            weight = interleave_to_halves(weight, heads[part])
        weights[tensor_name(tensor.name)] = weight
    tied = "lm_head.weight" not in weights
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    _write(folder / "config.json", _config(fields, len(weights["model.embed_tokens.weight"]), tied))
    _write(folder / "generation_config.json", _special_ids(fields))
    _write_tokenizer(folder, fields)


def _config(fields: dict[str, Any], vocab_size: int, tied: bool) -> dict[str, Any]:
    """`config.json` in the form that every transformers from 4.0 to 5 reads alike."""
    width, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab_size, "hidden_size": width,
        "intermediate_size": fields["llama.feed_forward_length"], "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads, "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": width // heads, "hidden_act": "silu", "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"], "rope_theta": fields["llama.rope.freq_base"],
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": tied, "torch_dtype": "float32",
        **_special_ids(fields),
    }


def _special_ids(fields: dict[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"], "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def _write_tokenizer(folder: Path, fields: dict[str, Any]) -> None:
    """A byte-level BPE in which each digit stands alone, as SmolLM's does (GGUF: `pre = smollm`)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    kind = (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ModelError(f"The GGUF file has a tokenizer of kind {kind}; expected ('gpt2', 'smollm').")
    tokens, ids = fields["tokenizer.ggml.tokens"], _special_ids(fields)
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = smollm_splits()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
    special = [token for token, kind in kinds if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": tokens[ids["bos_token_id"]],
        "eos_token": tokens[ids["eos_token_id"]], "pad_token": tokens[ids["pad_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]], "additional_special_tokens": special,
        "model_max_length": fields["llama.context_length"], "clean_up_tokenization_spaces": False,
        "chat_template": fields["tokenizer.chat_template"],
    }
    _write(folder / "tokenizer_config.json", config)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
