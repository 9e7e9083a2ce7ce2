"""Our own code in a process of its own: started bare, and bounded where it reads what was handed in."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from .fence import limit

_KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TMPDIR")
MOST_BYTES, MOST_SECONDS = 1 << 30, 60
TOO_MUCH, _NO_MEMORY = "it takes more than", 77  # an exit status


def start_ours(name: str, *arguments: str, **options: Any) -> subprocess.Popen:
    """Start a module of this room, with nothing in its environment that an answer could look for."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    bare = {name: os.environ[name] for name in _KEPT if name in os.environ}
    command = [sys.executable, "-m", f"{__package__}.{name}", *arguments]
    return subprocess.Popen(command, env=bare, start_new_session=True, **streams)


def apart(name: str, *arguments: str) -> Any:
    """What a module of this room answers, from a process with bounds; a text that says why there is no answer."""
    process = start_ours(name, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        data, _ = process.communicate(timeout=MOST_SECONDS + 30)
        return json.loads(data)
    except (subprocess.TimeoutExpired, ValueError) as error:
        if isinstance(error, ValueError) and process.wait() not in (_NO_MEMORY, -signal.SIGXCPU, -signal.SIGKILL):
            return f"our {name} ended with status {process.returncode}"
        return f"{TOO_MUCH} {MOST_BYTES >> 30} GiB of memory or {MOST_SECONDS} seconds"
    finally:
        process.kill()
        process.wait()


def out_of_sight(hide: bool = True) -> None:
    """On Linux: no other process without privileges looks into this one, root's among them: not at its environment."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, not hide, 0, 0, 0)  # PR_SET_DUMPABLE


def die_with_parent() -> None:
    """On Linux: when the process that started this one is gone, however it ended, so is this one with its children."""

    def die(*about: Any) -> None:
        for process in psutil.Process().children(recursive=True):
            process.kill()
        os._exit(1)

    if sys.platform == "linux":
        signal.signal(signal.SIGTERM, die)
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG


@contextmanager
def answering() -> Iterator[Callable[[Any], None]]:
    """The other side of `apart`: with its bounds, and a way to answer."""
    die_with_parent()
    limit(MOST_BYTES, MOST_SECONDS)
    try:
        yield lambda answer: print(json.dumps(answer))
    except MemoryError:
        os._exit(_NO_MEMORY)
