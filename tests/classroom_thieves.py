"""What an answer may try against its neighbours, its grader and its machine: attacks in C, past Python's own hooks.

Run as ``python classroom_thieves.py ATTACK HOLES PLAN``: closes the fence, but for the walls in HOLES, then attacks.
It prints "won" or "lost". PLAN is the fence's, in JSON, with the file of a ``victim`` and the ports of two servers.
"""

import ctypes
import json
import os
import socket
import struct
import sys

from specdec_core.classroom import fence

libc = ctypes.CDLL(None, use_errno=True)
READ = ("landlock",)
CALLS = ("deny_system_calls",)
BOTH = READ + CALLS
PEERS = (*READ, "drop_privileges")  # root without its privileges may not look at root with them
ROOTS = ("drop_privileges", "deny_system_calls")


def _open(path, flags=0):
    return libc.open(os.fsencode(path), flags) >= 0


def _call(*numbers):
    """A system call by its numbers on x86-64 and aarch64."""
    return lambda *arguments: libc.syscall(numbers[os.uname().machine == "aarch64"], *arguments)


def _prlimit(pid, limit, pair):
    return libc.prlimit(pid, limit, pair, None) == 0


def _memory_files(plan):
    made = [libc.memfd_create(b"m", 0) for _ in range(3)]
    return all(file >= 0 and os.write(file, b"x" * 4096) for file in made)


def _segments(plan):
    segment = libc.shmget(0, 1 << 20, 0o1600)
    return segment >= 0 and libc.shmctl(segment, 0, None) == 0


def _messages(plan):
    queue = libc.msgget(0, 0o1600)
    return queue >= 0 and libc.msgctl(queue, 0, None) == 0


def _mode(plan):
    libc.chmod(os.fsencode(plan["victim"]), 0o640)
    return os.stat(plan["victim"]).st_mode & 0o777 == 0o640


def _attribute(plan):
    libc.utimes(os.fsencode(plan["victim"]), struct.pack("=4q", 1, 0, 1, 0))
    return os.stat(plan["victim"]).st_mtime == 1


def _unix(plan):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(plan["service"])
    return True


def _tcp(plan):
    with socket.create_connection(("127.0.0.1", plan["other_port"]), timeout=1):
        return True


def _udp(plan):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return one.sendto(b"answers", ("127.0.0.1", plan["other_port"])) == 7


def _start(plan):
    libc.execv(b"/bin/echo", (ctypes.c_char_p * 3)(b"echo", b"won", None))


def _fork(plan):
    child = libc.fork()
    if child == 0:
        os._exit(0)
    return child > 0


def _shared(plan):
    libc.mmap.restype = ctypes.c_void_p
    return libc.mmap(None, ctypes.c_size_t(1 << 20), 3, 0x21, -1, ctypes.c_long(0)) not in (None, 2**64 - 1)


def _rename(plan):
    name = os.uname()[1].encode()
    return libc.sethostname(name, len(name)) == 0


def _names(plan):
    libc.opendir.restype = ctypes.c_void_p
    return bool(libc.opendir(os.fsencode(os.path.dirname(plan["victim"]))))


def _device(plan):
    return libc.mknod(b"device", 0o020600, os.makedev(1, 3)) == 0


def _large(plan):
    file = libc.open(b"large", os.O_RDWR | os.O_CREAT, 0o600)
    ctypes.CDLL(None).signal(25, 1)  # SIGXFSZ ignored
    return libc.ftruncate(file, ctypes.c_long(fence.FILE_BYTES + 1)) == 0


def _look(plan):
    word = ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(word), 8)
    with open(f"/proc/{os.getppid()}/maps") as maps:
        remote = (ctypes.c_size_t * 2)(int(maps.readline().split("-")[0], 16), 8)
    return libc.process_vm_readv(os.getppid(), local, 1, remote, 1, 0) == 8


# name -> (the walls without which it wins, the attack)
ATTACKS = {
    # of the guide
    "a neighbour's file": (READ, lambda plan: _open(plan["victim"])),
    "the solutions": (READ, lambda plan: _open(plan["solution"])),
    "the examiners": (READ, lambda plan: _open(plan["examiner"])),
    "a temporary file": (READ, lambda plan: _open(plan["temporary"])),
    "the grader's environment": (PEERS, lambda plan: _open(f"/proc/{os.getppid()}/environ")),
    "the accounts of the machine": (READ, lambda plan: _open("/etc/passwd")),
    "overwriting a neighbour": (READ, lambda plan: _open(plan["victim"], os.O_WRONLY)),
    "removing a neighbour": (READ, lambda plan: libc.unlink(os.fsencode(plan["victim"])) == 0),
    "another port": (READ, _tcp),
    "the name of the machine": (ROOTS, _rename),
    "another root": (ROOTS, lambda plan: libc.chroot(b".") == 0),
    "files in memory": (CALLS, _memory_files),
    "shared segments": (CALLS, _segments),
    "signals": (BOTH, lambda plan: libc.kill(os.getppid(), 0) == 0),
    "another's memory": (PEERS + CALLS, _look),
    # further ones
    "a module for the grader": (READ, lambda plan: _open(f"{plan['scratch']}/../json.py", os.O_WRONLY | os.O_CREAT)),
    "names of the neighbours": (READ, _names),
    "limits of the grader": (CALLS, lambda plan: _prlimit(os.getppid(), 4, struct.pack("=2q", 0, 0))),
    "a device of the machine": (("drop_privileges",), _device),
    "a neighbour's mode": (CALLS, _mode),
    "a neighbour's time": (CALLS, _attribute),
    "a service's socket": (CALLS, _unix),
    "datagrams": (CALLS, _udp),
    "message queues": (CALLS, _messages),
    "keys of the system": (CALLS, lambda plan: _call(248, 217)(b"user", b"specdec", b"answers", 7, -2) > 0),
    "another process": (CALLS, _fork),
    "a program": (BOTH, _start),
    "shared memory of no file": (CALLS, _shared),
    "watching a folder": (CALLS, lambda plan: libc.inotify_init() >= 0),
    "hiding from the grader": (CALLS, lambda plan: libc.prctl(4, 0, 0, 0, 0) == 0),
    "rings of calls": (CALLS, lambda plan: _call(425, 425)(4, ctypes.create_string_buffer(120)) >= 0),
    "a file without end": (("limit",), _large),
}


def main():
    name, holes, plan = sys.argv[1], sys.argv[2].split(), json.loads(sys.argv[3])
    for hole in holes:
        setattr(fence, hole, lambda *arguments: None)
    sys.addaudithook = lambda hook: None
    os.chdir(plan["scratch"])
    fence.enclose(plan)
    try:
        won = ATTACKS[name][1](plan)
    except OSError:
        won = False
    print("won" if won else "lost")


if __name__ == "__main__":
    main()
