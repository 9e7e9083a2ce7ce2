"""What a whole model folder holds: the record that tells it from half of one.

`specdec-model.json` is written last, after every other file; a folder without it is not a model of
ours, and one whose files differ from it is named, file by file.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from specdec_core.base.errors import ModelError

MANIFEST = "specdec-model.json"
_CHUNK = 1 << 20


def file_hash(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def weights_hash(folder: Path) -> str:
    """The sha256 over the stored tensors of a model folder, in name order.

    Each tensor enters as a line `name dtype shape` and its bytes, so that the hash does not depend
    on how they are spread over files or on what else a file's header says.

    Raises:
        ModelError: the folder has no `*.safetensors`, or one that is cut short.

    Example:
        >>> import tempfile, numpy as np
        >>> from safetensors.numpy import save_file
        >>> one, two = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        >>> a, b = np.zeros(2, "float32"), np.ones(3, "float32")
        >>> save_file({"a": a, "b": b}, one / "model.safetensors")
        >>> save_file({"b": b}, two / "1.safetensors"); save_file({"a": a}, two / "2.safetensors")
        >>> weights_hash(one) == weights_hash(two)
        True
    """
    found = {name: place for path in sorted(folder.glob("*.safetensors")) for name, place in tensors(path).items()}
    if not found:
        raise ModelError(f"{folder} holds no *.safetensors file; expected the weights of a model.")
    digest = hashlib.sha256()
    for name in sorted(found):
        path, dtype, shape, start, end = found[name]
        digest.update(f"{name} {dtype} {shape}\n".encode())
        with open(path, "rb") as file:
            file.seek(start)
            while start < end and (chunk := file.read(min(_CHUNK, end - start))):
                digest.update(chunk)
                start += len(chunk)
        if start < end:
            raise ModelError(f"{path} is cut short: tensor {name} misses {end - start} bytes.")
    return digest.hexdigest()


class Stored(NamedTuple):
    """Where a tensor lies: its bytes are those from ``start`` up to, not including, ``end``."""

    path: Path
    dtype: str  # as safetensors names it: F32, BF16, ...
    shape: list[int]
    start: int
    end: int


def tensors(path: Path) -> dict[str, Stored]:
    """The tensors of one safetensors file, by name.

    Raises:
        ModelError: the file cannot be read as one.
    """
    with open(path, "rb") as file:
        try:
            length = int.from_bytes(file.read(8), "little")
            if length > os.path.getsize(path):
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        except ValueError as error:
            raise ModelError(f"{path} cannot be read as safetensors ({error}).") from error
    return {
        name: Stored(path, about["dtype"], about["shape"], *(8 + length + at for at in about["data_offsets"]))
        for name, about in header.items()
        if name != "__metadata__"
    }


def write(folder: Path, about: dict[str, Any]) -> None:
    """Record every file of `folder` by size and hash, beside `about`; files are flushed to disk before the record."""
    files = {}
    for path in sorted(folder.iterdir()):
        files[path.name] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
        _flush(path)
    record = folder / MANIFEST
    record.write_text(json.dumps({**about, "files": files}, indent=2) + "\n", encoding="utf-8")
    _flush(record)


def _flush(path: Path) -> None:
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def read(folder: Path) -> dict[str, Any]:
    """The record of a model folder.

    Raises:
        ModelError: there is none, or it is not readable as one.
    """
    path = folder / MANIFEST
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["files"], record["weights_sha256"]
    except FileNotFoundError as error:
        raise ModelError(f"{path} is missing; a whole model folder has it.") from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ModelError(f"{path} cannot be read as a record of a model folder ({error!r}).") from error
    return record


def problems(folder: Path, full: bool = False) -> list[str]:
    """What is wrong with a model folder, a line each; nothing when it is whole.

    Sizes are compared always (no file is opened); `full=True` compares every hash as well.
    """
    try:
        files = read(folder)["files"]
    except ModelError as error:
        return [str(error)]
    found = []
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{path} is missing")
        elif (size := path.stat().st_size) != expected["bytes"]:
            found.append(f"{path} has {size:,} bytes; expected {expected['bytes']:,}")
        elif full and (digest := file_hash(path)) != expected["sha256"]:
            found.append(f"{path} has sha256 {digest}; expected {expected['sha256']}")
    return found
