"""The two limits of this machine that no forward can beat, measured: reading memory, multiplying matrices.

`theory.roofline` turns them into seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

READ_BYTES = 256 << 20  # far larger than a processor's caches
SIZES = {"cuda": 8192, "mps": 4096}  # sides of the square matrices; 1536 on a CPU


@dataclass(frozen=True)
class Limits:
    """What the machine can do.

    Attributes:
        bandwidth: bytes read from memory per second.
        flops: floating-point operations per second in a matrix product, a multiply-add being two.
    """

    bandwidth: float
    flops: float


def measure_limits(
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    repeats: int = 5,
    clock: Callable[[], float] = perf_counter,
) -> Limits:
    """Sum an array of 256 MiB, and multiply two square matrices of ``dtype``; of each the best of some runs.

    The best, because a limit is what the machine can do, not what it does while others use it. On a CPU both
    use torch's threads.

    Raises:
        ValueError: for less than 1 repeat.

    Example:
        >>> limits = measure_limits(repeats=1)
        >>> limits.bandwidth > 1e8 and limits.flops > 1e8
        True
    """
    if repeats < 1:
        raise ValueError(f"at least 1 repeat is needed; got {repeats}")
    device = torch.device(device)
    array = torch.ones(READ_BYTES // 4, device=device)
    read = _best(array.sum, repeats, clock)
    del array
    size = SIZES.get(device.type, 1536)
    matrix = torch.ones(size, size, device=device, dtype=dtype)
    multiplied = _best(lambda: (matrix @ matrix)[0, 0], repeats, clock)
    return Limits(READ_BYTES / read, 2 * size**3 / multiplied)


def _best(job: Callable[[], torch.Tensor], repeats: int, clock: Callable[[], float]) -> float:
    """The least seconds of a job that gives one number; reading it makes a GPU finish first."""
    job().item()
    seconds = []
    for _ in range(repeats):
        start = clock()
        job().item()
        seconds.append(clock() - start)
    return min(seconds)
