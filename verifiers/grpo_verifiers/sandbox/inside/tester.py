"""Runs test programs that are more than calls and literals. Trusted, never in one process with a solution.

A trial runs in a child forked for it, so that nothing that a test patches, imports or leaves behind is there for the next
one. A program that leaves nothing, as its text shows (`plan.is_plain`), is run here: the fork costs three times the trial.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` makes an enumeration of each answer
import _socket
import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
from typing import Any, NoReturn

from .folders import wipe
from .frames import answer, receive_files
from .kernel import libc, seccomp
from .wall import pytest_shim, trial
from .wall.exceptions import TimeIsUp
from .wall.plan import BrokenTests, Plan, prepare

MEMORY_MB = 2048
CACHED = 128
MOST_REASONS = 24 << 10  # characters as JSON; an answer is a message of at most 64 KiB


def serve(control: _socket.socket, program: seccomp.Program, notes: dict[str, Any], mounts: tuple[str, ...]) -> None:
    """Run test programs one after another; returns when the host has hung up."""
    # tests ask for it by name, and the real one would bring plug-ins, files and a run of its own
    sys.modules.setdefault("pytest", pytest_shim.module())
    plans: dict[bytes, Plan] = {}
    # the folder of the tier `landlock` is the solution's as well, whose lane empties it when both are done
    has_scratch = notes["tier"] == "namespaces"
    _limit(resource.RLIMIT_AS, MEMORY_MB << 20)
    gc.enable()  # of what was there before the first trial it looks at nothing
    answer(control, 0, ready=notes)
    while True:
        message, fds = receive_files(control)
        if not message:
            return
        asked = json.loads(message)
        if asked.get("op") != "test":
            for fd in fds:
                os.close(fd)
            continue
        source, channel = fds
        text = os.pread(source, os.fstat(source).st_size, 0)
        os.close(source)
        said = _trial(control, program, plans, text, asked, channel)
        os.close(channel)
        if has_scratch and not wipe("/tmp", mounts):
            said["recycle"] = True
        answer(control, asked["id"], **said)


def _trial(
    control: _socket.socket,
    program: seccomp.Program,
    plans: dict[bytes, Plan],
    text: bytes,
    asked: dict[str, Any],
    channel: int,
) -> dict[str, Any]:
    """Run one trial in a child; what is to be said in its place, or what it said."""
    plan = plans.get(text)
    if plan is None:
        try:
            made = prepare(json.loads(text))
        except BrokenTests as err:
            return {"broken": str(err)[:300]}
        # a run has as many test programs as rows: the memory of a lane is bounded
        if len(plans) >= CACHED:
            plans.clear()
        plan = plans[text] = made
        for name in made.libraries:  # once, and not in each trial's process
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    if plan.leaves_nothing and not (plan.has_files or plan.has_random):
        return run(plan, json.loads(text), asked["cpu_s"], channel)
    reads, writes = os.pipe()
    server = os.getpid()
    # a test may patch the library or leave threads behind: each trial has a process of its own
    pid = libc.fork()
    if pid == 0:
        os.close(reads)
        control.close()
        _child(program, plan, json.loads(text), asked["cpu_s"], channel, writes, server)
    os.close(writes)
    said = bytearray()
    while chunk := os.read(reads, 1 << 16):
        said += chunk
    os.close(reads)
    # only when its pipe has ended: a child that still writes would wait for a reader
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return json.loads(bytes(said)) if status == 0 else {"crashed": -status}


def _child(
    program: seccomp.Program, plan: Plan, job: dict[str, Any], cpu_s: float, channel: int, out: int, server: int
) -> NoReturn:
    """The trial itself; never returns."""
    status = 1
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() == server:
            _limit(resource.RLIMIT_CPU, int(cpu_s) + 5)
            program.install(os.getpid())
            answer = run(plan, job, cpu_s, channel)
            data = json.dumps(answer).encode()
            while data:
                data = data[os.write(out, data) :]
            # only now, when the whole answer is written: any other end is a crash
            status = 0
    finally:
        os._exit(status)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    # a limit of the host that is lower already stays
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def run(plan: Plan, job: dict[str, Any], cpu_s: float, channel: int) -> dict[str, Any]:
    """The answer to a trial. An exception at the limit; a signal soon after, should the test catch everything."""
    started = time.process_time()
    _signal.signal(_signal.SIGPROF, _ring)
    _signal.setitimer(_signal.ITIMER_PROF, cpu_s)
    try:
        answer = trial.run(plan, job, channel)
    except BrokenTests as err:
        answer = {"broken": str(err)[:300]}
    except TimeIsUp:
        answer = {"results": ["time"], "late": True}
    except BaseException as err:  # noqa: BLE001 - a mistake of this side's own code is no fault of the completion
        answer = {"results": [], "ended": "lane_failed", "detail": f"{type(err).__name__}: {err}"[:300]}
    finally:
        _signal.signal(_signal.SIGPROF, _signal.SIG_IGN)
        _signal.setitimer(_signal.ITIMER_PROF, 0)
    answer["results"] = shortened(answer.get("results", []))
    answer["cpu"] = time.process_time() - started
    return answer


def _ring(*_: object) -> None:
    raise TimeIsUp


def shortened(reasons: list[str]) -> list[str]:
    """The reasons; later ones are cut, so that all fit into one answer in any escaping."""
    left, out = MOST_REASONS, list[str]()
    for reason in reasons:
        size = len(json.dumps(reason))
        out.append(reason if size <= left else "failed" if reason else "")
        left -= min(size, left)
    return out
