"""Ensures that a run has one writer. The kernel owns the lock, so a dead process holds none."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from grpo_cli.errors import SetupError, UsageError, why_unwritten

LOCK = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without locks: there a run is not protected."""
TAKEN = (errno.EACCES, errno.EAGAIN)
PATIENCE_S = 5.0
"""Seconds to wait: the ranks of a launch that was killed end a moment later."""


def hold(run: Path, patience_s: float = PATIENCE_S) -> BinaryIO:
    """Keep other processes from writing to a run until the file returned is closed, or this process ends.

    A child that is forked does not inherit the lock, so that a worker which outlives the run blocks no resume.

    Raises:
        UsageError: another process trains in it.
        SetupError: the folder cannot be written.
    """
    try:
        # open for appending: truncating would erase the name of a live holder
        file = (run / LOCK).open("a+b", buffering=0)
    except OSError as err:
        raise SetupError(f"`{run}` cannot be written: {why_unwritten(err)}") from err
    until = time.monotonic() + patience_s
    while True:
        try:
            # lockf, not flock: a POSIX lock belongs to this process alone, that of flock would live on in its
            # forks
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as err:
            if err.errno in NO_LOCKS:
                return file
            if err.errno not in TAKEN:
                raise
        if time.monotonic() >= until:
            file.seek(0)
            holder = file.read().decode(errors="replace") or "another process"
            file.close()
            raise UsageError(
                f"{holder} trains in it right now",
                place=str(run),
                hint=f"`grpo watch {run}` shows how far it is; if that process is gone, delete `{run / LOCK}`",
            )
        time.sleep(0.1)
    with suppress(OSError):  # the name only serves the message, and the disk may be full
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    return file
