"""What a measurement ran on: the machine by its properties, the versions, the commit; and peak memory.

Nothing here names a host, a user or a folder: a record is meant to be published.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..model.hardware import give_back

# The instructions that decide how fast a forward is on a CPU; /proc/cpuinfo lists a hundred others.
_TELLING = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"}
_TELLING |= {"amx_tile", "amx_bf16", "amx_int8", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"}


def describe(device: torch.device | str = "cpu") -> dict[str, Any]:
    """The machine's properties: system, architecture, CPU (cores, instructions), memory, GPU, versions.

    Example:
        >>> sorted(describe())
        ['architecture', 'cpu', 'gpu', 'memory_bytes', 'system', 'versions']
        >>> describe()["cpu"]["logical_cores"] >= 1
        True
    """
    import psutil

    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu": {**_cpu(), "physical_cores": psutil.cpu_count(logical=False), "logical_cores": psutil.cpu_count()},
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": _gpu(torch.device(device)),
        "versions": versions(),
    }


def in_words(machine: dict[str, Any]) -> str:
    """One line for a caption.

    Example:
        >>> cpu = {"model": "AMD EPYC", "features": ["avx2", "avx512_bf16"], "logical_cores": 2}
        >>> in_words({"cpu": cpu, "memory_bytes": 16 << 30, "gpu": None, "system": "Linux"})
        'AMD EPYC, 2 logical cores (avx512_bf16), 16 GiB, Linux'
    """
    cpu, gpu = machine["cpu"], machine["gpu"]
    matrix = [flag for flag in cpu["features"] if flag.startswith("amx_") or "bf16" in flag]
    telling = matrix or [flag for flag in ("avx512f", "avx2", "asimd") if flag in cpu["features"]][:1]
    words = f"{cpu['model']}, {cpu['logical_cores']} logical cores"
    words += f" ({', '.join(telling)})" if telling else ""
    words += f", {machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}"
    return f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB), {words}" if gpu else words


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    import numpy
    import transformers

    from .. import __version__

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
        "specdec": __version__,
    }


def commit() -> dict[str, Any] | None:
    """The commit of the checkout this package runs from, and whether tracked files of it were changed.

    None where the package is installed, or git is not there: a virtual environment may lie inside
    somebody else's checkout, whose commit would say nothing about this package.
    """
    folder = Path(__file__).resolve().parents[1]
    if _printed(["git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py"]) is None:
        return None
    head = _printed(["git", "-C", str(folder), "rev-parse", "HEAD"])
    changed = _printed(["git", "-C", str(folder), "status", "--porcelain", "--", "."])
    return {"hash": head, "dirty": bool(changed)} if head else None


class PeakMemory:
    """The most memory held at once since `reset`: of the device on CUDA, of this process elsewhere.

    Attributes:
        meaning: what `bytes` returns here, for the record. Where the system cannot forget an earlier
            peak (macOS, Windows), the number is the process's peak since its start.

    Example:
        >>> memory = PeakMemory("cpu")
        >>> memory.reset()
        >>> memory.bytes() > 1 << 20
        True
    """

    def __init__(self, device: torch.device | str):
        self._device, during = torch.device(device), "during the method's runs, weights included"
        if self._device.type == "cuda":
            self.meaning = f"peak of the tensors on the CUDA device {during}"
        else:
            since = during if _forget_peak() else "since its start (this system keeps no later one)"
            self.meaning = f"peak resident set of the process {since}"

    def reset(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            _forget_peak()

    def bytes(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return peak_resident()


def _forget_peak() -> bool:
    """Linux: set the process's peak back to what it holds now. Elsewhere: nothing, and False.

    Memory that was freed and kept is returned first, or what is held next would lie in it unseen.
    """
    give_back()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM, which getrusage reports
        return True
    return False


def peak_resident() -> int:
    """Bytes of this process's largest resident set so far, or since `PeakMemory.reset` where the system allows it."""
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, KiB on Linux


def _cpu() -> dict[str, Any]:
    name, flags = platform.processor(), set()
    if platform.system() == "Darwin":
        name = _printed(["sysctl", "-n", "machdep.cpu.brand_string"]) or name
        flags = {"asimd"} if platform.machine() == "arm64" else set()
        if _printed(["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]) == "1":
            flags.add("bf16")
    elif os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = {
                key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed([*file]))
            }
        name = lines.get("model name", name)
        flags = set(lines.get("flags", lines.get("Features", "")).split())
    return {"model": name or platform.machine(), "features": sorted(flags & _TELLING)}


def _gpu(device: torch.device) -> dict[str, Any] | None:
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        return {"name": about.name, "memory_bytes": about.total_memory, "cuda": torch.version.cuda}
    if device.type == "mps":
        return {"name": "Apple GPU", "memory_bytes": torch.mps.recommended_max_memory(), "cuda": None}
    return None


def _printed(command: list[str]) -> str | None:
    """The first line that a command printed; None where it failed or is not installed."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (ran.stdout.strip().splitlines() or [""])[0] if ran.returncode == 0 else None
