"""A process that has torch and TRL loaded and forks a `grpo` for each order: seconds of imports are paid once.

Orders and answers are JSON lines. The fork happens before any thread or worker exists. What differs from a start of its
own is that the imports are done; `tests/loop` tries those as well (`cold=True`).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def serve() -> list[str] | None:
    """Obey until stdin ends; in a forked child, return the arguments of its `grpo`."""
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            pid, status = os.waitpid(order["wait"], 0 if order["blocks"] else os.WNOHANG)
            print(json.dumps({"code": os.waitstatus_to_exitcode(status) if pid else None}), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            return become(order)
        print(json.dumps({"pid": pid}), flush=True)
    return None


def become(order: dict[str, Any]) -> list[str]:
    """Turn this fork into the process that was ordered."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    os.setsid()
    for target, name in enumerate((os.devnull, order["output"], order["errors"])):
        handle = os.open(name, os.O_CREAT | (os.O_WRONLY | os.O_APPEND if target else os.O_RDONLY), 0o600)
        os.dup2(handle, target)
        os.close(handle)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    if order["file_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_bytes"], order["file_bytes"]))
    strike = order["strike"]
    if strike is not None:
        from tests.faults.inject import Striker

        Striker(**strike).install()
    return list(order["argv"])


def main() -> None:
    """Load, say so, serve. What a dead run leaves behind becomes a child of this process, where it is found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    import grpo_cli.app

    print(json.dumps({"ready": True}), flush=True)
    argv = serve()
    if argv is not None:
        sys.argv = ["grpo", *argv]
        grpo_cli.app.main()


if __name__ == "__main__":
    main()
