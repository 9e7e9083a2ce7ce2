"""What a whole model folder holds: the record that tells it from half of one.

`specdec-model.json` is written last, after every other file; a folder without it is not a model of
ours, and one whose files differ from it is named, file by file.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from specdec_core.base.errors import ModelError
from specdec_core.base.files import write as write_file
from specdec_core.base.records import SIZES, differences, misfit, sealed, sizes, unsealed

MANIFEST = "specdec-model.json"
_CHUNK = 1 << 20
_SHAPE = {"source": str, "wheel_sha256": str, "gguf_sha256": str, "weights_sha256": str, "files": SIZES}
_TENSORS = {str: {"dtype": str, "shape": [int], "data_offsets": [int]}}


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
            for size in [*[_CHUNK] * ((end - start) // _CHUNK), (end - start) % _CHUNK]:
                digest.update(file.read(size))
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
            length, size = 8 + int.from_bytes(file.read(8), "little"), os.path.getsize(path)
            if length > size:
                raise ValueError(f"a header of {length - 8} bytes")
            header = json.loads(file.read(length - 8))
            if isinstance(header, dict):
                header.pop("__metadata__", None)
            if reason := misfit(header, _TENSORS):
                raise ValueError(reason)
            found = {}
            for name, about in header.items():
                start, end = (length + at for at in about["data_offsets"])
                if not length <= start <= end:
                    raise ValueError(f"tensor {name} at {start} to {end}")
                found[name] = Stored(path, about["dtype"], about["shape"], start, end)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} cannot be read as safetensors ({error}). Get the file anew.") from error
    if (missing := max((stored.end for stored in found.values()), default=0) - size) > 0:
        raise ModelError(f"{path} is cut short: it misses {missing} bytes. Get the file anew.")
    return found


def write(folder: Path, about: dict[str, str]) -> None:
    """Record every file of `folder` by size and hash, beside `about`; files are flushed to disk before the record."""
    write_file(folder / MANIFEST, sealed({**about, "files": sizes(sorted(folder.iterdir()))}))


def read(folder: Path) -> dict[str, Any]:
    """The record of a model folder; without a ``sha256`` it is an older one, which its files must bear out.

    Raises:
        ModelError: there is none, or it is not as it was written.
    """
    path = folder / MANIFEST
    try:
        return unsealed(path.read_bytes(), _SHAPE, str(path), "Fetch or copy the model again.", ModelError, _SHAPE)
    except FileNotFoundError as error:
        raise ModelError(f"{path} is missing; a whole model folder has it.") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error}).") from error


def problems(folder: Path, full: bool = False) -> list[str]:
    """What is wrong with a model folder, a line each; nothing when it is whole.

    Sizes are compared always, and hashes of small files; `full=True` compares every hash. An older record has no hash
    of its own: everything is compared once, and then it is given one, if the folder may be written.
    """
    try:
        record = read(folder)
    except ModelError as error:
        return [str(error)]
    old = "sha256" not in record
    found = differences(folder, record["files"], full or old)
    if old and not found:
        if weights_hash(folder) != record["weights_sha256"]:
            return [f"{folder / MANIFEST} was altered: its weights have another hash"]
        with suppress(OSError):
            write_file(folder / MANIFEST, sealed(record))
    return found
