"""The datastore: answers equal a naive scan, and what is damaged, foreign or half built is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import sleep

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.base.records import sealed
from specdec_core.commands import cli
from specdec_core.stores import DatastoreError, SuffixStore, TokenizerId, identify, place
from specdec_core.stores.build import build_store
from specdec_core.stores.files import HEADER, HEADS, SUFFIXES, TOKENS, note_checked
from specdec_core.stores.texts import code_files, files_under, read_lines, read_texts, tokenized

CORPORA = st.lists(st.lists(st.integers(0, 2), max_size=40), min_size=1, max_size=5).filter(any)
BIG = 70_000  # a vocabulary whose ids need more than two bytes
EXAMPLE = [[1, 2, 3, 1, 2, 4], [9, 1, 2, 3]]


class WordTokenizer:
    """A slow tokenizer of words, as transformers has them: no backend, a vocabulary, a name."""

    def __init__(self, words: str, name: str = "words"):
        self.words, self.name_or_path = words.split(), f"somewhere/{name}"

    def get_vocab(self):
        return {word: i for i, word in enumerate(self.words)}

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return [self.words.index(word) for word in text.split()]


def occurrences(documents, pattern):
    """(document, place behind it) of every occurrence, by looking everywhere."""
    n = len(pattern)
    return [
        (document, at + n) for document in documents for at in range(len(document) - n + 1)
        if document[at : at + n] == pattern
    ]  # fmt: skip


def followers(store, match, depth, k=10**6):
    ids, lengths = store.continuations(*match, depth=depth, k=k)
    return [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]


@pytest.mark.parametrize("base, vocab_size", [(0, 3), (254, 300), (65_534, BIG), (65_533, 65_536)])
def test_suffixes_are_in_the_order_of_their_tokens(base, vocab_size):
    """Byte order of big-endian ids is token order, also where the next byte begins to count."""
    rng = np.random.default_rng(0)
    documents = [(base + rng.integers(0, 3, size)).tolist() for size in (50, 1, 120, 30)]
    store = SuffixStore.in_memory(documents, vocab_size)
    flat = [i for document in documents for i in [*document, store.separator]]
    assert store.tokens.tolist() == flat
    assert store.sa.tolist() == sorted(range(len(flat)), key=lambda start: flat[start:])
    assert store.heads.tolist() == sorted(store.heads.tolist())
    with pytest.raises(ValueError, match="must be >u"):
        SuffixStore(store.tokens.astype("<u4"), store.sa, store.heads, vocab_size)


@given(
    CORPORA,
    st.lists(st.integers(0, 2), max_size=12),
    st.integers(1, 8),
    st.integers(1, 3),
    st.sampled_from([0, 254, 65_534]),
)
@settings(max_examples=150)
def test_find_and_continuations_equal_a_naive_scan(documents, query, max_n, min_n, offset):
    documents = [[i + offset for i in document] for document in documents]
    query = [i + offset for i in query]
    store = SuffixStore.in_memory(documents, offset + 3)
    match = store.find(query, max_n, min_n)

    lengths = [
        n for n in range(min_n, min(max_n, len(query)) + 1) if occurrences(documents, query[len(query) - n :])
    ]
    assert match.length == max(lengths, default=0)
    places = occurrences(documents, query[len(query) - match.length :]) if match.length else []
    assert match.hi - match.lo == len(places)
    follow = [document[at : at + 4] for document, at in places]
    assert followers(store, match, depth=4) == sorted(follow, key=lambda row: [*row, store.separator][:4])


def test_neither_match_nor_continuation_runs_into_the_next_document():
    store = SuffixStore.in_memory([[1, 2], [3, 4], [2]], vocab_size=5)
    assert store.find([2, 3]).length == 1  # 3 alone
    assert followers(store, store.find([1, 2]), depth=5) == [[]]
    assert followers(store, store.find([3]), depth=5) == [[4]]


def test_ids_that_the_store_cannot_hold_match_nothing():
    """A model's vocabulary may be padded beyond the tokenizer's, and the separator is not an id."""
    store = SuffixStore.in_memory(EXAMPLE, vocab_size=10)
    for foreign in (10, 49_151, store.separator, 10**6, -1):
        assert store.find([1, 2, foreign]) == (0, 0, 0)
        assert store.find([1, foreign, 1, 2]).length == 2
    assert store.find([]) == (0, 0, 0)


def test_a_sample_of_many_matches_is_stratified_and_the_same_every_time():
    """1 is followed by 2 in three of four cases, in 40,000 matches: 64 of them say so to within 1/64."""
    store = SuffixStore.in_memory([[1, 2, 1, 2, 1, 2, 1, 3] * 10_000], vocab_size=4)
    match = store.find([1])
    assert match.hi - match.lo == 40_000
    first = [row[0] for row in followers(store, match, depth=1, k=64)]
    assert first == [row[0] for row in followers(store, match, depth=1, k=64)] == sorted(first)
    assert len(first) == 64
    assert abs(first.count(2) / 64 - 3 / 4) < 1 / 64


@pytest.mark.parametrize("vocab_size", [10, BIG])
def test_a_built_store_is_mapped_and_answers_as_the_one_in_memory(tmp_path, vocab_size):
    built, memory = build_store(tmp_path / "s", EXAMPLE, vocab_size), SuffixStore.in_memory(EXAMPLE, vocab_size)
    for mapped, plain in ((built.tokens, memory.tokens), (built.sa, memory.sa), (built.heads, memory.heads)):
        assert isinstance(mapped, np.memmap)
        assert not mapped.flags.writeable
        assert mapped.tolist() == plain.tolist()
    assert built.find([7, 1, 2]) == memory.find([7, 1, 2])
    assert (built.header["documents"], built.header["tokens"]) == (2, 12)


def test_a_store_larger_than_memory_is_not_read_whole(tmp_path):
    """A store of 4 billion tokens, 24 GB, all of it holes: a reader grows by less than 1 % of that."""
    size, data = 4_000_000_000, tmp_path / "data-0"
    data.mkdir()
    sizes = {TOKENS: 2 * size, SUFFIXES: 4 * size, HEADS: size // 64 * 8}
    for name, count in sizes.items():
        with open(data / name, "wb") as file:
            file.truncate(count)
    note_checked(data)
    header = {
        "format": "specdec suffix store", "version": 1, "tokens": size, "vocab_size": 9, "token_dtype": ">u2",
        "index_dtype": "<u4", "data": "data-0", "tokenizer": None, "created": "", "documents": 1, "seconds": {},
        "sources": [],
        "files": {name: {"bytes": count, "sha256": "never compared"} for name, count in sizes.items()},
    }  # fmt: skip
    (tmp_path / HEADER).write_text(sealed(header))
    code = (
        "import sys, psutil\n"
        "from specdec_core.stores import SuffixStore\n"
        "before = psutil.Process().memory_info().rss\n"
        "store = SuffixStore.open(sys.argv[1])\n"
        "match = store.find([0, 0, 0])\n"
        "store.continuations(*match, depth=10, k=64)\n"
        "print(*match, psutil.Process().memory_info().rss - before)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    lo, hi, length, grown = map(int, ran.stdout.split())
    assert (lo, hi, length) == (0, size, 3)
    assert grown < sum(sizes.values()) / 100


@pytest.fixture
def store(tmp_path):
    return Path(build_store(tmp_path / "code", EXAMPLE, 10).tokens.filename).parent.parent


def data_of(store):
    return store / json.loads((store / HEADER).read_text())["data"]


@pytest.mark.parametrize("name", [TOKENS, SUFFIXES, HEADS])
def test_a_truncated_store_is_named_and_refused(store, name):
    path = data_of(store) / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatastoreError, match=f"{name} has .* bytes; expected .* cut short .*specdec datastore build"):
        SuffixStore.open(store)
    path.unlink()
    with pytest.raises(DatastoreError, match=f"{name} is missing"):
        SuffixStore.open(store)


@pytest.mark.parametrize("name", [TOKENS, SUFFIXES, HEADS])
def test_a_store_with_one_flipped_bit_is_named_and_refused(store, name):
    path = data_of(store) / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DatastoreError, match=f"{name} has sha256 .*; expected .* Build the store again"):
        SuffixStore.open(store)


def test_a_large_store_is_hashed_when_a_file_was_written_or_on_demand(store, monkeypatch):
    monkeypatch.setattr("specdec_core.base.records.ALWAYS_HASHED", 0)
    path = data_of(store) / TOKENS
    raw, old = bytearray(path.read_bytes()), path.stat()
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + 10**9))
    SuffixStore.open(store)  # copied, say: hashed once, and found whole
    hashed = []
    monkeypatch.setattr("specdec_core.base.records.file_hash", hashed.append)
    SuffixStore.open(store)
    assert not hashed, "the times are those at which the hashes agreed: nothing is read"
    monkeypatch.undo()
    monkeypatch.setattr("specdec_core.base.records.ALWAYS_HASHED", 0)

    raw[0] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + 10**9))  # rot that leaves the times alone
    SuffixStore.open(store)
    with pytest.raises(DatastoreError, match="sha256"):
        SuffixStore.open(store, verify=True)
    os.utime(path)
    with pytest.raises(DatastoreError, match="sha256"):
        SuffixStore.open(store)


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda text: text[: len(text) // 2], "header.json cannot be read; expected JSON"),
        (lambda text: "[]", "expected a record with a sha256"),
        (lambda text: text.replace('"vocab_size": 10', '"vocab_size": 11'), "was altered"),
        (lambda text: sealed({**json.loads(text), "version": 2}), "another version: version: expected 1, got 2"),
    ],
)
def test_a_damaged_header_is_refused(store, damage, said):
    path = store / HEADER
    path.write_text(damage(path.read_text()))
    with pytest.raises(DatastoreError, match=said):
        SuffixStore.open(store)
    assert len(build_store(store, [[1]], 10)) == 2, "built again over it"


def test_a_missing_store_says_how_to_build_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path))
    with pytest.raises(DatastoreError, match="holds no datastore .*specdec datastore build --code"):
        SuffixStore.open("code")
    assert place("code") == tmp_path / "datastores" / "code"
    assert place("./code") == Path("code")


def test_a_store_of_another_tokenizer_is_refused_naming_both(tmp_path):
    ours, theirs = WordTokenizer("a b c", "ours"), WordTokenizer("a c b", "theirs")
    store = build_store(tmp_path / "s", [[0, 1, 2]], 3, identify(ours))
    assert SuffixStore.open(tmp_path / "s", ours).find([0, 1]) == store.find([0, 1])
    with pytest.raises(DatastoreError, match="'ours'.*'theirs'.*another --name"):
        SuffixStore.open(tmp_path / "s", theirs)
    assert identify(ours) == TokenizerId("ours", identify(WordTokenizer("a b c")).fingerprint)


def test_an_interrupted_build_leaves_the_old_store(store):
    def interrupted():
        yield [1, 1, 1]
        raise KeyboardInterrupt

    before = sorted(store.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        build_store(store, interrupted(), 10)
    assert sorted(store.rglob("*")) == before
    assert SuffixStore.open(store).find([1, 2, 3]).length == 3


def test_a_killed_build_leaves_the_old_store_and_the_next_one_clears_up(store):
    code = (
        "import sys, time\n"
        "from specdec_core.stores import build_store\n"
        "def documents():\n"
        "    yield [1] * 5000\n"
        "    print('half', flush=True)\n"
        "    time.sleep(60)\n"
        "build_store(sys.argv[1], documents(), 10)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, store], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "half\n"
    waiting = []
    second = Thread(target=lambda: build_store(store, [[5, 6]], 10, say=waiting.append))
    second.start()
    while not waiting:
        sleep(0.01)
    assert waiting[0].startswith(f"Another process is building the datastore in {store}; waiting")
    assert len(list(store.glob("data-*"))) == 1 == len(list(store.glob(".new-*"))), "old data, and what is half built"
    assert SuffixStore.open(store).find([1, 2, 3]).length == 3
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    second.join()
    assert followers(SuffixStore.open(store), (0, 1, 1), depth=2) == [[6]]
    assert [*store.glob("data-*"), *store.glob(".new-*")] == [data_of(store)]


def test_a_reader_keeps_its_store_while_a_new_one_takes_its_place(store):
    reader = SuffixStore.open(store)
    build_store(store, [[8, 8]], 10)
    assert reader.find([1, 2, 3]).length == 3
    assert SuffixStore.open(store).find([1, 2, 3]).length == 0


@pytest.mark.parametrize(
    "documents, vocab_size, limit, said",
    [
        ([[1, 2], [3, 10]], 10, None, "document 1 holds the id 10; expected ids in 0 ... 9"),
        ([[-1]], 10, None, "holds the id -1"),
        ([], 10, None, "at least one document"),
        ([[], []], 10, None, "at least one document"),
        ([[1, 2, 3]], 10, 3, "within the limit of 3 tokens"),
        ([[1]], 2**32, None, "got vocab_size=4294967296"),
    ],
)
def test_what_cannot_be_built_is_refused_and_leaves_nothing(tmp_path, documents, vocab_size, limit, said):
    with pytest.raises(DatastoreError, match=said):
        build_store(tmp_path / "s", documents, vocab_size, limit=limit)
    assert not list((tmp_path / "s").glob("data-*"))
    assert not (tmp_path / "s" / HEADER).exists()


def test_a_build_without_room_is_refused_before_it_sorts(store, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("M", (), {"available": 1000})())
    with pytest.raises(DatastoreError, match=r"needs 0.0 GB of memory; .*--limit"):
        build_store(store, [[1] * 500], 10)
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("D", (), {"free": 1000})())
    with pytest.raises(DatastoreError, match="SPECDEC_HOME"):
        build_store(store, [[1] * 500], 10)
    monkeypatch.undo()
    assert SuffixStore.open(store).find([1, 2, 3]).length == 3


def test_limit_stops_before_the_document_that_passes_it(tmp_path):
    store = build_store(tmp_path / "s", [[1, 2], [3, 4], [5, 6]], 10, limit=8)
    assert (len(store), store.header["documents"]) == (6, 2)


def test_texts_come_mixed_once_each_and_only_if_they_are_text(tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02}.py").write_text(f"x = {number // 2}\n")  # each content twice
    (tmp_path / "binary").write_bytes(b"\0\1")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    (tmp_path / ".hidden").write_text("x = 100\n")
    files = files_under([tmp_path])
    assert len(files) == 22 and files != sorted(files)
    assert files == files_under([tmp_path]), "the order is fixed"
    assert sorted(read_texts(files)) == sorted(f"x = {number}\n" for number in range(10))
    with pytest.raises(DatastoreError, match="neither a file nor a folder"):
        files_under([tmp_path / "nowhere"])


def test_code_is_the_standard_library_and_the_packages_without_this_one():
    files = code_files()
    names = {path.name for path in files}
    assert {"argparse.py", "heapq.py"} <= names
    assert any("numpy" in path.parts for path in files)
    assert not any("specdec_core" in path.parts for path in files)


@pytest.mark.parametrize(
    "line, said",
    [("{", "expected JSON"), ('{"texts": 1}', "expected a string"), ('["a"]', "expected"), ("[true]", "expected")],
)
def test_a_line_that_is_no_document_is_named(tmp_path, line, said):
    path = tmp_path / "chat.jsonl"
    path.write_text(f'"fine"\n\n{line}\n')
    with pytest.raises(DatastoreError, match=f"chat.jsonl, line 3.*{said}"):
        list(read_lines(path))


def test_ids_and_texts_keep_their_order_through_the_tokenizer():
    tokenizer = WordTokenizer("a b c")
    assert [list(ids) for ids in tokenized(["a b", [7, 8], "c"], tokenizer)] == [[0, 1], [7, 8], [2]]


def test_the_command_builds_describes_queries_and_times(tmp_path, monkeypatch, capsys, default_model):
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    tokenizer = str(default_model.path)
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"text": "The cat sat on the mat. The cat sat on the mat."}\n"The dog sat."\n')
    assert cli.main(["datastore", "build", "--chat", str(chat), "--model", tokenizer]) == 0
    assert "documents        2" in capsys.readouterr().out
    assert cli.main(["datastore", "info"]) == 0
    assert "chat" in capsys.readouterr().out
    assert cli.main(["datastore", "info", "chat", "--verify"]) == 0
    assert "sizes and hashes as recorded" in capsys.readouterr().out
    assert cli.main(["datastore", "query", "chat", "Look: the cat sat on", "--model", tokenizer]) == 0
    said = capsys.readouterr().out
    assert "' cat sat on' (3 tokens) occurs 2 times" in said
    assert "100.0 %  ' the'" in said
    assert cli.main(["datastore", "bench", "chat", "--queries", "3", "--model", tokenizer]) == 0
    table, rows = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert table.splitlines()[0].split()[:2] == ["tokens", "MB"]
    (row,) = json.loads(rows)
    assert row["tokens"] == len(SuffixStore.open("chat")) and 0 < row["find_ms"] <= row["query_ms"]
    assert cli.main(["datastore", "build"]) == 2
    assert "Nothing to build from" in capsys.readouterr().err
