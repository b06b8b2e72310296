"""One run, in a process of its own that nobody trusts: it limits itself, finds the program, runs it, hands out values.

Everything here may be patched by the code it runs. That is fine: it holds inputs only, and lying well about values is
solving the task.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import resource
import sys
import types
from collections.abc import Callable
from typing import Any

from . import extract, frames
from .kernel import libc, seccomp
from .wall import values

NO_CODE, CRASHED, NO_MEMORY = 97, 1, 96
MAX_OPEN_FILES = 64
CHANNEL_FD, PRODUCTS_FD = 3, 4
STACK_BYTES = 100 << 20


def run(job: dict[str, Any], fds: dict[str, int], limits: object, program: seccomp.Program, server: int) -> None:
    """Run one job and end the process; never returns, whatever happens."""
    status = CRASHED
    try:
        # it dies with its server; who died before this line is found out by the next one
        libc.prctl(libc.PR_SET_PDEATHSIG, 9)
        if os.getppid() == server:
            status = _run(job, fds, limits, program)
    except BaseException as err:  # noqa: BLE001 - the process ends here, and must not go on as a second server
        status = NO_MEMORY if isinstance(err, MemoryError) else CRASHED
    finally:
        os._exit(status)


def _run(job: dict[str, Any], fds: dict[str, int], limits: object, program: seccomp.Program) -> int:
    payload = json.loads(_read(fds.pop("payload")))
    for name, target in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if name in fds:
            os.dup2(fds.pop(name), target)
    channel = fds.pop("results", -1)
    channel = fds.pop("rpc", channel)
    # whatever else the lane has open is none of a run's business
    _keep_only(channel, fds.pop("products", -1))
    _limit(limits)
    # last: what prepares a run needs calls that a run may not make; from here on the code is not trusted
    program.install(os.getpid())
    # the lane runs without it, so that a collection does not touch, and copy, its pages in every child
    gc.enable()
    sys.modules["threading"].main_thread()._set_native_id()  # it is the server's after `libc.fork`
    if "random" in sys.modules:
        sys.modules["random"].seed(0)  # a verdict must be the same each time
    return STYLES[job["style"]](payload, CHANNEL_FD)


def _keep_only(channel: int, products: int) -> None:
    """Leave open 0, 1, 2, the channel as 3 and the products as 4, and nothing else."""
    # out of the way first: a descriptor that is 3 or 4 already would be closed by the move of the other
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 16) if fd >= 0 else -1 for fd in (channel, products)]
    os.closerange(3, 16)
    for fd, target in zip(high, (CHANNEL_FD, PRODUCTS_FD), strict=True):
        if fd >= 0:
            os.dup2(fd, target)
    os.closerange(16, 256)


def _read(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts, at = [], 0
    # by offset and not by position, which the descriptor shares with whoever else has it
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _limit(limits: Any) -> None:
    memory = limits.memory_mb << 20
    # the backstop: the lane looks at CPU time itself and kills sooner
    cpu = int(limits.cpu_s * limits.steps) + 2
    for what, soft in (
        # other languages' run-time systems reserve address space that they never use
        (resource.RLIMIT_DATA if limits.data_only else resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, limits.output_bytes),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_NPROC, limits.tasks),
    ):
        _, hard = resource.getrlimit(what)
        # a limit of the host that is lower already stays
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(what, (soft, soft))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES if hard < 0 else min(STACK_BYTES, hard), hard))


def load(payload: dict[str, Any], name: str, own_frames: int) -> tuple[types.ModuleType, Callable[[], None]] | None:
    """The module to run in and what runs the program in it; None if the completion holds no program."""
    entry = payload.get("entry")
    code = extract.program(payload["code"], entry, payload["prompt"])
    if code is None:
        return None
    # registered under its name, so that dataclasses and pickle find their classes
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = "/tmp/solution.py"
    # as deep as a program started by itself may go: what this harness stands on is added, no more
    sys.setrecursionlimit(1000 + _depth() + own_frames + 1)
    return module, lambda: define(module, payload["before"], code)


def define(module: types.ModuleType, before: str, code: types.CodeType) -> None:
    """Run the row's setup and the solution; a setup that builds on the solution's names runs behind it as well."""
    names, is_early = module.__dict__, False
    if before:
        try:
            exec(before, names)
        except NameError:
            is_early = True
    # what the row's setup has bound, to be told from what the solution has
    module.__dict__["__given__"] = dict(names)
    exec(code, names)
    if is_early:
        exec(before, names)


def _depth() -> int:
    frame, depth = sys._getframe(1).f_back, 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def run_stdio(payload: dict[str, Any], _: int) -> int:
    """A whole program with the real descriptors 0, 1, 2, ended as the interpreter ends one."""
    import threading

    loaded = load(payload, "__main__", 1)
    if loaded is None:
        return NO_CODE
    start = loaded[1]
    status = 0
    try:
        start()
    except SystemExit as err:
        status = (err.code or 0) & 0xFF if isinstance(err.code, int | None) else 1
        if not isinstance(err.code, int | None):
            print(err.code, file=sys.stderr)
    except BaseException as err:  # noqa: BLE001 - a program may end by any exception
        status = NO_MEMORY if isinstance(err, MemoryError) else CRASHED
        sys.excepthook(type(err), err, err.__traceback__)
    # a program ends once its threads have, as it would if it were started by itself
    threading._shutdown()  # type: ignore[attr-defined]
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # what Python ends with where its last output cannot be written
            status = status or 120
    return status


def find_entry(module: types.ModuleType, entry: str) -> Callable[[], Callable[..., Any]] | None:
    """A maker of the callable under test: a function is itself, a method gets a fresh `Solution` for each test."""
    owner, _, method = entry.rpartition(".")
    namespace = module.__dict__
    given = namespace.get("__given__", {})
    found = None if owner else namespace.get(entry)
    # a name that only the row's setup has bound is not the solution's: `gcd` of the library is no answer to `gcd`
    if callable(found) and found is not given.get(entry):
        return lambda: found
    first, *inner = (owner or "Solution").split(".")
    cls = namespace.get(first)
    for name in inner:
        cls = getattr(cls, name, None)
    if isinstance(cls, type) and callable(getattr(cls, method, None)):
        return lambda: _method(cls, method)
    return (lambda: found) if callable(found) and not isinstance(cls, type) else None


def _method(cls: type, name: str) -> Any:
    """A method of a fresh object; of the class where its objects want arguments, and so are the test's to make."""
    try:
        owner: Any = cls()
    except TypeError:
        owner = cls
    return getattr(owner, name)


