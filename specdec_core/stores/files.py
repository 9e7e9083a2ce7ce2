"""What a whole datastore folder holds, and what is refused: cut short, altered, of another tokenizer.

``header.json`` names the folder of data beside it and records its files by size and hash. It is the one file
whose replacement makes a new store the current one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import SpecdecError
from ..base.files import write
from ..model.chat import Tokenizer
from ..model.fetch import home
from ..model.manifest import file_hash

Ids = Sequence[int] | np.ndarray  # of a document
HEADER, CHECKED = "header.json", "checked.json"
FORMAT, VERSION = "specdec suffix store", 1
TOKENS, SUFFIXES, HEADS = "tokens.bin", "suffixes.bin", "heads.bin"
HEAD, EVERY = 8, 64  # bytes of a suffix that are kept apart, of every so many-th suffix
_ALWAYS_HASHED = 1 << 24  # bytes: so little is hashed at every opening, in less than 50 ms


class DatastoreError(SpecdecError):
    """A datastore that is missing, cut short, altered, of another tokenizer, or that cannot be built."""


class TokenizerId(NamedTuple):
    """Which tokenizer made the ids: a name for people, and a hash of its vocabulary (token, id)."""

    name: str
    fingerprint: str


def token_dtype(vocab_size: int) -> np.dtype:
    """Big-endian, and with room for a separator above every id.

    Raises:
        DatastoreError: for a vocabulary of no entry, or of more than 4 bytes can number.

    Example:
        >>> token_dtype(49_152).str, token_dtype(65_536).str
        ('>u2', '>u4')
    """
    if not 1 <= vocab_size < 2**32:
        raise DatastoreError(f"a vocabulary has 1 to {2**32 - 1:,} entries; got vocab_size={vocab_size}")
    return np.dtype(">u2" if vocab_size <= 65_535 else ">u4")


def heads(tokens: int) -> int:
    """Heads that a store of so many tokens has.

    Example:
        >>> heads(64), heads(65)
        (1, 2)
    """
    return (tokens + EVERY - 1) // EVERY


def identify(tokenizer: Tokenizer) -> TokenizerId:
    """The name of a transformers tokenizer, and the sha256 of its vocabulary, added tokens included."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))
    digest = hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()
    return TokenizerId(Path(str(tokenizer.name_or_path)).name or "unnamed tokenizer", digest)


def place(name: str | Path) -> Path:
    """The folder of a store: the path itself if it has a slash, else a folder under ``SPECDEC_HOME``."""
    path = Path(name).expanduser()
    return path if os.path.dirname(name) else home() / "datastores" / path


def read_header(folder: Path) -> dict[str, Any]:
    """The record of a store.

    Raises:
        DatastoreError: there is none, it is damaged, or another version wrote it.
    """
    path = folder / HEADER
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        stated, found = record.pop("sha256"), record_hash(record)
        version = record["version"]
    except FileNotFoundError as error:
        raise DatastoreError(
            f"{folder} holds no datastore ({HEADER} is missing). Build one: `specdec datastore build --code` "
            "or `specdec datastore build PATH... --name NAME`."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DatastoreError(
            f"{path} cannot be read as the header of a datastore ({error!r}). {_again(folder)}"
        ) from error
    if record["format"] != FORMAT or version != VERSION:
        raise DatastoreError(
            f"{path} is of format {record['format']!r}, version {version}; this package reads {FORMAT!r}, "
            f"version {VERSION}. {_again(folder)}"
        )
    if stated != found:
        raise DatastoreError(f"{path} has been altered: its sha256 is {found}; expected {stated}. {_again(folder)}")
    return record


def record_hash(record: dict[str, Any]) -> str:
    """The sha256 of a header without its own ``sha256``."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def check_tokenizer(folder: Path, header: dict[str, Any], tokenizer: Tokenizer | None) -> None:
    """Refuse a store that another tokenizer's ids are in; either may be unknown.

    Raises:
        DatastoreError: naming both.
    """
    if tokenizer is None or header["tokenizer"] is None:
        return
    built, wanted = TokenizerId(**header["tokenizer"]), identify(tokenizer)
    if built.fingerprint != wanted.fingerprint:
        raise DatastoreError(
            f"{folder} was built with the tokenizer {built.name!r} (sha256 {built.fingerprint[:12]}),"
            f" the model's is {wanted.name!r} (sha256 {wanted.fingerprint[:12]}): an id means another token "
            "there. Build a store for this model under another --name."
        )


def check_files(folder: Path, header: dict[str, Any], verify: bool) -> None:
    """Refuse a store whose files have other sizes than the header says, or other hashes where those are compared.

    Raises:
        DatastoreError: naming the file.
    """
    data, files, times = folder / header["data"], header["files"], {}
    for name, expected in files.items():
        path = data / name
        try:
            status = path.stat()
        except OSError as error:
            raise DatastoreError(f"{path} cannot be read ({error}). {_again(folder)}") from error
        if status.st_size != expected["bytes"]:
            sizes = f"{status.st_size:,} bytes; expected {expected['bytes']:,}"
            raise DatastoreError(f"{path} has {sizes}: it was cut short or altered. {_again(folder)}")
        times[name] = status.st_mtime_ns
    small = sum(expected["bytes"] for expected in files.values()) <= _ALWAYS_HASHED
    if not (small or verify) and times == _checked(data):
        return
    for name, expected in files.items():
        if (found := file_hash(data / name)) != expected["sha256"]:
            raise DatastoreError(f"{data / name} has sha256 {found}; expected {expected['sha256']}. {_again(folder)}")
    note_checked(data, times)


def _again(folder: Path) -> str:
    return f"Build the store again: `specdec datastore build ... --name {folder.name}`."


def _checked(data: Path) -> dict[str, int] | None:
    try:
        return json.loads((data / CHECKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def note_checked(data: Path, times: dict[str, int]) -> None:
    """Remember the files' times at which the hashes agreed; a folder that may not be written is hashed again."""
    with suppress(OSError):
        write(data / CHECKED, json.dumps(times))
