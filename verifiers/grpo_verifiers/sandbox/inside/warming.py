"""What a lane does before its first fork: small runs of its own, so that a child finds all code read, adapted and in use.

The interpreter rewrites code that it has run a few times, and each page that a child writes to is copied for it. What is
run here once costs no child anything: a verdict took 15 % less CPU time.
"""

from __future__ import annotations

import _socket
import sys
import time
from collections.abc import Callable
from typing import Any

from . import frames

ROUNDS = 12  # code is adapted when it has run eight times
CODE = "def f(x):\n    return [x]\n"
TESTS = "x = [3]\ndef g(v):\n    return [v]\nassert f(x) == g(x)"


def as_runner() -> None:
    """Run a solution of our own, as one whose calls are known and as one behind a test program."""
    from . import child

    calls = [[[3], {}], [[[3, "a"]], {}]]
    payload = {"code": CODE, "entry": "f", "prompt": "", "before": "", "stop": True, "calls": calls}
    requests = ["names", ["f"], [], {}, {}], ["call", {"h": 1}, [[3]], {}, {}]
    kept = sys.stdout, sys.stderr, sys.stdin, sys.getrecursionlimit()
    _rounds(list(requests), lambda fd: (child.run_served(payload, fd), child.run_calls(payload, fd)))
    sys.stdout, sys.stderr, sys.stdin = kept[:3]
    sys.setrecursionlimit(kept[3])


def as_tester() -> None:
    """Run a test program of our own against the replies that an honest solution gives."""
    from . import tester
    from .wall import plan

    job = {"tests": [TESTS], "entry": "f", "before": "", "shared": [], "stop": True}
    about = {"n": 2, "t": "function", "b": [], "d": ["__call__"], "m": []}
    replies: list[Any] = [["v", [[{"h": [1, about]}]], {}], ["v", [[3]], {}]]
    sleep = time.sleep
    _rounds(replies, lambda fd: tester.run(plan.prepare(job), job, 60.0, fd))
    time.sleep = sleep


def _rounds(messages: list[Any], run: Callable[[int], object]) -> None:
    for _ in range(ROUNDS):
        # each message is read by itself, though all are there
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        for message in messages:
            frames.send(ours.fileno(), message)
        ours.shutdown(_socket.SHUT_WR)
        run(theirs.fileno())
        ours.close()
        theirs.close()
    sys.modules.pop("solution", None)