def run_calls(payload: dict[str, Any], out: int) -> int:
    """Every call in turn; one line of JSON for each, as soon as it is done."""
    loaded = load(payload, "solution", 0)
    if loaded is None:
        return NO_CODE
    module, start = loaded
    start()
    make = find_entry(module, payload["entry"])
    if make is None:
        return NO_CODE
    for call in payload["calls"]:
        args, kwargs = values.decode(call[0]), {k: values.decode(v) for k, v in call[1].items()}
        line: dict[str, Any]
        try:
            value = make()(*args, **kwargs)
            try:
                line = {"v": values.encode(value)}
            except values.NotPlain as err:
                # no plain value: its name and truth are all that is told
                line = {"o": str(err), "b": bool(value)}
        except RecursionError:
            line = {"x": "RecursionError"}
        except MemoryError:
            line = {"x": "MemoryError"}
        except BaseException as err:  # noqa: BLE001 - whatever a solution raises is its answer to this test
            line = {"x": type(err).__name__}
        data = frames.ENCODE(line).encode() + b"\n"
        # a pipe takes what it has room for
        while data:
            data = data[os.write(out, data) :]
        if payload["stop"] and "x" in line:
            break
    return 0


def run_served(payload: dict[str, Any], channel: int) -> int:
    """Answer the calls of a test program that runs elsewhere."""
    from .wall import solution

    loaded = load(payload, "solution", 4)
    if loaded is None:
        return NO_CODE
    module, start = loaded
    return solution.serve(channel, module, start, payload.get("entry"), find_entry, tuple(payload.get("shared", ())))


def run_trusted(payload: dict[str, Any], out: int) -> int:
    """Solution and tests in this one process."""
    from . import one_process

    loaded = load(payload, "solution", 8)
    return NO_CODE if loaded is None else one_process.run(payload, out, *loaded, find_entry)


def run_module(name: str) -> Callable[[dict[str, Any], int], int]:
    """What `run` of a module of this package does with the payload."""
    return lambda payload, out: importlib.import_module(f".{name}", __package__).run(payload, out)


STYLES: dict[str, Callable[[dict[str, Any], int], int]] = {
    "stdio": run_stdio,
    "calls": run_calls,
    "served": run_served,
    "trusted": run_trusted,
    "probe": run_module("probe"),
    "query": run_module("query"),
    "program": run_module("programs"),
}
