"""How much memory a chapter takes, seen from outside: a small machine, such as Binder's, kills a kernel beyond 2 GB."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import psutil


class PeakOf(Thread):
    """The most bytes that a process and its children held together, until `end`.

    Linux remembers the process's own peak, so that nothing is missed between two looks; elsewhere, and for children,
    what is held at each look counts. Memory that two of them share counts twice.

    Example:
        >>> import os
        >>> PeakOf(os.getpid()).end() > 1 << 20
        True
    """

    _SECONDS = 0.5  # between two looks, which go through all processes

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self._process, self._over, self._peak = psutil.Process(pid), Event(), 0
        self.start()

    def run(self) -> None:
        while True:
            self._look()
            if self._over.wait(self._SECONDS):
                return

    def _look(self) -> None:
        own, others = 0, 0
        with suppress(psutil.Error):  # it ended
            own = self._process.memory_info().rss
            others = sum(child.memory_info().rss for child in self._process.children(recursive=True))
        with suppress(OSError):
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
            own = max(own, *(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")))
        self._peak = max(self._peak, own + others)

    def end(self) -> int:
        self._over.set()
        self.join()
        self._look()
        return self._peak
