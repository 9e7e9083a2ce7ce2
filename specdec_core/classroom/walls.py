"""What a graded notebook's kernel is enclosed by: Landlock for files and connections, seccomp for system calls.

Both say what is allowed or denied to the process and to all that it starts, and nothing in the process undoes them.
The list of files is a list of what may be read (`readable`): the interpreter, its packages, the system's libraries.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]  # with the examiners in it
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/System/Library")
_LIBRARIES += ("/Library/Frameworks", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
# Of /proc only what says how large the machine is, and what the process may know of itself.
MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory", "/sys/devices/system")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_READ_FILE, _READ_DIR, _WRITE_FILE = 1 << 2, 1 << 3, 1 << 1
_CREATE, _RULE, _RESTRICT = 444, 445, 446  # the three system calls of Landlock, the same numbers everywhere

# System calls that no answer needs, with their numbers on x86-64 and on aarch64 (-1: there is none of that name).
# Refused: memory that nobody counts or that outlives its process; other processes, to be started, looked into or
# ended; the system at large; watching folders.
_REFUSED = """
    memfd_create 319 279, memfd_secret 447 447, shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186, mq_open
    240 180, add_key 248 217, request_key 249 218, keyctl 250 219, io_uring_setup 425 425, userfaultfd 323 282, fork
    57 -1, vfork 58 -1, execve 59 221, execveat 322 281, ptrace 101 117, process_vm_readv 310 270, process_vm_writev
    311 271, process_madvise 440 440, kcmp 312 272, pidfd_open 434 434, pidfd_getfd 438 438, pidfd_send_signal 424
    424, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, setpgid 109 154, mount 165 40, umount2
    166 39, pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268, sethostname 170 161, setdomainname 171
    162, bpf 321 280, perf_event_open 298 241, syslog 103 116, fsopen 430 430, open_tree 428 428, move_mount 429
    429, mount_setattr 442 442, inotify_init 253 -1, inotify_init1 294 26, fanotify_init 300 262, open_by_handle_at
    304 265
"""
# Without effect, but no error: marks of files, which Landlock leaves to their owner, and turns on the processor.
_IDLE = """
    chmod 90 -1, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -1, fchown 93 55, lchown 94 -1, fchownat
    260 54, utime 132 -1, utimes 235 -1, futimesat 261 -1, utimensat 280 88, setxattr 188 5, lsetxattr 189 6,
    fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, setxattrat 463 463, removexattrat
    466 466, setpriority 141 140, ioprio_set 251 30, sched_setscheduler 144 119, sched_setparam 142 118,
    sched_setattr 314 274, sched_setaffinity 203 122
"""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # place in the pairs, number of its own


def landlock_version() -> int:
    """The version of Landlock here; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(_CREATE, None, 0, 1))


def has_seccomp() -> bool:
    """Whether system calls can be denied here."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(22, 2, None, 0, 0) < 0 and ctypes.get_errno() == 14  # a filter at no address: EFAULT if known


def described() -> str:
    """What encloses a notebook here, in words."""
    version = landlock_version()
    walls = [f"Landlock {version}"] * bool(version) + ["seccomp"] * has_seccomp()
    words = f"fenced by {' and '.join(walls)}" if walls else "fenced by an audit hook only: see the teacher's guide"
    if version and not has_seccomp():
        words += "; shared memory is not counted: see the teacher's guide"
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return words + ("; RUN AS ROOT: its capabilities were dropped, an ordinary user is safer" if root else "")


def readable(hidden: Sequence[str] = ()) -> list[Path]:
    """Files and folders that an answer may read: the interpreter's own, its packages, and the system's libraries.

    Args:
        hidden: folders that must not be, wherever they lie: that of the submissions.
    """
    roots = {Path(place) / lib for place in (sys.prefix, sys.base_prefix) for lib in ("lib", "lib64")}
    roots |= {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {Path(place) for place in sys.path if Path(place).name in ("site-packages", "dist-packages")}
    roots = {root.resolve() for root in (*roots, *map(Path, _LIBRARIES))}
    excluded = {_PACKAGE, *(Path(folder).resolve() for folder in hidden)}
    return [place for root in sorted(roots) if root.exists() for place in _without(root, excluded)]


def _without(root: Path, excluded: set[Path]) -> Iterator[Path]:
    """The parts of a folder that leave some of its descendants out."""
    if any(place == root or place in root.parents for place in excluded):
        return
    inner = {place for place in excluded if root in place.parents}
    if not inner:
        yield root
        return
    for child in root.iterdir():
        if not child.is_symlink():  # what it points to has a path of its own
            yield from _without(child, inner)


def drop_privileges() -> None:
    """On Linux: no capability, now or after starting a program; what root could do beyond its own files is gone."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        with suppress(OSError):
            os.setgroups([])
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which both walls ask for


