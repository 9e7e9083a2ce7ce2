"""Files that are whole or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all."""
    with whole(path) as unfinished:
        unfinished.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Another name to write a file under; it is renamed to ``path`` in the end, or removed if anything fails."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
