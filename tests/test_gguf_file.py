"""A GGUF file of one's own as a model: the same as its converted folder, and words for a file that cannot be one."""

import shutil
import struct

import gguf
import numpy as np
import pytest
import tiny_gguf
import torch

from specdec_core.base.errors import ModelError
from specdec_core.base.records import file_hash
from specdec_core.commands.cli import main
from specdec_core.core.engine import generate
from specdec_core.drafters import PromptLookup
from specdec_core.model import convert
from specdec_core.model.lm import CachedLM
from specdec_core.model.loading import load

CPU = dict(dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with tiny.gguf, and the same converted by us."""
    folder = tmp_path_factory.mktemp("gguf")
    tiny_gguf.make_source(folder)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_file_is_the_same_model_as_its_folder(made, dtype):
    file, folder = (load(made / name, dtype=dtype, device="cpu") for name in ("tiny.gguf", "converted"))
    ours, theirs = file.model.state_dict(), folder.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert file.dtype == file.model.dtype == folder.dtype and file.stop_ids == folder.stop_ids == {2}
    for text in ("12 345", "the  cat\n\n 1", "<|im_start|>user\nHi<|im_end|>"):
        assert file.tokenizer(text).input_ids == folder.tokenizer(text).input_ids
    prompt = file.encode("the the the", system="x")
    assert prompt == folder.encode("the the the", system="x")
    answers = [
        generate(CachedLM(loaded, release=True), prompt, PromptLookup(), max_new_tokens=12).tokens
        for loaded in (file, folder)
    ]
    assert answers[0] == answers[1]


def test_what_a_record_says_of_it(made, monkeypatch):
    monkeypatch.chdir(made)
    for name in (str(made / "tiny.gguf"), "tiny.gguf", "./tiny.gguf", made / "tiny.gguf"):
        loaded = load(name, **CPU)
        assert (loaded.label, loaded.name) == ("tiny.gguf", str(name))
        assert loaded.weights_hash == file_hash(made / "tiny.gguf")
        assert loaded.parameters == sum(weight.numel() for weight in load(made / "converted", **CPU).model.parameters())


def test_what_lies_beside_the_file_is_not_read(made, tmp_path):
    shutil.copy(made / "tiny.gguf", tmp_path / "some model")  # whatever its name is
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "generation_config.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')
    assert load(tmp_path / "some model", **CPU).stop_ids == {2}


@pytest.mark.parametrize("said", [None, False, True])
def test_a_text_begins_with_the_token_that_the_file_asks_for(said, tmp_path):
    tiny_gguf.write_gguf(tmp_path / "x.gguf", more=lambda writer: said is None or writer.add_add_bos_token(said))
    tokenizer = load(tmp_path / "x.gguf", **CPU).tokenizer
    expected = ([1] if said else []) + tokenizer("the", add_special_tokens=False).input_ids
    assert tokenizer("the").input_ids == expected


def test_all_ends_of_the_file_end_an_answer(tmp_path):
    def more(writer):
        writer.add_eot_token_id(7)
        writer.add_eom_token_id(9)

    tiny_gguf.write_gguf(tmp_path / "x.gguf", more=more)
    assert load(tmp_path / "x.gguf", **CPU).stop_ids == {2, 7, 9}


def test_divisors_of_the_rotary_frequencies_are_applied(tmp_path, made):
    """Llama 3.1 writes them as a tensor, which transformers passes over."""
    factors = np.linspace(1, 8, 8).astype("float32")
    tiny_gguf.write_gguf(tmp_path / "x.gguf", more=lambda writer: writer.add_tensor("rope_freqs.weight", factors))
    turned, plain = load(tmp_path / "x.gguf", **CPU).model, load(made / "tiny.gguf", **CPU).model
    expected = plain.model.rotary_emb.inv_freq / torch.from_numpy(factors)
    assert torch.equal(turned.model.rotary_emb.inv_freq, expected)
    assert CachedLM(turned).execution.name == CachedLM(plain).execution.name
    tiny_gguf.write_gguf(tmp_path / "y.gguf", more=lambda writer: writer.add_tensor("rope_freqs.weight", factors[:3]))
    with pytest.raises(ModelError, match="divides 3 rotary frequencies; its model has others"):
        load(tmp_path / "y.gguf", **CPU)


def without_a_tokenizer(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", np.zeros((3, 4), "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def long_rope(writer):
    writer.add_tensor("rope_factors_long.weight", np.ones(8, "float32"))


def cut(at):
    def write(path):
        tiny_gguf.write_gguf(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(at * len(whole))])

    return write


def flipped(start, value):
    def write(path):
        tiny_gguf.write_gguf(path)
        whole = bytearray(path.read_bytes())
        whole[start : start + len(value)] = value
        path.write_bytes(whole)

    return write


BROKEN = {
    "text": (lambda path: path.write_text("not a model"), "begins with b'not ', not with b'GGUF'"),
    "empty": (lambda path: path.write_bytes(b""), "begins with b'', not with b'GGUF'"),
    "no more than its name": (lambda path: path.write_bytes(b"GGUF"), "cut short or damaged"),
    "cut in the header": (cut(0.01), "cut short or damaged"),
    "cut in the words": (cut(0.06), "cut short or damaged"),
    "cut in the weights": (cut(0.7), "cut short or damaged"),
    "a version of tomorrow": (flipped(4, struct.pack("<I", 99)), "version 99"),
    "more tensors than it has": (flipped(8, struct.pack("<Q", 1 << 40)), "cut short or damaged"),
    "more fields than it has": (flipped(16, struct.pack("<Q", 1 << 40)), "cut short or damaged"),
    "no tokenizer": (without_a_tokenizer, "holds no tokenizer"),
    "one part of two": (
        lambda path: tiny_gguf.write_gguf(path, more=lambda writer: writer.add_uint16("split.count", 2)),
        "one of 2 parts; join them with",
    ),
    "an end beyond its words": (
        lambda path: tiny_gguf.write_gguf(path, more=lambda writer: writer.add_eot_token_id(999)),
        "names {'eot_token': 999} of 263 tokens",
    ),
    "tables of positions": (lambda path: tiny_gguf.write_gguf(path, more=long_rope), "rope_factors_long.weight"),
    "another architecture": (
        lambda path: tiny_gguf.write_gguf(path, architecture="of-tomorrow"),
        "cannot be loaded by transformers .*of-tomorrow.*give the model's folder",
    ),
    "no causal language model": (
        lambda path: tiny_gguf.write_gguf(path, architecture="t5"), "cannot be loaded by transformers"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_model_is_refused_in_words_here_and_on_the_command_line(name, tmp_path, capsys):
    write, words = BROKEN[name]
    write(tmp_path / "x.gguf")
    with pytest.raises(ModelError, match=f"x.gguf.*{words}") as error:
        load(tmp_path / "x.gguf", **CPU)
    assert "\n" not in str(error.value)
    assert main(["generate", "Hi", "--model", str(tmp_path / "x.gguf"), "--dtype", "float32"]) == 2
    assert "x.gguf" in capsys.readouterr().err


def test_no_byte_of_the_header_ends_in_another_error(tmp_path):
    """One byte of every ninth is changed; most files are refused, some are another model, none is a traceback."""
    tiny_gguf.write_gguf(tmp_path / "x.gguf")
    whole, refused = (tmp_path / "x.gguf").read_bytes(), 0
    for at in range(0, 4000, 9):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        (tmp_path / "y.gguf").write_bytes(damaged)
        try:
            convert.read(tmp_path / "y.gguf")
        except ModelError:
            refused += 1
    assert refused > 20


def test_a_folder_of_files_says_which_to_give(tmp_path):
    tiny_gguf.write_gguf(tmp_path / "b.gguf")
    with pytest.raises(ModelError, match="has no config.json.*Or give one of its GGUF files, such as .*b.gguf"):
        load(tmp_path)
    with pytest.raises(ModelError, match="There is no file nowhere.gguf"):
        load("nowhere.gguf")


def test_on_the_command_line_it_writes_an_answer(made, capsys):
    arguments = ["generate", "the the the", "--model", str(made / "tiny.gguf"), "--dtype", "float32", "--device", "cpu"]
    assert main([*arguments, "--max-new-tokens", "5"]) == 0
    assert "tiny.gguf: float32 (as asked)" in capsys.readouterr().err
