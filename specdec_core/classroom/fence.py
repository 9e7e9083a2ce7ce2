"""The kernel of a graded notebook: `python -m specdec_core.classroom.fence KERNEL-ARGUMENTS`.

Before the first cell runs it takes from this process what no answer needs: other files, other processes, the
network. On Linux the system enforces it (`walls`), and nothing in the process can undo it. Everywhere an audit hook
refuses the same; that one can be got round from inside, and stands for an honest class.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .walls import DEVICES, MACHINE, deny_system_calls, drop_privileges, landlock, readable

PLAN = "SPECDEC_FENCE"  # JSON: scratch, hidden, bytes, seconds, port
FILE_BYTES = 64 << 20  # the largest file that can be written


def limit(most_bytes: int, seconds: int) -> None:
    """Bound memory, processor time and the size of files, where the system knows such limits."""
    try:
        import resource
    except ImportError:  # Windows
        return
    bounds = {"RLIMIT_DATA": most_bytes, "RLIMIT_AS": most_bytes + (4 << 30), "RLIMIT_CPU": seconds}
    bounds |= {"RLIMIT_FSIZE": FILE_BYTES, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256}
    for name, most in bounds.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, ValueError, OSError):
            continue  # not on this system; the grader watches from outside as well


def hook(plan: dict[str, Any]) -> Callable[[str, tuple], None]:
    """The audit hook: refuses by name what the fence keeps out."""
    readers = [os.path.realpath(place) for place in readable(plan["hidden"])]
    scratch = [os.path.realpath(plan["scratch"])]
    itself = [*readers, *scratch, f"/proc/{os.getpid()}", *MACHINE, *DEVICES]
    port, me = plan["port"], os.getpid()
    paths = dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2)  # event -> how many paths come first in it
    paths |= dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.truncate", "os.utime"), 1)
    starts = ("subprocess.", "os.system", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "pty.", "os.startfile")
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def inside(path: Any, places: list[str]) -> bool:
        if isinstance(path, int):
            return True  # already open
        try:
            real = os.path.realpath(os.fsdecode(path))
        except (TypeError, ValueError):
            return False
        return any(real == place or real.startswith(place + os.sep) for place in places)

    def refuse(what: str) -> None:
        raise PermissionError(f"the grader does not let an answer {what}")

    def watch(event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & writing:
                if not inside(path, [*scratch, *DEVICES]):
                    refuse(f"write {path}")
            elif not inside(path, itself):
                refuse(f"read {path}")
        elif event in ("os.listdir", "os.scandir"):
            if not inside("." if arguments[0] is None else arguments[0], itself):
                refuse(f"look into {arguments[0]}")
        elif event.startswith(starts):
            refuse("start another process")
        elif event in ("os.kill", "os.killpg") and arguments[0] != me:
            refuse("send signals to other processes")
        elif event in ("socket.connect", "socket.sendto") and arguments[1] and arguments[1][:2] != ("127.0.0.1", port):
            refuse("use the network")
        elif event in paths and not all(inside(path, scratch) for path in arguments[: paths[event]]):
            refuse(f"change {arguments[0]}")

    return watch


def enclose(plan: dict[str, Any]) -> None:
    """Close the fence around this process, for good."""
    limit(plan["bytes"], plan["seconds"])
    drop_privileges()
    landlock(Path(plan["scratch"]), plan["hidden"], plan["port"])
    deny_system_calls()
    sys.addaudithook(hook(plan))


def main() -> None:
    plan = json.loads(os.environ.pop(PLAN))
    # What it needs of what it will not be able to read is loaded before the fence closes.
    from ipykernel.kernelapp import IPKernelApp

    importlib.import_module(".client", __package__)
    place = sys.argv.index("-f") + 1
    sys.argv[place] = shutil.copy(sys.argv[place], plan["scratch"])
    os.chdir(plan["scratch"])
    enclose(plan)
    IPKernelApp.launch_instance()


if __name__ == "__main__":
    main()
