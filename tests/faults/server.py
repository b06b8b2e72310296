"""A process that has torch and TRL loaded and forks a `grpo` for each order: seconds of imports are paid once.

Orders and answers are JSON lines. The fork happens before any thread or worker exists. Real process starts are tried
in `tests/loop`; what differs here is only that the imports are done.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

from tests.faults.inject import Striker

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def serve() -> list[str] | None:
    """Obey until stdin ends; in a forked child, return the arguments of its `grpo`."""
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)
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
    for target, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        handle = os.open(order["output"] if target else os.devnull, flags | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, target)
        os.close(handle)
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    if order["file_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_bytes"], order["file_bytes"]))
    strike = order["strike"]
    if strike is not None:
        Striker(**strike).install()
    return list(order["argv"])


def main() -> None:
    """Load, say so, serve. What a dead run leaves behind becomes a child of this process, where it is found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    import grpo_cli.app
    import grpo_cli.jobs.train.job

    print(json.dumps({"ready": True}), flush=True)
    argv = serve()
    if argv is not None:
        sys.argv = ["grpo", *argv]
        grpo_cli.app.main()


if __name__ == "__main__":
    main()
