"""The lane: a clean interpreter that isolates itself once, then forks one child for each run and reports how it ended.

It never reads what it is asked to run: code and inputs arrive as sealed files and are opened by the child, so nothing of
one run stays in memory for the next. It reports time and status over a socket that the child does not have.
"""

from __future__ import annotations

import _sitebuiltins
import _socket
import builtins
import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import sys
import time
from dataclasses import dataclass
from typing import Any

from . import warming
from .folders import FolderWatch, wipe
from .frames import answer, receive_files
from .kernel import libc, namespaces, seccomp

TICK_S = 0.02
FIRST_LOOK_S = 0.04
WINDOW_S = 0.5
STARVED = 0.01  # CPU seconds a second over the last window: a starved run gets more, a sleeping one less
STRETCH = 2  # how many times its wall limit a starved run may take


@dataclass(slots=True)
class LaneSettings:
    """What the host asks of a lane; `tier` is what it must enforce or else fail."""

    fd: int
    tier: seccomp.Tier
    readable: list[str]
    listed: list[str]
    links: list[tuple[str, str]]
    hidden: list[str]
    search: list[str]
    packages: dict[str, str]
    preload: list[str]
    role: str = "runner"
    nice: int = 10
    scratch: str = ""  # a folder for temporary files, for tiers that cannot mount one


@dataclass(slots=True)
class RunLimits:
    """The limits of one run; `steps` is how many results may each take `cpu_s` and `wall_s`."""

    cpu_s: float
    wall_s: float
    memory_mb: int
    output_bytes: int
    steps: int = 1
    data_only: bool = False
    tasks: int = 512  # threads and processes of the sandbox's user, over all lanes