def landlock(scratch: Path, hidden: Sequence[str], port: int) -> None:
    """Enclose this process for good: it reads what is `readable`, writes its scratch folder, connects to one port.

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
    rules = call(_CREATE, ctypes.byref(attributes), 8 if version < 4 else 16 if version < 6 else 24, 0)

    class Beneath(ctypes.Structure):
        _pack_ = 1
        _layout_ = "ms"
        _fields_ = [("access", ctypes.c_uint64), ("folder", ctypes.c_int32)]

    def allow(paths: Iterable[Path | str], access: int) -> None:
        for path in paths:
            with suppress(OSError):  # not there, or not ours to open
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                of_file = _READ_FILE | _WRITE_FILE | (everything & (1 << 14 | 1 << 15))
                granted = access if os.path.isdir(path) else access & of_file
                call(_RULE, rules, 1, ctypes.byref(Beneath(granted, place)), 0)
                os.close(place)

    allow([*readable(hidden), *MACHINE, "/proc/self"], _READ_FILE | _READ_DIR)
    allow(DEVICES, _READ_FILE | _WRITE_FILE)
    allow([scratch], everything)
    if network:
        call(_RULE, rules, 2, ctypes.byref((ctypes.c_uint64 * 2)(network, port)), 0)
    call(_RESTRICT, rules, 0)
    os.close(rules)


def deny_system_calls() -> None:
    """Let the system refuse what no answer needs: other processes, memory that nobody counts, odd sockets."""
    if not has_seccomp():
        return
    code = program()
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.c_char_p(filters), 0, 0) < 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp refused")


def program() -> bytes:
    """The filter of system calls, for this machine and this process, in the kernel's BPF."""
    place, architecture = _ARCHITECTURES[platform.machine()]
    allow, refuse, unknown = _op(0x06, 0x7FFF0000), _op(0x06, 0x00050001), _op(0x06, 0x00050026)  # EPERM, ENOSYS
    code = [_op(0x20, 4), _op(0x15, architecture, 1, 0), refuse, _op(0x20, 0)]
    code += [_op(0x35, 0x40000000, 0, 1), refuse]  # another way of numbering them
    for group, answer in ((_REFUSED, refuse), (_IDLE, _op(0x06, 0x00050000))):
        for entry in group.split(","):
            number = int(entry.split()[1 + place])
            code += [_op(0x15, number, 0, 1), answer] * (number >= 0)

    def where(pair: tuple[int, int], *test: bytes) -> None:
        """For one system call: a test that ends by refusing, or falls off its end, which allows."""
        code.extend([_op(0x15, pair[place], 0, len(test) + 1), *test, allow])

    def argument(number: int) -> bytes:
        return _op(0x20, 16 + 8 * number)

    me = os.getpid()
    code += [_op(0x15, 435, 0, 1), unknown]  # clone3 hides its flags; libraries go on with clone
    where((56, 220), argument(0), _op(0x45, 0x10000, 1, 0), refuse)  # clone: threads only
    where((9, 222), argument(3), _op(0x54, 0x21), _op(0x15, 0x21, 0, 1), refuse)  # mmap: shared and of no file
    where((157, 167), argument(0), _op(0x15, 4, 0, 1), refuse)  # prctl: remaining visible to the grader
    for pair in ((302, 261), (62, 129), (234, 131)):  # prlimit64, kill, tgkill: oneself
        where(pair, argument(0), _op(0x15, 0, 2, 0), _op(0x15, me, 1, 0), refuse)
    # socket: TCP over IP; and what the notebook's own sockets ask for addresses
    routes = [_op(0x15, 16, 0, 3), argument(2), _op(0x15, 0, 0, 1), allow]
    over_ip = [argument(0), _op(0x15, 2, 2, 0), _op(0x15, 10, 1, 0), refuse]
    stream = [argument(1), _op(0x54, 0xF), _op(0x15, 1, 1, 0), refuse]
    where((41, 198), argument(0), *routes, *over_ip, *stream)
    return b"".join([*code, allow])


def _op(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
