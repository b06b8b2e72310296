"""The few system calls Python does not wrap. A failed call raises OSError; nothing here decides policy."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
held = ctypes.PyDLL(None, use_errno=True)  # calls that keep the interpreter's lock

ARCH = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(platform.machine(), "")

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
M_ARENA_MAX = -8
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
CAPSET = {"x86_64": 126, "aarch64": 91}


def checked(result: int, what: str) -> int:
    """The result of a C call, or OSError with its errno."""
    if result < 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{what}: {os.strerror(err)}")
    return result


def use_one_heap() -> None:
    """Have all threads of this process, and of those forked from it, allocate from one heap."""
    # not every C library has more than one
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_ARENA_MAX, 1)


def prctl(option: int, *args: int) -> int:
    """prctl(2) with unsigned long arguments."""
    return checked(libc.prctl(option, *(*args, 0, 0, 0, 0)[:4]), "prctl")


def syscall(number: int, *args: object) -> int:
    """A raw system call; integers are passed as longs."""
    # as ints the upper half of a register would be whatever was there
    typed = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return checked(libc.syscall(ctypes.c_long(number), *typed), f"syscall {number}")


def unshare(flags: int) -> None:
    """unshare(2)."""
    checked(libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    encoded = [os.fsencode(x) if x else None for x in (source, target, kind)]
    flags_c = ctypes.c_ulong(flags)
    checked(libc.mount(*encoded, flags_c, data.encode() or None), f"mount {target}")


def umount(target: str) -> None:
    """Detach a mount."""
    checked(libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def fork() -> int:
    """fork(2) alone, for a process with one thread.

    What Python runs after a fork mends the locks of other threads and seeds `random` from the kernel. It writes to 195 pages,
    each copied for the child, and costs as much as the fork itself. A lane has no other threads, and seeds by itself.
    """
    return checked(held.fork(), "fork")


def drop_capabilities() -> None:
    """Empty every capability set of this process, the bounding set first."""
    # until the kernel knows no more of them, whichever it is
    for cap in range(64):
        try:
            prctl(PR_CAPBSET_DROP, cap)
        except OSError:
            break
    clear_capabilities()


def clear_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient sets; needs no right."""
    with contextlib.suppress(OSError):  # kernels before 4.3 have no ambient set
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    syscall(CAPSET[ARCH], ctypes.byref(header), ctypes.byref(data))