class PackageFinder:
    """Finds the allowed packages by name; the folders they lie in are not on the path and cannot be listed."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """The spec of an allowed top-level package."""
        place = self.places.get(name) if path is None else None
        if place is None:
            return None
        from importlib.util import spec_from_file_location

        if os.path.isdir(place):
            return spec_from_file_location(name, place + "/__init__.py", submodule_search_locations=[place])
        return spec_from_file_location(name, place)


def main() -> None:
    """Isolate, say so, serve until the host is gone."""
    settings = LaneSettings(**json.loads(sys.argv[1]))
    control = _socket.socket(fileno=settings.fd)
    # before any code of the row or of a completion: what the host keeps there (tokens, paths) is not for them
    os.environ.clear()
    try:
        program, notes = isolate(settings)
    except (OSError, ImportError, ValueError, StopIteration) as err:
        answer(control, 0, failed=f"{type(err).__name__}: {err}"[:500])
        os._exit(1)
    if settings.role == "tester":
        from . import tester

        tester.serve(control, program, notes, tuple(settings.readable))
    else:
        answer(control, 0, ready=notes)
        serve(control, program, settings, (settings.scratch or "/tmp") if notes.get("scratch") else "")
    os._exit(0)


def isolate(settings: LaneSettings) -> tuple[seccomp.Program, dict[str, Any]]:
    """Preload, then give up everything the tier takes away; the seccomp program is for the children to install."""
    if settings.tier not in ("namespaces", "landlock", "weak") or not libc.ARCH:
        raise ValueError(f"no tier {settings.tier!r} on this processor")
    sys.argv = ["solution.py"]
    for name in ("exit", "quit"):  # programs count on what `site` adds, and lanes start without it
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    # the folders of packages are not on it: a run can import what is allowed and list nothing
    sys.path[:] = settings.search
    sys.meta_path.append(PackageFinder(settings.packages))
    notes: dict[str, Any] = {"tier": settings.tier, "python": sys.version.split()[0], "loaded": []}
    for name in settings.preload:
        try:
            __import__(name)
            notes["loaded"].append(name)
        except ImportError:
            pass
    also = ["recvmsg"] if settings.role == "tester" else []
    # a heap for each thread reserves 64 MiB of address space, and a run's is limited
    libc.use_one_heap()
    # verdicts must not take CPU from the training that they run beside
    os.nice(settings.nice)
    os.umask(0o022)
    if settings.tier == "namespaces":
        namespaces.enter(settings.readable, settings.links, settings.hidden)
        notes["scratch"] = True
    else:
        from .kernel import landlock

        os.chdir("/")
        _leave_root(settings.scratch)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        if settings.tier == "landlock":
            notes["landlock"] = landlock.restrict(
                settings.readable, settings.listed, namespaces.DEVICES, settings.scratch
            )
            if notes["landlock"] >= landlock.COVERS_TRUNCATE:
                also += ["open", "openat"]  # with any flags: /dev/null may be written
                if _can_write(settings.scratch):
                    os.chdir(settings.scratch)
                    notes["scratch"] = True
        libc.drop_capabilities() if os.geteuid() == 0 else libc.clear_capabilities()
    # nothing started from here on gains rights by its mode bits; the kernel takes no seccomp filter without it
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    # else a run could trace its server, and through it what the next run is sent
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    role = "command" if settings.role == "command" else settings.tier
    program = seccomp.build(role, libc.ARCH, tuple(also), "scratch" in notes)
    # a core file would hold inputs of the row, and fill the disk
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    notes["uid"] = os.getuid()
    if settings.role in ("runner", "tester"):
        (warming.as_runner if settings.role == "runner" else warming.as_tester)()
    sys.modules.pop("__main__", None)
    gc.collect()
    gc.disable()
    gc.freeze()
    return program, notes


def _can_write(folder: str) -> bool:
    try:
        path = os.path.join(folder, "probe")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)
    except OSError:
        return False
    return bool(folder)


def _leave_root(scratch: str) -> None:
    """Become a user without rights, the owner of the scratch folder, where that one can read the interpreter's library."""
    if os.geteuid() != 0:
        return
    user = (os.stat(scratch).st_uid if scratch else 0) or namespaces.user_of(os.getpid())
    try:
        os.seteuid(user)
    except OSError:
        return
    try:
        with open(os.__file__, encoding="utf-8"):
            can_read = True
    except OSError:
        can_read = False
    os.seteuid(0)
    if can_read:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
    elif scratch:
        os.chown(scratch, 0, 0)  # root without its rights may not enter another's


def serve(control: _socket.socket, program: seccomp.Program, settings: LaneSettings, scratch: str) -> None:
    """Run jobs one after another; returns when the host has hung up."""
    from . import child

    own_pid = os.getpid()
    unbounded = scratch if settings.tier != "namespaces" else ""  # no file system says when it is full
    mounts = tuple(settings.readable)
    while True:
        message, fds = receive_files(control)
        if not message:
            return
        job = json.loads(message)
        if job.get("op") != "run":
            # descriptors come with any message: those of one that is refused would stay open for good
            _close(fds)
            continue
        places = dict(zip(job["fds"], fds, strict=True))
        limits = RunLimits(**job["limits"])
        try:
            pid = libc.fork()
        except OSError as err:
            _close(fds)
            answer(control, job["id"], lane=f"fork: {err}")
            continue
        if pid == 0:
            # only the lane speaks to the host: a child that held this socket could report its own end
            control.close()
            child.run(job, places, limits, program, own_pid)  # never returns
        # the lane keeps the file of results only, whose growth tells that a step is done
        watched = places.get("results", -1)
        _close([fd for fd in fds if fd != watched])
        report = supervise(pid, limits, control, watched, unbounded)
        if watched >= 0:
            os.close(watched)
        # a program may have started others that outlive it
        if settings.role == "command":
            kill_rest()
        if scratch and not wipe(scratch, mounts):
            report["recycle"] = True
        answer(control, job["id"], **report)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def supervise(pid: int, limits: RunLimits, control: _socket.socket, watched: int, scratch: str) -> dict[str, Any]:
    """Wait for the child and kill it at its limits. CPU time counts, wall time is the backstop for what sleeps.

    The first look is late, so that a short run costs one wait; then every 20 ms.
    """
    started = time.monotonic()
    ends = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ends, select.POLLIN)
    # the host can end a run, or be gone itself: both are heard while the run goes on
    poll.register(control.fileno(), select.POLLIN)
    # the number of the clock of another process's CPU time, as clock_getcpuclockid(3) makes it
    watch = RunClock(limits, (~pid << 3) | 2, watched, started)
    folder = FolderWatch(scratch)
    killed, wait_s = "", FIRST_LOOK_S
    while not killed:
        ready = poll.poll(min(wait_s, limits.cpu_s) * 1000)
        if any(fd == ends for fd, _ in ready):
            break
        if ready:
            message, fds = receive_files(control)
            _close(fds)
            killed = "asked" if message else "hangup"
            break
        killed = watch.look() or ("output" if scratch and folder.is_full() else "")
        wait_s = max(0.001, min(TICK_S, watch.left_s))
    if killed:
        os.kill(pid, 9)
    # the kernel's own account: nothing that the child says of its time counts
    _, status, usage = os.wait4(pid, 0)
    os.close(ends)
    if killed == "hangup":
        os._exit(0)  # pid 1 of the namespace: whatever is left ends with it
    cpu_s = usage.ru_utime + usage.ru_stime
    wall_s = time.monotonic() - started
    report: dict[str, Any] = {"status": status, "killed": killed, "rss_kb": usage.ru_maxrss}
    return {**report, "cpu": round(cpu_s, 6), "wall": round(wall_s, 6)}


