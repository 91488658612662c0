"""How processes give up, for good, what a reward program must not have. It runs before the program does.

The worker gives up what its children never need (`enter`), then each child locks itself (`lock`). Two layers:

* `seccomp`, in each child: the kernel answers EPERM to every system call but the few that computing needs. No file can
  be opened, no socket, process or thread made, nobody signalled. Without it the caller refuses.
* `namespaces`, in the worker, where the kernel lets us: an empty network, and an empty directory as the root of all
  files. For root also another user. Alone it does without files, network and processes, but not without signals.

Besides: limits of CPU, memory, processes, files and output; no core dump; dies with its parent. Linux on x86-64 and
ARM64; elsewhere nothing holds, and the caller refuses. Only the standard library: the worker has no other.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import resource
import signal
import struct

NOBODY = 65534
FILES = 5
"""Files of a locked process: input, output, errors, and a pipe to and from the worker."""
_NEWNET, _NEWIPC, _NEWUTS, _NEWNS, _NEWUSER = 0x40000000, 0x08000000, 0x04000000, 0x00020000, 0x10000000
_PDEATHSIG, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVS = 1, 4, 22, 38
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000

CALLS = {  # name: (x86-64, ARM64)
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "mmap": (9, 222),
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sched_yield": (24, 124), "mremap": (25, 216),
    "madvise": (28, 233), "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93), "gettimeofday": (96, 169),
    "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_nanosleep": (230, 115), "exit_group": (231, 94), "getrandom": (318, 278),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def enter(scratch: str, *, layers: tuple[str, ...]) -> bool:
    """Drops this process's rights to files (but `scratch`), network and user by `layers`; whether namespaces hold.

    Args:
        scratch: An empty directory, the new root of all files.
        layers: Layers to try, of "namespaces" and "seccomp".

    Returns:
        Whether the layer `namespaces` holds.
    """
    os.chdir(scratch)
    namespaces = "namespaces" in layers and _enter_nothing()
    if os.geteuid() == 0:
        _become_nobody()
    _drop_capabilities()
    _set_options()
    _filters()  # made here, once for all children
    return namespaces


def lock(*, cpu: int, memory: int, output: int, layers: tuple[str, ...]) -> bool:
    """Limits this process: `cpu` seconds, memory, `output` bytes per file, by `layers` system calls; if seccomp holds.

    Args:
        cpu: Seconds of CPU time.
        memory: Bytes of address space.
        output: Largest file, in bytes.
        layers: Layers to try, of "namespaces" and "seccomp".

    Returns:
        Whether the layer `seccomp` holds.
    """
    _limit(cpu, memory, output)
    _set_options()
    return "seccomp" in layers and _filter()


def _set_options() -> None:
    """Die with the parent, be closed to debuggers, and gain no rights by starting a program."""
    for option, value in ((_PDEATHSIG, signal.SIGKILL), (_DUMPABLE, 0), (_NO_NEW_PRIVS, 1)):
        _libc().prctl(option, int(value), 0, 0, 0)


def _enter_nothing() -> bool:
    """No network, and the working directory as the only directory there is."""
    libc = _libc()
    flags = _NEWNET | _NEWIPC | _NEWUTS | _NEWNS
    if libc.unshare(flags) and libc.unshare(flags | _NEWUSER):
        return False
    try:
        os.chroot(".")
        os.chdir("/")
    except OSError:
        return False
    return True


def address_space() -> int:
    """Bytes of address space that this process uses now; 0 where there is no /proc."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _limit(cpu: int, memory: int, output: int) -> None:
    limits = {
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_FSIZE: output,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: FILES,
    }
    for what, value in limits.items():
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))


def _become_nobody() -> None:
    """Root is above the limit of processes; nobody is not."""
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:  # a user namespace without that user, where root is nobody in particular anyway
        pass


def _drop_capabilities() -> None:
    """An own user namespace gives all of them, and one of them undoes an empty root."""
    header = struct.pack("Ii", 0x20080522, 0)
    _libc().capset(header, bytes(24))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _filters() -> bytes:
    """The list of calls as the kernel reads it; empty on other machines."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        return b""
    column, architecture = _MACHINES[platform.machine()]
    numbers = [call[column] for call in CALLS.values()]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    program += [(_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    program += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in program)


def _filter() -> bool:
    """Install the list of calls; whether the kernel took it."""
    code = ctypes.create_string_buffer(_filters())
    filters = struct.pack("HxxxxxxP", len(_filters()) // 8, ctypes.addressof(code))
    return bool(_filters() and _libc().prctl(_SECCOMP, 2, filters, 0, 0) == 0)
