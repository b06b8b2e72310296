"""The processes behind a pool: a keeper that loads the task once, and the worker it forks to do the work.

How this works: the keeper is started by exec, imports the task, then only waits. It forks a worker, kills and reaps it, and
forks the next in milliseconds, so a new worker does not pay for the imports again. At the end of its control socket the
keeper ends and kills its worker, so nothing survives the process that owns the pool, however that one died.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from grpo_verifiers.processes import wire
from grpo_verifiers.processes.wire import ProcessLimits

_MEMORY = b'{"raised": ["MemoryError", "out of memory", "", ["MemoryError", "Exception"]], "seconds": 0.0}'
_PR_SET_PDEATHSIG = 1
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def keep(control_fd: int, parent: int) -> None:
    """Serve one pool slot until its control socket ends."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _outlive_signals()
    # A verifier that prints must not write into the result of `grpo verify`: its output goes to stderr
    with contextlib.suppress(OSError):  # the trainer may have no stderr
        os.dup2(2, 1)
    control = socket.socket(fileno=control_fd)
    opening = wire.receive(control)
    if opening is None:
        return
    setup = pickle.loads(opening)
    try:
        task, info = load(setup["task"], setup["config"])
    except BaseException as err:  # noqa: BLE001 - whatever the user's module raises at import is shown to the user
        _reply(control, 0, failed=described(err)[:3])
        return
    gc.collect()
    gc.freeze()
    _reply(control, 0, ready=info)
    pid = 0
    while True:  # fork a worker or end it, as asked, until the host hangs up
        try:
            message, files = wire.receive_files(control)
        except OSError:
            message, files = None, []
        asked: dict[str, Any] = json.loads(message) if message is not None else {"op": "kill"}
        if asked["op"] == "fork":
            connection = socket.socket(fileno=files[0])
            pid = os.fork()
            if pid == 0:
                control.close()
                _work(connection, task, setup["limits"])
            connection.close()
        elif pid:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            pid = 0
        if message is None:
            return
        _reply(control, asked["id"], pid=pid)


def _reply(control: socket.socket, number: int, **answer: Any) -> None:
    wire.send(control, json.dumps({"id": number, **answer}).encode())


def _outlive_signals() -> None:
    """Ignore SIGTERM and SIGHUP: a scheduler signals every process of a job, and a closed terminal all of its
    processes, but the last step must be finished.

    What the user's code forks or starts takes them as usual.
    """
    own = os.getpid()

    def take(number: int, frame: object) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, take)


def load(task: str, config: object) -> tuple[Callable[[Any], Any], Any]:
    """Import `module:function` and call it with the config; it returns the work and the `info` for the host."""
    module, name = task.split(":")
    work, info = getattr(importlib.import_module(module), name)(config)
    return work, info


def _work(connection: socket.socket, task: Callable[[Any], Any], limits: ProcessLimits) -> None:
    """The forked worker: judge one item after another until the host closes or kills it. Replies bear the item's number."""
    try:
        keeper, own = os.getppid(), os.getpid()
        os.setpgid(0, 0)
        die_with(keeper)
        _outlive_signals()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.memory_mb is not None and sys.platform == "linux":
            # the cap is what a sample may add: an imported torch alone reserves gigabytes of addresses
            with open("/proc/self/statm", encoding="utf-8") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            cap, hard = used + limits.memory_mb * 1024 * 1024, resource.getrlimit(resource.RLIMIT_AS)[1]
            cap = cap if hard == resource.RLIM_INFINITY else min(cap, hard)
            resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
        if not limits.forks:
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        number = 0
        while (chunk := wire.receive(connection)) is not None:
            for item in pickle.loads(chunk):
                reply = _answer(task, item)
                if os.getpid() != own:
                    return  # in a copy forked by the work: only the worker itself answers
                wire.send(connection, number.to_bytes(4, "big") + reply)
                number += 1
    finally:
        os._exit(0)


def _answer(task: Callable[[Any], Any], item: object) -> bytes:
    began = time.perf_counter()
    try:
        value = task(item)
        if isinstance(value, bytes):
            return b"\0" + value
        return json.dumps({"value": value, "seconds": time.perf_counter() - began}).encode()
    except MemoryError:
        return _MEMORY
    except BaseException as err:  # noqa: BLE001 - a worker must outlive anything the work raises, SystemExit too
        try:
            raised = described(err)
            return json.dumps({"raised": raised, "seconds": time.perf_counter() - began}).encode()
        except MemoryError:
            return _MEMORY


def described(err: BaseException) -> list[Any]:
    """Kind, message and traceback of an exception, and the names of its classes, as `Raised` has them."""
    try:
        text = str(err)
    except BaseException:  # noqa: BLE001 - an exception of the user's may even fail to print
        text = "(its message cannot be printed)"
    trace = err.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next  # drop our own frames, which do not help the user
    return [
        type(err).__name__,
        text[:2000],
        "".join(traceback.format_exception(type(err), err, trace))[-8000:],
        [base.__name__ for base in type(err).__mro__],
    ]


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, or end it now where that is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def boot() -> None:
    """Entry of the exec'd keeper: `python -c … SYS_PATH FD PARENT`."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the pool was closed meanwhile
        keep(int(sys.argv[2]), int(sys.argv[3]))
    atexit._run_exitfuncs()  # what the task's modules registered; unloading the modules would keep the host waiting
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
            stream.flush()
    os._exit(0)
