"""A seccomp allow-list as a BPF program, built and installed without a compiler.

Calls are found by binary search over their numbers, not by a chain of tests: the kernel runs the filter once for every
call number when it is installed, so a chain of 170 tests costs more than the fork it protects.
What is not listed fails with EPERM, calls newer than 2019 with ENOSYS (libraries then take the older call, which is filtered).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from . import libc

Tier = Literal["namespaces", "landlock", "weak", "command"]

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000
EPERM = ERRNO | errno.EPERM
EACCES = ERRNO | errno.EACCES
ENOSYS = ERRNO | errno.ENOSYS
ENOTSUP = ERRNO | errno.ENOTSUP

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000
FIRST_NEW_CALL = 424

LOAD, JUMP_GE, JUMP_EQ, JUMP_SET, RETURN, AND = 0x20, 0x35, 0x15, 0x45, 0x06, 0x54
OWN_PID = -1  # replaced by the pid of the process that installs the program

ARCHES = ("x86_64", "aarch64")
TABLE = """
access:21: alarm:37: arch_prctl:158: brk:12:214 capget:125:90 chdir:80:49 chmod:90: clock_getres:229:114
clock_gettime:228:113 clock_nanosleep:230:115 clone:56:220 close:3:57 close_range:436:436 copy_file_range:326:285
dup:32:23 dup2:33: dup3:292:24 epoll_create:213: epoll_create1:291:20 epoll_ctl:233:21 epoll_pwait:281:22
epoll_wait:232: eventfd:284: eventfd2:290:19 execve:59:221 execveat:322:281 exit:60:93 exit_group:231:94
faccessat:269:48 faccessat2:439:439 fadvise64:221:223 fallocate:285:47 fchdir:81:50 fchmod:91:52 fchmodat:268:53
fcntl:72:25 fdatasync:75:83 flock:73:32 fork:57: fstat:5:80 fstatfs:138:44 fsync:74:82 ftruncate:77:46 futex:202:98
getcpu:309:168 getcwd:79:17 getdents:78: getdents64:217:61 getegid:108:177 geteuid:107:175 getgid:104:176
getgroups:115:158 getitimer:36:102 getpeername:52:205 getpgid:121:155 getpgrp:111: getpid:39:172 getppid:110:173
getpriority:140:141 getrandom:318:278 getresgid:120:150 getresuid:118:148 getrlimit:97:163 getrusage:98:165
getsid:124:156 getsockname:51:204 getsockopt:55:209 gettid:186:178 gettimeofday:96:169 getuid:102:174 ioctl:16:29
kill:62:129 link:86: linkat:265:37 lseek:8:62 lstat:6: madvise:28:233 membarrier:324:283 mincore:27:232 mkdir:83:
mkdirat:258:34 mmap:9:222 mprotect:10:226 mremap:25:216 msync:26:227 munmap:11:215 nanosleep:35:101
newfstatat:262:79 open:2: openat:257:56 pause:34: pidfd_open:434:434 pidfd_send_signal:424:424 pipe:22: pipe2:293:59
poll:7: ppoll:271:73 prctl:157:167 pread64:17:67 preadv:295:69 preadv2:327:286 prlimit64:302:261 pselect6:270:72
pwrite64:18:68 pwritev:296:70 pwritev2:328:287 read:0:63 readlink:89: readlinkat:267:78 readv:19:65 recvfrom:45:207
recvmsg:47:212 rename:82: renameat:264:38 renameat2:316:276 restart_syscall:219:128 rmdir:84: rseq:334:293
rt_sigaction:13:134 rt_sigpending:127:136 rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigsuspend:130:133
rt_sigtimedwait:128:137 sched_get_priority_max:146:125 sched_get_priority_min:147:126 sched_getaffinity:204:123
sched_getparam:143:121 sched_getscheduler:145:120 sched_yield:24:124 seccomp:317:277 select:23: sendfile:40:71
sendmsg:46:211 sendto:44:206 set_robust_list:273:99 set_tid_address:218:96 setitimer:38:103 setpgid:109:154
setrlimit:160:164 setsid:112:157 setsockopt:54:208 shutdown:48:210 sigaltstack:131:132 socketpair:53:199
splice:275:76 stat:4: statfs:137:43 statx:332:291 symlink:88: symlinkat:266:36 sysinfo:99:179 tee:276:77
tgkill:234:131 time:201: timerfd_create:283:85 timerfd_gettime:287:87 timerfd_settime:286:86 times:100:153
tkill:200:130 truncate:76:45 umask:95:166 uname:63:160 unlink:87: unlinkat:263:35 utimensat:280:88 listxattr:194:11
llistxattr:195:12 flistxattr:196:13 vfork:58: wait4:61:260 waitid:247:95 write:1:64 writev:20:66
""".split()  # noqa: SIM905 - as below
"""Name and number of each system call on x86-64 and aarch64; no number where it does not exist."""
NUMBERS = {name: tuple(int(n) if n else None for n in numbers) for name, *numbers in (row.split(":") for row in TABLE)}


def number(name: str, arch: str) -> int | None:
    """The number of a call on this architecture, None where it does not exist."""
    return NUMBERS[name][ARCHES.index(arch)]


PLAIN = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range fstat stat
lstat newfstatat statx lseek mmap mprotect munmap mremap madvise brk msync fadvise64 fsync
fdatasync ftruncate sendfile copy_file_range rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
rt_sigtimedwait rt_sigsuspend sigaltstack restart_syscall pipe pipe2 dup dup2 dup3 chdir fchdir getcwd
getdents getdents64 readlink readlinkat umask statfs fstatfs getpid gettid getppid getuid geteuid getgid
getegid getresuid getresgid getgroups getpgrp getpgid getsid capget getrandom gettimeofday clock_gettime
clock_getres clock_nanosleep nanosleep time times getrusage sysinfo uname sched_yield sched_getaffinity
sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min getpriority getcpu
membarrier futex set_robust_list rseq set_tid_address arch_prctl getrlimit setrlimit alarm setitimer
getitimer pause poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime recvfrom shutdown getsockopt getsockname
getpeername exit exit_group
""".split()  # noqa: SIM905 - a table of names reads better than 130 lines of quotes
SCRATCH = """
access faccessat faccessat2 mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 truncate
fallocate
""".split()  # noqa: SIM905 - a table of names reads better than 130 lines of quotes
MODES = "chmod fchmod fchmodat utimensat".split()  # noqa: SIM905 - as above
PROGRAMS = """
execve wait4 waitid vfork fork link linkat symlink symlinkat setpgid setsid
""".split()  # noqa: SIM905 - a table of names reads better than 130 lines of quotes