class RunClock:
    """The clocks of one run, and when they are up.

    A run that gets no CPU time because the machine is busy is not one that sleeps: its wall time is stretched.
    """

    def __init__(self, limits: RunLimits, clock: int, watched: int, now: float) -> None:
        self.limits, self.clock, self.watched = limits, clock, watched
        self.size, self.steps, self.step_cpu, self.step_start = 0, 1, 0.0, now
        self.mark, self.mark_cpu, self.rate = now, 0.0, 1.0
        self.left_s = limits.cpu_s

    def look(self) -> str:
        """Why the run has to end, or nothing."""
        now = time.monotonic()
        try:
            cpu_s = time.clock_gettime(self.clock)
        except OSError:
            # it has ended, and is about to be waited for
            return ""
        if self.watched >= 0 and self.steps < self.limits.steps:
            size = os.fstat(self.watched).st_size
            # a line more means a result more: the next step starts with clocks at 0
            if size != self.size:
                self.size, self.step_cpu, self.step_start, self.steps = size, cpu_s, now, self.steps + 1
        if now - self.mark >= WINDOW_S:
            self.rate = (cpu_s - self.mark_cpu) / (now - self.mark)
            self.mark, self.mark_cpu = now, cpu_s
        self.left_s = self.limits.cpu_s - (cpu_s - self.step_cpu)
        return self._verdict(now - self.step_start)

    def _verdict(self, wall_s: float) -> str:
        if self.left_s <= 0:
            return "cpu"
        if wall_s >= self.limits.wall_s:
            # what waits for its turn still gets a hundredth of a core, what sleeps gets less
            is_starved = self.rate >= STARVED and _load() > 1.2 * (os.cpu_count() or 1)
            if not is_starved or wall_s >= STRETCH * self.limits.wall_s:
                return "wall"
        return ""


def _load() -> float:
    """The load average over a minute, by system call: there is no /proc here."""
    info = (ctypes.c_ulong * 16)()
    libc.libc.sysinfo(ctypes.byref(info))
    return info[1] / 65536


def kill_rest() -> None:
    """End whatever a run of programs left behind: in a pid namespace, every process but this one."""
    if os.getpid() != 1:
        return
    try:
        # every process that this one may signal: within its pid namespace those of the run, on a host all of the
        # user's
        os.kill(-1, 9)
    except ProcessLookupError:
        return
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
