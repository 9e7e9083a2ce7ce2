"""Records that show when they were altered: JSON with a ``sha256`` over all its other fields.

Read back, a record is what was written, or it is refused in words. What a folder holds is recorded by size and hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import SpecdecError
from .files import flush

ALWAYS_HASHED = 1 << 24  # bytes: so little is hashed at every opening, in less than 50 ms
SIZES = {str: {"bytes": int, "sha256": str}}  # the shape of what `sizes` returns


def file_hash(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def sizes(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """File name -> its size and hash, once it is flushed to the disk; `differences` compares them."""
    found = {}
    for path in paths:
        flush(path)
        found[path.name] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    return found


def differences(folder: Path, recorded: Mapping[str, Mapping[str, Any]], full: bool) -> list[str]:
    """A line for each file of a folder that is not as `sizes` recorded it.

    Sizes are compared always; hashes of files up to `ALWAYS_HASHED` too, and of larger ones if ``full``.
    """
    found = []
    for name, expected in recorded.items():
        path = folder / name
        try:
            if (size := path.stat().st_size) != expected["bytes"]:
                found.append(f"{path} has {size:,} bytes; expected {expected['bytes']:,}: it was cut short or altered")
            elif (full or size <= ALWAYS_HASHED) and (digest := file_hash(path)) != expected["sha256"]:
                found.append(f"{path} has sha256 {digest}; expected {expected['sha256']}: it was altered")
        except FileNotFoundError:
            found.append(f"{path} is missing")
        except (OSError, ValueError) as error:
            found.append(f"{path} cannot be read ({error})")
    return found


def sealed(record: Mapping[str, Any]) -> str:
    """A record as text.

    Example:
        >>> print(sealed({"tokens": 3}), end="")
        {
          "tokens": 3,
          "sha256": "ea8b638399051ac22819f86719ba315d55afce3927ef4957905abc098e71a710"
        }
    """
    return json.dumps({**record, "sha256": record_hash(record)}, indent=2) + "\n"


def record_hash(record: Mapping[str, Any]) -> str:
    """The sha256 of a record's fields but its own ``sha256``."""
    rest = {name: value for name, value in record.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def unsealed(
    text: str | bytes, shape: Mapping[str, Any], what: str, again: str, error: type[SpecdecError], before: Any = None
) -> dict[str, Any]:
    """The record that `sealed` made a text of, its ``sha256`` included.

    Args:
        text: as it was found.
        shape: its other fields; see `misfit`.
        what, again: what holds it, and what to do if it is damaged, for messages.
        error: of this kind.
        before: the shape, ``sha256`` included, of records from before they were sealed, which are then taken too.

    Raises:
        SpecdecError: of the kind ``error``: for a text that is no record, was altered, or has another shape.

    Example:
        >>> text = sealed({"tokens": 3})
        >>> unsealed(text, {"tokens": int}, "it", "Make it.", SpecdecError)["tokens"]
        3
        >>> unsealed("null", {"tokens": int}, "it", "Make it.", SpecdecError)
        Traceback (most recent call last):
        specdec_core.base.errors.SpecdecError: it cannot be read; expected a record with a sha256, got 'null'. Make it.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f"{what} cannot be read; expected JSON ({problem}). {again}") from problem
    if before and not misfit(record, before):
        return record
    if not isinstance(record, dict) or not isinstance(stated := record.get("sha256"), str):
        raise error(f"{what} cannot be read; expected a record with a sha256, got {text[:60]!r}. {again}")
    if stated != (found := record_hash(record)):
        raise error(f"{what} was altered, or another version wrote it: its sha256 is {found}, not {stated}. {again}")
    if reason := misfit(record, {**shape, "sha256": str}):
        raise error(f"{what} was written by another version: {reason}. {again}")
    return record


def misfit(value: Any, shape: Any, where: str = "") -> str:
    """Why a value that was JSON has not a shape, or "" if it has.

    Args:
        shape: a type or several; ``{"name": shape, ...}``, an object with these names and no other; ``{str: shape}``,
            one with any names; ``[shape]``, a list; or a value, which it must equal.

    Example:
        >>> misfit({"files": {"a": {"bytes": "3"}}}, {"files": {str: {"bytes": int}}})
        "files.a.bytes: expected int, got '3'"
        >>> misfit([1, 2], [int]), misfit(True, int)
        ('', 'expected int, got True')
    """
    if isinstance(shape, (type, tuple)):
        kinds = shape if isinstance(shape, tuple) else (shape,)
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
    elif isinstance(shape, dict):
        fits, expected = isinstance(value, dict), "an object"
        if fits and str not in shape and (missing := shape.keys() ^ value.keys()):
            fits, expected = False, f"the names {', '.join(sorted(shape))}"
            value = f"another set, which differs in {', '.join(sorted(missing))}"
        elif fits:
            below = ((one, shape.get(str, shape.get(name)), f"{where}.{name}") for name, one in value.items())
            return next(filter(None, (misfit(*each) for each in below)), "")
    elif isinstance(shape, list):
        fits, expected = isinstance(value, list), "a list"
        if fits:
            below = ((one, shape[0], f"{where}.{number}") for number, one in enumerate(value))
            return next(filter(None, (misfit(*each) for each in below)), "")
    else:
        fits, expected = type(value) is type(shape) and value == shape, repr(shape)
    return "" if fits else f"{where.lstrip('.')}: expected {expected}, got {value!r:.80}".removeprefix(": ")