THREAD_BITS = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x80000 | 0x100000 | 0x200000 | 0x400000 | 0x1000000
NEW_NAMESPACES = 0x7E020080 | 0x02000000
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
# ioctl: FIOCLEX, FIONCLEX, FIONBIO, FIONREAD, TCGETS, TIOCGWINSZ; never FIOSETOWN or TIOCSTI
IOCTLS = (0x5451, 0x5450, 0x5421, 0x541B, 0x5401, 0x5413)
# fcntl without F_SETOWN and F_SETSIG: together with O_ASYNC they send any signal to any process of the same user
FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1034)  # 5 to 7: locks of records, which a data base in a file takes
# prctl without PR_SET_PDEATHSIG, which would let a run outlive its server; PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_SET_VMA
PRCTLS = (15, 16, 3, 0x53564D41)


@dataclass(frozen=True, slots=True)
class Test:
    """A claim about the low 32 bits of an argument (`null`: about all 64); a call passes if all its tests hold."""

    kind: Literal["one_of", "clear", "all_set", "null", "kind_is"]
    arg: int
    values: tuple[int, ...] = ()


def allowed(tier: Tier) -> dict[str, tuple[Test, ...]]:
    """The calls of a tier with what their arguments must be."""
    calls: dict[str, tuple[Test, ...]] = dict.fromkeys(PLAIN, ())
    calls |= {
        "ioctl": (Test("one_of", 1, IOCTLS),),
        "fcntl": (Test("one_of", 1, FCNTLS),),
        "prctl": (Test("one_of", 0, PRCTLS),),
        "prlimit64": (Test("one_of", 0, (0, OWN_PID)),),
        "kill": (Test("one_of", 0, (OWN_PID,)),),
        "tgkill": (Test("one_of", 0, (OWN_PID,)),),
        "clone": (Test("all_set", 0, (0x10000,)), Test("clear", 0, (0xFFFFFFFF & ~THREAD_BITS,))),
        # asyncio's self-pipe; a datagram socket could send to any socket file or abstract name of the host
        "socketpair": (Test("one_of", 0, (1,)), Test("kind_is", 1, (1,))),
        "sendto": (Test("null", 4),),
    }
    if tier in ("namespaces", "command"):
        # what is shown of the host is mounted read-only, so modes and times can be changed in the scratch folder only;
        # Landlock does not cover them, and would let a run reach every file of the user
        calls |= dict.fromkeys((*SCRATCH, *MODES, "open", "openat"), ())
    else:
        calls |= {"open": (Test("clear", 1, (WRITE_FLAGS,)),), "openat": (Test("clear", 2, (WRITE_FLAGS,)),)}
    if tier == "command":
        calls |= dict.fromkeys(PROGRAMS, ())
        calls["clone"] = (Test("clear", 0, (NEW_NAMESPACES & ~0xFF,)),)
        # pids are the namespace's own here: only processes of this run can be reached
        calls["kill"] = calls["tgkill"] = ()
        # rustc starts its linker with a pair that keeps records apart; it is connected as a stream is
        calls["socketpair"] = (Test("one_of", 0, (1,)), Test("kind_is", 1, (1, 5)))
    return calls


