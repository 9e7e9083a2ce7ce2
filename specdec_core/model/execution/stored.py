"""Rows of an embedding read from the model's file when they are needed, instead of held in memory.

A vocabulary projection is often the embedding itself. Packed for the matrix kernels it can no longer be read by rows,
and a second copy for that would be a fifth of the default model. A row of it is two kilobytes of the file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .. import manifest

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_CHECKED = 128  # rows compared at a time


class StoredRows:
    """A matrix (V, D) that lies in a file, in whatever floating type; rows come in the type asked for.

    Args:
        path: the file.
        start: byte at which the matrix begins, row by row.
        stored: its type there.
        shape: (V, D).
        dtype: of the rows handed out, rounded as `Tensor.to` rounds.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows"
        >>> _ = path.write_bytes(torch.arange(6.0).numpy().tobytes())
        >>> StoredRows(path, 0, torch.float32, (3, 2), torch.float64)(torch.tensor([2, 0]))
        tensor([[4., 5.],
                [0., 1.]], dtype=torch.float64)
    """

    def __init__(self, path: Path, start: int, stored: torch.dtype, shape: tuple[int, int], dtype: torch.dtype):
        self._file, self._start, self._stored = open(path, "rb", buffering=0), start, stored  # noqa: SIM115
        self.shape, self.dtype = shape, dtype
        self._row_bytes = shape[1] * stored.itemsize

    def __call__(self, ids: Tensor) -> Tensor:
        """(n, D) rows of the ids (n,)."""
        buffer = bytearray(len(ids) * self._row_bytes)
        view = memoryview(buffer)
        for place, row in enumerate(ids.tolist()):
            self._file.seek(self._start + row * self._row_bytes)
            self._file.readinto(view[place * self._row_bytes : (place + 1) * self._row_bytes])
        return torch.frombuffer(buffer, dtype=self._stored).view(len(ids), -1).to(self.dtype)

    def equals(self, matrix: Tensor) -> bool:
        """Whether the file holds exactly this matrix (V, D), once rounded."""
        if tuple(matrix.shape) != self.shape:
            return False
        starts = range(0, self.shape[0], _CHECKED)
        parts = (torch.arange(start, min(start + _CHECKED, self.shape[0])) for start in starts)
        return all(torch.equal(self(rows), matrix[rows[0] : rows[-1] + 1]) for rows in parts)


def find(model: PreTrainedModel, matrix: Tensor) -> StoredRows | None:
    """A parameter (V, D) of the model in the folder it was loaded from; None if it is not there, or differs."""
    folder = Path(model.name_or_path or "-")
    name = next((name for name, weight in model.named_parameters() if weight is matrix), None)
    for path in sorted(folder.glob("*.safetensors")):
        place = manifest.tensors(path).get(name or "")
        if place and place.dtype in _DTYPES and len(place.shape) == 2:
            rows = StoredRows(path, place.start, _DTYPES[place.dtype], (place.shape[0], place.shape[1]), matrix.dtype)
            return rows if rows.equals(matrix.detach()) else None
    return None
