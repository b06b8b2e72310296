"""The scratch folder of a slot in the tier `landlock`, where no file system of its own can be mounted for it."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
import time

from grpo_verifiers.sandbox.inside.folders import wipe
from grpo_verifiers.sandbox.inside.kernel import namespaces

PREFIX = "grpo-scratch-"
YOUNG_S = 60.0  # between being made and being held, a folder looks as if nobody had it


class ScratchFolder:
    """A folder for temporary files that is held by a lock and gone when closed; its owner is the user its lanes become."""

    def __init__(self) -> None:
        _take_away_left_ones()
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        self._held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.geteuid() == 0:
            user = namespaces.user_of(os.fstat(self._held).st_ino)
            with contextlib.suppress(OSError):  # then the lanes find that they cannot write, and say so
                os.chown(self.path, user, user)

    def __enter__(self) -> str:
        """The path, for the time of a block."""
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def empty(self) -> None:
        """Take away what a run left that its lane could not."""
        wipe(self.path)

    def close(self) -> None:
        """Take the folder away."""
        if self._held >= 0:
            _take_away(self.path)
            os.close(self._held)
            self._held = -1


def _take_away(path: str) -> None:
    wipe(path)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _take_away_left_ones() -> None:
    """Folders of processes that were killed: nobody holds their lock."""
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), PREFIX + "*")):
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if time.time() - os.fstat(held).st_ctime > YOUNG_S:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _take_away(path)
        except OSError:
            pass  # another process holds it
        finally:
            os.close(held)
