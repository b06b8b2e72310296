"""The process that runs computer algebra: a fork server with sympy and math-verify loaded, and the workers it forks.

Run by `worker` with an open socket as its only tie to the caller. The server forks a worker for every socket it is
sent and does nothing else; a worker answers one task after another until its socket closes or it is killed. Nothing
here trusts its time or memory: the caller kills on time, the address space is capped here.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

HEADROOM = 160 * 2**20
"""Address space a worker may add to what it starts with, in bytes: keeps its resident size below 256 MB."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LENGTH = struct.Struct("<I")


def main() -> None:
    """Serve forks on the socket whose number is the last argument."""
    control = socket.socket(fileno=int(sys.argv[-1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # a scheduler signals every process of a job
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    sys.setrecursionlimit(3_000)
    _preload()
    gc.collect()
    gc.freeze()
    control.sendall(b"r")
    while True:
        ready, _, _ = select.select([control], [], [], 5.0)
        if os.getppid() != parent:
            return
        if not ready:
            continue
        data, handles, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        if os.fork() == 0:
            control.close()
            _serve(socket.socket(fileno=handles[0]))
            os._exit(0)
        for handle in handles:
            os.close(handle)


def _preload() -> None:
    import logging

    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401 - loaded once, before any fork

    from grpo_verifiers.maths.proving.symbolic import prove
    from grpo_verifiers.maths.reading.tree import number

    two: Any = ("root", number(2), number(2))
    x: Any = ("s", "x")
    prove(("/", two, number(2)), ("/", number(1), two), False)
    prove(
        ("f", "sin", (("*", number(2), x),)),
        ("*", number(2), ("*", ("f", "sin", (x,)), ("f", "cos", (x,)))),
        False,
    )
    _by_math_verify("x+1", "1+x")


def _cap() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(OSError, AttributeError):
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the server
    with suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + HEADROOM, now + HEADROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _serve(link: socket.socket) -> None:
    _cap()
    link.sendall(_LENGTH.pack(os.getpid()))
    while True:
        header = _read(link, 4)
        if header is None:
            return
        body = _read(link, _LENGTH.unpack(header)[0])
        if body is None:
            return
        link.sendall(_answer(pickle.loads(body)))


def _read(link: socket.socket, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = link.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return parts


def _answer(task: tuple[Any, ...]) -> bytes:
    """One byte: `s` proved by sympy, `m` by math-verify, `n` not proved, `M` out of memory."""
    from grpo_verifiers.maths.proving.symbolic import prove

    pairs, gold, answer, log10 = task
    try:
        proofs = [prove(g, a, log10) for g, a in pairs]
        if all(proofs):
            return b"s"
        if False in proofs:  # sixty digits tell them apart: math-verify, which compares fewer, is not asked
            return b"n"
    except MemoryError:
        return b"M"
    except Exception:  # noqa: BLE001 - computer algebra raises anything; the last tier still has its say
        pass
    try:
        return b"m" if _by_math_verify(gold, answer) else b"n"
    except MemoryError:
        return b"M"
    except Exception:  # noqa: BLE001 - as above, and the answer is simply not proved
        return b"n"


def _by_math_verify(gold: str, answer: str) -> bool:
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    sides = [
        parse(
            "\\boxed{" + text + "}",
            extraction_config=config,
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        for text in (gold, answer)
    ]
    return bool(all(sides) and verify(sides[0], sides[1], strict=True, timeout_seconds=None))


if __name__ == "__main__":
    main()
