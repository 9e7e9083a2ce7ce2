"""What a whole datastore folder holds, and what is refused: cut short, altered, of another tokenizer.

``header.json`` names the folder of data beside it and records its files by size and hash. It is the one file
whose replacement makes a new store the current one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import SpecdecError
from ..base.files import write
from ..base.records import SIZES, differences, unsealed
from ..model.chat import Tokenizer
from ..model.fetch import home

Ids = Sequence[int] | np.ndarray  # of a document
HEADER, CHECKED = "header.json", "checked.json"
FORMAT, VERSION = "specdec suffix store", 1
TOKENS, SUFFIXES, HEADS = "tokens.bin", "suffixes.bin", "heads.bin"
HEAD, EVERY = 8, 64  # bytes of a suffix that are kept apart, of every so many-th suffix
_NUMBER = (int, float)
_SHAPE = {
    "format": FORMAT, "version": VERSION, "created": str, "tokens": int, "documents": int, "vocab_size": int,
    "token_dtype": str, "index_dtype": str, "seconds": {str: _NUMBER}, "data": str, "files": SIZES,
    "tokenizer": (dict, type(None)), "sources": [str],
}


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
        return unsealed(path.read_bytes(), _SHAPE, str(path), again(folder), DatastoreError)
    except FileNotFoundError as error:
        raise DatastoreError(
            f"{folder} holds no datastore ({HEADER} is missing). Build one: `specdec datastore build --code` "
            "or `specdec datastore build PATH... --name NAME`."
        ) from error
    except OSError as error:
        raise DatastoreError(f"{path} cannot be read ({error}). {again(folder)}") from error


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
    data, recorded = folder / header["data"], header["files"]
    full = verify or _times(data, recorded) != _checked(data)
    if found := differences(data, recorded, full):
        raise DatastoreError(f"{found[0]}. {again(folder)}")
    if full:
        note_checked(data)


def again(folder: Path) -> str:
    """What to do with a damaged store, for messages."""
    return f"Build the store again: `specdec datastore build ... --name {folder.name}`."


def _checked(data: Path) -> Any:
    try:
        return json.loads((data / CHECKED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _times(data: Path, names: Iterable[str]) -> dict[str, int]:
    return {name: path.stat().st_mtime_ns for name in names if (path := data / name).is_file()}


def note_checked(data: Path) -> None:
    """Remember the files' times, now that the hashes agree; a folder that may not be written is hashed again."""
    with suppress(OSError):
        write(data / CHECKED, json.dumps(_times(data, (TOKENS, SUFFIXES, HEADS))))
