"""A submission's processes, watched from outside: their time, number, memory and files; and their end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from .scratch import used


@dataclass(frozen=True)
class Limits:
    """What a submission may take. Units: seconds, bytes, processes."""

    cell_seconds: float = 20.0
    seconds: float = 180.0
    bytes: int = 2 << 30
    processes: int = 16
    file_bytes: int = 1 << 30


class Watcher(threading.Thread):
    """Ends a submission's processes when they exceed their bounds; ``reason`` says which one."""

    def __init__(self, pid: int, limits: Limits, seconds: float, desk: Path):
        super().__init__(daemon=True)
        self._pid, self._limits, self._seconds, self._desk = pid, limits, seconds, desk
        self._over = threading.Event()
        self.reason, self.peak = "", 0

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        deadline, turn = time.monotonic() + self._seconds, 0
        while not self._over.wait(0.1):
            processes, held = descendants(self._pid), 0
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    held += process.memory_info().rss
            self.peak, turn = max(self.peak, held), turn + 1
            if len(processes) > self._limits.processes:
                self.reason = f"it started more than {self._limits.processes} processes"
            elif held > self._limits.bytes + (1 << 29):
                self.reason = f"it took more than {self._limits.bytes / 2**30:.1f} GiB of memory"
            elif turn % 3 == 0 and used(self._desk) + sum(map(_unnamed, processes)) > self._limits.file_bytes:
                self.reason = f"it wrote more than {self._limits.file_bytes / 2**30:.1f} GiB of files, or too many"
            elif time.monotonic() > deadline:
                self.reason = "it took longer than a submission may"
            if self.reason:
                end(self._pid)
                return


def _unnamed(process: psutil.Process) -> int:
    """Bytes of the files that a process holds open though they have no name any more (Linux)."""
    total, folder = 0, f"/proc/{process.pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                file = os.stat(f"{folder}/{name}")
                total += 0 if file.st_nlink else file.st_blocks * 512
    return total


def descendants(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def end(pid: int) -> None:
    """End a process and all that it started: first stop them all, so that none can start another meanwhile."""
    seen: dict[int, psutil.Process] = {}
    for _ in range(50):
        fresh = [process for process in descendants(pid) if process.pid not in seen]
        if not fresh:
            break
        for process in fresh:
            seen[process.pid] = process
            with contextlib.suppress(psutil.Error):
                process.suspend()
    for process in reversed(seen.values()):
        with contextlib.suppress(psutil.Error):
            process.kill()
