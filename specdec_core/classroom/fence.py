"""The kernel of a graded notebook: `python -m specdec_core.classroom.fence KERNEL-ARGUMENTS`.

Before the first cell runs it takes from this process what no answer needs: other files, other processes, the
network. On Linux the kernel of the system enforces it (Landlock, from version 5.13 on; signals and connections
from 6.12 and 6.7 on), for children too, and nothing in the process can undo it. Everywhere an audit hook refuses
the same; that one can be got round from inside, and stands for an honest class.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PLAN = "SPECDEC_FENCE"  # JSON: scratch, hidden, bytes, seconds, port
_PACKAGE = Path(__file__).resolve().parents[1]
# All of our package that a notebook at grading may read; answers are written, not imported from it.
_OURS = ("__init__.py", "base/__init__.py", "base/errors.py", "base/lazy.py") + tuple(
    f"classroom/{name}.py" for name in ("__init__", "client", "messenger", "wire", "fence")
)
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/dev", "/System", "/Library", "/opt")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/tty")
_READ_FILE, _READ_DIR, _EXECUTE, _WRITE_FILE = 1 << 2, 1 << 3, 1 << 0, 1 << 1
_CREATE, _RULE, _RESTRICT = 444, 445, 446  # the three system calls, the same numbers everywhere


def landlock_version() -> int:
    """The version of Landlock here; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(_CREATE, None, 0, 1))


def readable(hidden: Sequence[str] = ()) -> list[Path]:
    """Files and folders that an answer may read: Python, its packages, the system; none of our own oracles.

    Args:
        hidden: further folders that must not be, wherever they lie: that of the submissions.
    """
    excluded = {_PACKAGE, *(Path(folder).resolve() for folder in hidden)}
    if (_PACKAGE.parent / "pyproject.toml").is_file():
        excluded.add(_PACKAGE.parent)  # a checkout, with the solutions in it
    roots = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix, *_SYSTEM)}
    found = [place for root in sorted(roots) if root.exists() for place in _without(root, excluded)]
    return found + [_PACKAGE / name for name in _OURS]


def _without(root: Path, excluded: set[Path]) -> Iterator[Path]:
    """The parts of a folder that leave some of its descendants out."""
    inner = {place for place in excluded if root == place or root in place.parents}
    if root in inner:
        return
    if not inner:
        yield root
        return
    for child in root.iterdir():
        if not child.is_symlink():  # what it points to has a path of its own
            yield from _without(child, inner)


def limit(plan: dict[str, Any]) -> None:
    """Bound memory, processor time and the size of files, where the system knows such limits."""
    try:
        import resource
    except ImportError:  # Windows
        return
    bounds = {"RLIMIT_DATA": plan["bytes"], "RLIMIT_AS": plan["bytes"] + (4 << 30), "RLIMIT_CPU": plan["seconds"]}
    bounds |= {"RLIMIT_FSIZE": 64 << 20, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 512}
    for name, most in bounds.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, ValueError, OSError):
            continue  # not on this system; the grader watches from outside as well


def landlock(plan: dict[str, Any]) -> None:
    """Enclose this process for good.

    Raises:
        OSError: if the system has Landlock but refuses.
    """
    version = landlock_version()
    if not version:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: Any) -> int:
        result = libc.syscall(number, *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), f"Landlock refused (system call {number})")
        return result

    everything = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    network, scope = (1 << 1 if version >= 4 else 0), (3 if version >= 6 else 0)
    attributes = (ctypes.c_uint64 * 3)(everything, network, scope)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = call(_CREATE, ctypes.byref(attributes), size, 0)

    class Beneath(ctypes.Structure):
        _pack_ = 1
        _layout_ = "ms"
        _fields_ = [("access", ctypes.c_uint64), ("folder", ctypes.c_int32)]

    def allow(path: Path, access: int) -> None:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # not there, or not ours to open
        if not path.is_dir():
            access &= _READ_FILE | _EXECUTE | _WRITE_FILE | (everything & (1 << 14 | 1 << 15))
        call(_RULE, rules, 1, ctypes.byref(Beneath(access, place)), 0)
        os.close(place)

    allow(Path("/"), _READ_DIR)  # names, not contents: without it Python finds no module
    for path in readable(plan["hidden"]):
        allow(path, _READ_FILE | _READ_DIR | _EXECUTE)
    for name in _DEVICES:
        allow(Path(name), _READ_FILE | _WRITE_FILE)
    allow(Path(plan["scratch"]), everything)
    if network:
        call(_RULE, rules, 2, ctypes.byref((ctypes.c_uint64 * 2)(network, plan["port"])), 0)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which restricting oneself asks for
    call(_RESTRICT, rules, 0)
    os.close(rules)


def hook(plan: dict[str, Any]) -> Callable[[str, tuple], None]:
    """The audit hook: refuses by name what the fence keeps out."""
    readers = [os.path.realpath(place) for place in readable(plan["hidden"])]
    scratch = [os.path.realpath(plan["scratch"])]
    devices, port, me = [*_DEVICES, "/dev/shm"], plan["port"], os.getpid()
    paths = dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2)  # event -> how many paths come first in it
    paths |= dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.truncate"), 1)
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
                if not inside(path, [*scratch, *devices]):
                    refuse(f"write {path}")
            elif not inside(path, [*readers, *scratch]):
                refuse(f"read {path}")
        elif event.startswith(starts):
            refuse("start another process")
        elif event in ("os.kill", "os.killpg") and arguments[0] != me:
            refuse("send signals to other processes")
        elif event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][:2] != ("127.0.0.1", port):
            refuse("use the network")
        elif event in paths and not all(inside(path, scratch) for path in arguments[: paths[event]]):
            refuse(f"change {arguments[0]}")

    return watch


def main() -> None:
    plan = json.loads(os.environ.pop(PLAN))
    from ipykernel.kernelapp import IPKernelApp  # what it needs is loaded before the fence closes

    limit(plan)
    landlock(plan)
    sys.addaudithook(hook(plan))
    IPKernelApp.launch_instance()


if __name__ == "__main__":
    main()
