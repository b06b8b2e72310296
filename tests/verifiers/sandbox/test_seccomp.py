"""The system call list, run by a BPF interpreter of our own: both processors, whatever the tests run on."""

from __future__ import annotations

import ctypes
import struct

import pytest

from grpo_verifiers.sandbox.inside.kernel import seccomp
from grpo_verifiers.sandbox.inside.kernel.seccomp import ARCHES, NUMBERS, number

PID = 4242
ALLOW, EPERM, EACCES, ENOSYS, KILL = (seccomp.ALLOW, seccomp.EPERM, seccomp.EACCES, seccomp.ENOSYS, seccomp.KILL)


def decide(
    tier: seccomp.Tier,
    arch: str,
    nr: int,
    args: tuple[int, ...] = (),
    audit: int | None = None,
    has_scratch: bool = False,
) -> int:
    """What the filter answers to a call, after the pid was filled in."""
    program = seccomp.build(tier, arch, has_scratch=has_scratch)
    code = [struct.unpack_from("=HBBI", program.code, 8 * i) for i in range(program.length)]
    for slot in program.pid_slots:
        code[slot] = (*code[slot][:3], PID)
    padded = (*args, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", nr, seccomp.AUDIT_ARCH[arch] if audit is None else audit, 0, *padded)
    at, accumulator = 0, 0
    while True:
        op, jt, jf, k = code[at]
        at += 1
        if op == seccomp.LOAD:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif op == seccomp.AND:
            accumulator &= k
        elif op == seccomp.RETURN:
            return int(k)
        else:
            holds = {
                seccomp.JUMP_EQ: accumulator == k,
                seccomp.JUMP_GE: accumulator >= k,
                seccomp.JUMP_SET: bool(accumulator & k),
            }[op]
            at += jt if holds else jf


def nr(name: str, arch: str) -> int:
    found = number(name, arch)
    assert found is not None
    return found


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("tier", ["namespaces", "landlock", "weak", "command"])
def test_every_call_of_the_list_is_found_by_the_search(tier: seccomp.Tier, arch: str) -> None:
    calls = seccomp.allowed(tier)
    for name in NUMBERS:
        at = number(name, arch)
        if at is None:
            continue
        got = decide(tier, arch, at)
        if name in calls and not calls[name]:
            assert got == ALLOW, name
        elif name not in calls:
            assert got in (EPERM, ENOSYS, EACCES, seccomp.ENOTSUP), name


# socket, connect, bind, ptrace, mount, unshare, setns, bpf, perf_event_open, memfd_create, keyctl, userfaultfd, setuid, chroot
REFUSED = {
    "x86_64": (41, 42, 49, 101, 165, 272, 308, 321, 298, 319, 250, 323, 105, 161),
    "aarch64": (198, 203, 200, 117, 40, 97, 268, 280, 241, 279, 219, 282, 146, 51),
}


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("tier", ["namespaces", "landlock", "command"])
def test_what_reaches_others_is_refused(tier: seccomp.Tier, arch: str) -> None:
    assert {decide(tier, arch, at) for at in REFUSED[arch]} == {EPERM}


@pytest.mark.parametrize("arch", ARCHES)
def test_new_calls_are_unknown_so_that_libraries_take_the_old_ones(arch: str) -> None:
    clone3, openat2, io_uring_setup, later = 435, 437, 425, 600
    assert {decide("namespaces", arch, at) for at in (clone3, openat2, io_uring_setup, later)} == {ENOSYS}


@pytest.mark.parametrize("arch", ARCHES)
def test_threads_are_allowed_and_processes_are_not(arch: str) -> None:
    thread, fork, namespace = 0x3D0F00, 17, 0x3D0F00 | 0x10000000
    assert decide("namespaces", arch, nr("clone", arch), (thread,)) == ALLOW
    assert decide("namespaces", arch, nr("clone", arch), (fork,)) == EPERM
    assert decide("namespaces", arch, nr("clone", arch), (namespace,)) == EPERM
    assert decide("command", arch, nr("clone", arch), (fork,)) == ALLOW
    assert decide("command", arch, nr("clone", arch), (namespace,)) == EPERM


@pytest.mark.parametrize("arch", ARCHES)
def test_signals_and_limits_reach_the_own_process_only(arch: str) -> None:
    for name in ("kill", "tgkill"):
        assert decide("landlock", arch, nr(name, arch), (PID, 9, 9)) == ALLOW
        assert decide("landlock", arch, nr(name, arch), (PID - 1, 9, 9)) == EPERM
        assert decide("landlock", arch, nr(name, arch), (0xFFFFFFFFFFFFFFFF, 9, 9)) == EPERM
    assert decide("landlock", arch, nr("prlimit64", arch), (0,)) == ALLOW
    assert decide("landlock", arch, nr("prlimit64", arch), (1,)) == EPERM


@pytest.mark.parametrize("arch", ARCHES)
def test_arguments_that_reach_others_are_refused(arch: str) -> None:
    setown, setsig, tiocsti, fiosetown, set_pdeathsig = 8, 10, 0x5412, 0x8901, 1
    for command in (setown, setsig):
        assert decide("landlock", arch, nr("fcntl", arch), (3, command)) == EPERM
    for request in (tiocsti, fiosetown):
        assert decide("landlock", arch, nr("ioctl", arch), (0, request)) == EPERM
    assert decide("landlock", arch, nr("prctl", arch), (set_pdeathsig,)) == EPERM
    assert decide("landlock", arch, nr("sendto", arch), (3, 0, 0, 0, 0)) == ALLOW
    assert decide("landlock", arch, nr("sendto", arch), (3, 0, 0, 0, 1 << 40)) == EPERM
    stream, datagram, cloexec, unix, inet = 1, 2, 0x80000, 1, 2
    assert decide("landlock", arch, nr("socketpair", arch), (unix, stream | cloexec)) == ALLOW
    assert decide("landlock", arch, nr("socketpair", arch), (unix, datagram)) == EPERM
    assert decide("landlock", arch, nr("socketpair", arch), (inet, stream)) == EPERM
    records = 5  # connected as a stream is: for programs of other languages
    assert decide("command", arch, nr("socketpair", arch), (unix, records | cloexec)) == ALLOW
    assert decide("landlock", arch, nr("socketpair", arch), (unix, records)) == EPERM
    assert decide("command", arch, nr("socketpair", arch), (unix, datagram)) == EPERM
    assert decide("command", arch, nr("socketpair", arch), (inet, records)) == EPERM


@pytest.mark.parametrize("arch", ARCHES)
def test_files_are_opened_for_reading_only_without_a_scratch_folder(arch: str) -> None:
    read_only, write, create = 0x80000, 1, 0x40
    openat = nr("openat", arch)
    assert decide("weak", arch, openat, (0, 0, read_only)) == ALLOW
    assert decide("weak", arch, openat, (0, 0, write)) == EPERM
    assert decide("weak", arch, openat, (0, 0, create)) == EPERM
    assert decide("namespaces", arch, openat, (0, 0, create | write)) == ALLOW
    assert decide("landlock", arch, nr("faccessat", arch)) == EACCES


@pytest.mark.parametrize("arch", ARCHES)
def test_modes_are_changed_only_where_all_else_is_read_only(arch: str) -> None:
    for name in seccomp.MODES:
        if number(name, arch) is None:
            continue
        assert decide("namespaces", arch, nr(name, arch)) == ALLOW
        assert decide("landlock", arch, nr(name, arch)) == EPERM
        assert decide("landlock", arch, nr(name, arch), has_scratch=True) == EPERM
    for name in ("linkat", "symlinkat"):
        assert decide("landlock", arch, nr(name, arch), has_scratch=True) == EPERM


def test_other_instruction_sets_are_killed() -> None:
    i386 = 0x40000003
    assert decide("namespaces", "x86_64", 0, audit=i386) == KILL
    assert decide("namespaces", "x86_64", seccomp.X32_BIT | 0) == KILL
    assert decide("namespaces", "aarch64", 63, audit=seccomp.AUDIT_ARCH["x86_64"]) == KILL


@pytest.mark.parametrize("arch", ARCHES)
def test_the_search_is_short(arch: str) -> None:
    program = seccomp.build("namespaces", arch)
    assert program.length < 400 and ctypes.sizeof(program.code) == 8 * program.length