class Program:
    """Instructions as the kernel wants them, and where the pid of the installing process belongs."""

    def __init__(self, packed: bytes, pid_slots: tuple[int, ...]) -> None:
        self.code = ctypes.create_string_buffer(packed, len(packed))
        self.length, self.pid_slots = len(packed) // 8, pid_slots
        # made here: each page that a child writes to is copied for it, and a ctypes type writes to forty
        head = struct.pack("HxxxxxxQ", self.length, ctypes.addressof(self.code))
        self._head = ctypes.create_string_buffer(head, len(head))
        self._address = ctypes.addressof(self._head)

    def install(self, pid: int) -> None:
        """Bind this process for good. The caller has set no_new_privs."""
        for slot in self.pid_slots:
            struct.pack_into("=I", self.code, slot * 8 + 4, pid)
        libc.prctl(libc.PR_SET_SECCOMP, 2, self._address)


def answered(tier: Tier) -> dict[str, int]:
    """Calls that are not made and yet not refused as all others are, with what they are answered."""
    # copying a file asks for these, and takes this for an answer
    out = dict.fromkeys(("listxattr", "llistxattr", "flistxattr"), ENOTSUP)
    if tier in ("landlock", "weak"):
        out |= dict.fromkeys(("access", "faccessat", "faccessat2"), EACCES)
    return out


def build(tier: Tier, arch: str, also: tuple[str, ...] = (), has_scratch: bool = False) -> Program:
    """The program of a tier, with some more calls where trusted code needs them, and what a folder to write in needs.

    Raises:
        ValueError: a jump would reach over more than 255 instructions, the most that BPF can say.
    """
    if tier == "landlock" and has_scratch:
        also = (*also, *SCRATCH)
    verdicts: dict[int, list[tuple[int, int, int, int]] | int] = {}
    for name, tests in (allowed(tier) | dict.fromkeys(also, ())).items():
        at = number(name, arch)
        if at is not None:
            verdicts[at] = _leaf(tests) if tests else ALLOW
    for name, answer in answered(tier).items():
        at = number(name, arch)
        if at is not None:
            verdicts[at] = answer
    # the architecture first: a number means another call on another one, so a foreign call kills instead of failing
    head = [(LOAD, 0, 0, 4), (JUMP_EQ, 1, 0, AUDIT_ARCH[arch]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    # x32 calls have the architecture of x86_64 and numbers of their own above this bit
    if arch == "x86_64":
        head += [(JUMP_GE, 0, 1, X32_BIT), (RETURN, 0, 0, KILL)]
    instructions = head + _tree(_segments(verdicts))
    if any(jt > 255 or jf > 255 for _, jt, jf, _ in instructions):
        raise ValueError("the filter outgrew the reach of a BPF jump")
    slots = tuple(i for i, ins in enumerate(instructions) if ins[3] == OWN_PID)
    packed = b"".join(struct.pack("=HBBI", c, jt, jf, k & 0xFFFFFFFF) for c, jt, jf, k in instructions)
    return Program(packed, slots)


Segment = tuple[int, "int | list[tuple[int, int, int, int]]"]


def _segments(verdicts: Mapping[int, int | list[tuple[int, int, int, int]]]) -> list[Segment]:
    """Runs of call numbers with one action each, from 0 up; the last one reaches to the end."""
    out: list[Segment] = []
    edges: Iterable[int] = sorted({0, FIRST_NEW_CALL, *verdicts, *(n + 1 for n in verdicts)})
    for start in edges:
        action = verdicts.get(start, EPERM if start < FIRST_NEW_CALL else ENOSYS)
        if not out or isinstance(action, list) or out[-1][1] != action:
            out.append((start, action))
    return out


def _tree(segments: list[Segment]) -> list[tuple[int, int, int, int]]:
    if len(segments) == 1:
        action = segments[0][1]
        return action if isinstance(action, list) else [(RETURN, 0, 0, action)]
    middle = len(segments) // 2
    left, right = _tree(segments[:middle]), _tree(segments[middle:])
    # offsets are relative and forward only: the right half stands behind the left one
    return [(JUMP_GE, len(left), 0, segments[middle][0]), *left, *right]


def _leaf(tests: tuple[Test, ...]) -> list[tuple[int, int, int, int]]:
    """Straight-line tests: each one falls through when it holds and returns EPERM when not."""
    out: list[tuple[int, int, int, int]] = []
    refuse = (RETURN, 0, 0, EPERM)
    for test in tests:
        low, high = 16 + 8 * test.arg, 20 + 8 * test.arg
        if test.kind == "null":
            # BPF compares 32 bits at a time; a pointer is null where both halves are 0
            for word in (low, high):
                out += [(LOAD, 0, 0, word), (JUMP_EQ, 1, 0, 0), refuse]
            continue
        out.append((LOAD, 0, 0, low))
        if test.kind == "clear":
            out += [(JUMP_SET, 0, 1, test.values[0]), refuse]
        elif test.kind == "all_set":
            out += [(JUMP_SET, 1, 0, test.values[0]), refuse]
        else:
            if test.kind == "kind_is":  # SOCK_CLOEXEC and SOCK_NONBLOCK share the argument
                out.append((AND, 0, 0, 0xF))
            count = len(test.values)
            out += [(JUMP_EQ, count - i, 0, value) for i, value in enumerate(test.values)]
            out.append(refuse)
    return [*out, (RETURN, 0, 0, ALLOW)]
