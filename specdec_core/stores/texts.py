"""What a datastore is built from: the Python code found on every machine, conversations, files of yours.

Files come in an order that is fixed and yet mixed (by the hash of their path), so that a store cut off at any
number of tokens is a fair sample of the whole. Texts that occur twice, such as vendored copies of a package,
are taken once: copies would count as frequency.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arguments import text as checked_text
from ..base.errors import TextError
from .files import DatastoreError, Ids

_BATCH = 1 << 22  # characters handed to the tokenizer at a time
Text = str | list[int]  # a document, or its token ids


def code_files() -> list[Path]:
    """The .py files of the Python standard library and of the installed packages, this one left out.

    This package is left out so that its own source can serve as text that the store has not seen.
    """
    standard, *installed = (Path(sysconfig.get_paths()[key]) for key in ("stdlib", "purelib", "platlib"))
    files = [(path, path.relative_to(standard)) for path in standard.rglob("*.py")]
    files = [(path, short) for path, short in files if not {"site-packages", "dist-packages"} & set(short.parts)]
    for root in sorted(set(installed)):
        found = ((path, path.relative_to(root)) for path in root.rglob("*.py"))
        files += [(path, short) for path, short in found if short.parts[0] != "specdec_core"]
    return [path for path, _ in sorted(files, key=lambda item: _mixed(item[1]))]


def files_under(paths: Iterable[str | Path]) -> list[Path]:
    """The given files, and all files in the given folders whose path has no hidden part.

    Raises:
        DatastoreError: a path that does not exist.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            inside = [(file, file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
            seen = [(file, short) for file, short in inside if not any(part.startswith(".") for part in short.parts)]
            found += [file for file, _ in sorted(seen, key=lambda item: _mixed(item[1]))]
        else:
            raise DatastoreError(f"{path} is neither a file nor a folder; expected texts to build a datastore from.")
    return found


def read_texts(files: Iterable[Path]) -> Iterator[Text]:
    """The content of each file, one document per file and one per line of a ``.jsonl``; each text once.

    Files that are not UTF-8 text are left out; lines of a ``.jsonl`` are read by `read_lines`.
    """
    seen: set[bytes] = set()
    for path in files:
        if path.suffix == ".jsonl":
            yield from read_lines(path)
            continue
        try:
            raw = path.read_bytes()
        except OSError:
            continue  # a broken link, or a file that went away since it was listed
        digest = hashlib.sha256(raw).digest()
        if digest in seen or b"\0" in raw:
            continue
        seen.add(digest)
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            continue


def read_lines(path: str | Path) -> Iterator[Text]:
    """The documents of a JSON Lines file: a string, a list of ids, or an object with ``text`` or ``ids``.

    Raises:
        DatastoreError: the file cannot be read, or a line is none of these; the message names file and line.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "chat.jsonl")
        >>> _ = Path(path).write_text('{"text": "Hello."}\\n[5, 6]\\n')
        >>> list(read_lines(path))
        ['Hello.', [5, 6]]
    """
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _document(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise DatastoreError(f"{path} cannot be read ({error}); expected JSON Lines in UTF-8.") from error


def _document(line: str, where: str) -> Text:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DatastoreError(f"{where}: expected JSON; got {line[:80]!r} ({error}).") from error
    if isinstance(value, dict):
        value = value.get("text", value.get("ids"))
    is_ids = isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
    if not (isinstance(value, str) or is_ids):
        expected = 'a string, a list of token ids, or an object with "text" or "ids"'
        raise DatastoreError(f"{where}: expected {expected}; got {line[:80]!r}.")
    try:
        return value if is_ids else checked_text(where, value)
    except TextError as error:
        raise DatastoreError(str(error)) from None


def tokenized(texts: Iterable[Text], tokenizer: Any) -> Iterator[Ids]:
    """Token ids of each text, no special tokens added; ids pass as they are. Order is kept.

    Texts go to the tokenizer in batches of a few million characters, which it spreads over the cores.

    Args:
        tokenizer: of transformers.
    """
    batch, held = list[Text](), 0
    for text in texts:
        batch.append(text)
        held += len(text)
        if held >= _BATCH:
            yield from _encoded(batch, tokenizer)
            batch, held = [], 0
    yield from _encoded(batch, tokenizer)


def _encoded(batch: Sequence[Text], tokenizer: Any) -> Iterator[Ids]:
    texts = [text for text in batch if isinstance(text, str)]
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None:  # without the masks and offsets that calling the tokenizer would make
        coded: list[Ids] = [np.asarray(each.ids) for each in fast.encode_batch_fast(texts, add_special_tokens=False)]
    else:
        coded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    left = iter(coded)
    return (next(left) if isinstance(text, str) else text for text in batch)


def _mixed(path: Path) -> bytes:
    return hashlib.sha256(path.as_posix().encode()).digest()
