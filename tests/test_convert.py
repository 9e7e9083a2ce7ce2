"""The converted folder against transformers' own reader of GGUF files, and the tokenizer's splits."""

import json

import numpy as np
import pytest
import tiny_gguf
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_core.base.errors import ModelError
from specdec_core.model import fetch, manifest
from specdec_core.model.convert import convert


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(folder with tiny.gguf, the same converted by us)"""
    folder = tmp_path_factory.mktemp("gguf")
    tiny_gguf.make_source(folder)
    return folder, folder / "converted"


def test_weights_and_logits_are_those_of_transformers_own_reader(folders):
    theirs = AutoModelForCausalLM.from_pretrained(folders[0], gguf_file="tiny.gguf", dtype=torch.float32)
    ours = AutoModelForCausalLM.from_pretrained(folders[1], dtype=torch.float32)
    a, b = ours.state_dict(), theirs.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    ids = torch.arange(3, 23).unsqueeze(0)
    with torch.inference_mode():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_rows_of_query_heads_are_moved_and_no_others(folders):
    """Without the move the model runs and is wrong; so the test looks at the rows themselves."""
    import gguf
    from safetensors.numpy import load_file

    stored = {t.name: t for t in gguf.GGUFReader(folders[0] / "tiny.gguf").tensors}
    ours = load_file(folders[1] / "model.safetensors")
    raw = stored["blk.0.attn_q.weight"]
    query = gguf.quants.dequantize(raw.data, raw.tensor_type)
    size = tiny_gguf.WIDTH // tiny_gguf.HEADS
    moved = ours["model.layers.0.self_attn.q_proj.weight"]
    for head in range(tiny_gguf.HEADS):
        for row in range(size):
            source = 2 * row if row < size // 2 else 2 * (row - size // 2) + 1
            assert np.array_equal(moved[head * size + row], query[head * size + source])
    raw = stored["blk.0.attn_v.weight"]
    value = gguf.quants.dequantize(raw.data, raw.tensor_type)
    assert np.array_equal(ours["model.layers.0.self_attn.v_proj.weight"], value)


def test_config_says_the_rotary_base_in_words_that_every_transformers_reads(folders):
    config = json.loads((folders[1] / "config.json").read_text())
    assert config["rope_theta"] == 100_000.0
    model = AutoModelForCausalLM.from_pretrained(folders[1])
    size = tiny_gguf.WIDTH // tiny_gguf.HEADS
    expected = 100_000.0 ** (-torch.arange(0, size, 2) / size)
    assert torch.allclose(model.model.rotary_emb.inv_freq, expected)


@pytest.fixture(scope="module")
def default_tokenizer():
    return AutoTokenizer.from_pretrained(fetch.fetch())


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("12 345", ["1", "2", "Ġ", "3", "4", "5"]),
        ("a\n\n  1\n", ["a", "ĊĊĠĠ", "1", "Ċ"]),
        ("<|im_start|>user\nHi<|im_end|>", ["<|im_start|>", "user", "Ċ", "Hi", "<|im_end|>"]),
        ("the cat", ["the", "Ġcat"]),
    ],
)
def test_default_tokenizer_splits_as_smollm_does(default_tokenizer, text, tokens):
    ids = default_tokenizer(text).input_ids
    assert default_tokenizer.convert_ids_to_tokens(ids) == tokens
    assert default_tokenizer.decode(ids) == text


def test_default_chat_template_names_smollm_and_opens_the_answer(default_tokenizer):
    text = default_tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_other_families_and_other_files_are_refused(tmp_path):
    tiny_gguf.write_gguf(tmp_path / "falcon.gguf", architecture="falcon")
    with pytest.raises(ModelError, match="family 'falcon'; expected 'llama'"):
        convert(tmp_path / "falcon.gguf", tmp_path)
    (tmp_path / "text.gguf").write_text("not a model")
    with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
        convert(tmp_path / "text.gguf", tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_the_default_model_is_the_one_this_release_was_tested_with():
    folder = fetch.fetch()
    assert fetch.problems(full=True) == []
    assert manifest.weights_hash(folder) == fetch.DEFAULT.weights_sha256
