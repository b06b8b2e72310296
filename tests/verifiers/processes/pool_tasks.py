"""Work for the pool's tests: each word is one way to misbehave."""

import atexit
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KEPT: list[bytearray] = []


def make(config: Any) -> tuple[Callable[[Any], Any], Any]:
    """The pool's task."""
    return behave, {"config": config}


def behave(word: Any) -> Any:
    """Do what the word says, else return it."""
    if word == "loop":
        while True:
            pass
    if word == "hold the interpreter":
        return len(str(9**9**9))
    if word == "eat memory":
        return len(bytearray(10**10))
    if word == "keep memory":
        _KEPT.append(bytearray(60 * 1024 * 1024))
        return len(_KEPT)
    if word == "exit":
        os._exit(3)
    if word == "system exit":
        raise SystemExit(2)
    if word == "sleep":
        time.sleep(1000)
    if word == "raise":
        raise ValueError("no such thing")
    if word == "print":
        print("from the worker")
    if word == "pid":
        return [os.getpid(), os.getppid()]
    if word == "object":
        return object()
    if word == "garbage":
        for fd in range(3, 64):
            try:
                os.write(fd, b"\x00\x00\x00\x02{]")
            except OSError:
                continue
        return word
    if word == "fork and exit":
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    if word == "fork and terminate":
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        time.sleep(0.1)
        os.kill(pid, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if word == "fork and return":
        os.fork()
        return word
    if word == "answer twice":
        _answer_early()
        return word
    if word == "hash":
        return hash("a text")
    if word == "forks?":
        return resource.getrlimit(resource.RLIMIT_NPROC)[0] != 0
    if word == "kill the keeper":
        os.kill(os.getppid(), 9)
        time.sleep(10)
    if word == "close everything":
        os.closerange(0, 256)
        return word
    if word == "bytes":
        return b"\x00raw"
    return word


def _answer_early() -> None:
    """A whole reply to the third item, into whatever is open."""
    body = (2).to_bytes(4, "big") + b'{"value": "forged", "seconds": 0}'
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, len(body).to_bytes(4, "big") + body)
        except OSError:
            continue


def slow(config: Any) -> tuple[Callable[[Any], Any], Any]:
    """A task that takes long to load."""
    time.sleep(30)
    return behave, None


def leaving(config: Any) -> tuple[Callable[[Any], Any], Any]:
    """A task whose module has something to do at the end, and a thread that never ends."""
    atexit.register(Path(config).write_text, "left")
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return behave, None


def broken(config: Any) -> Any:
    """A task that cannot be loaded."""
    raise LookupError(f"no {config}")


def pids_then_wait(module: str) -> None:
    """Body of a child process in the tests: start a pool, print its pids, wait to be killed."""
    from grpo_verifiers.processes.pool import Pool

    pool = Pool("pool_tasks:make", workers=1)
    print(*pool.run(["pid"])[0].value, flush=True)  # type: ignore[union-attr]
    pool.submit(["loop"])
    sys.stdin.read()
