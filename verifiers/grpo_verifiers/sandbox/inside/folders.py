"""The scratch folder: emptied after each run, and looked at where no file system of its own says when it is full."""

from __future__ import annotations

import contextlib
import os

MOST_BYTES, MOST_FILES = 64 << 20, 4096  # as `namespaces` gives to a scratch folder
MOST_FOLDERS = 200  # some disks take milliseconds to take one away
MOST_UNSURE = 10
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def wipe(folder: str, mounts: tuple[str, ...] = ()) -> bool:
    """Empty the scratch folder but for what is mounted in it; False if something resists, then the lane has to go.

    Goes down and up by one descriptor: a path may be longer than the system takes, and deeper than a stack.
    """
    spared = [m for m in mounts if m.startswith(folder + "/")]
    with contextlib.suppress(OSError):  # it may be root's, who lets everybody write there
        os.chmod(folder, 0o700)
    here = -1
    try:
        here = os.open(folder, FOLDER)
        levels = [(folder, _sweep(here, folder, spared))]
        while True:
            path, folders = levels[-1]
            if folders:
                name = folders.pop()
                path = f"{path}/{name}" if spared else name
                if not _leads_on(path, spared):
                    # a run may have taken its own rights to it away
                    os.chmod(name, 0o700, dir_fd=here)
                here = _step(here, name)
                levels.append((path, _sweep(here, path, spared)))
                continue
            levels.pop()
            if not levels:
                return True
            here = _step(here, "..")
            if not _leads_on(path, spared):
                os.rmdir(path.rpartition("/")[2], dir_fd=here)
    except OSError:
        return False
    finally:
        if here >= 0:
            os.close(here)


def _sweep(here: int, path: str, spared: list[str]) -> list[str]:
    """Take away the files of a folder; the names of the folders in it."""
    with os.scandir(here) as found:
        entries = [e for e in found if not spared or f"{path}/{e.name}" not in spared]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            # a link itself and never what it leads to
            os.unlink(entry.name, dir_fd=here)
    return [e.name for e in entries if e.is_dir(follow_symlinks=False)]


def _step(here: int, name: str) -> int:
    there = os.open(name, FOLDER, dir_fd=here)
    os.close(here)
    return there


def _leads_on(path: str, spared: list[str]) -> bool:
    return any(m.startswith(path + "/") for m in spared)


class FolderWatch:
    """Looks at a folder while a run goes on."""

    def __init__(self, folder: str) -> None:
        self.folder, self.unsure = folder, 0

    def is_full(self) -> bool:
        """Whether it holds more than it may, or hides what it holds. What changes while it is walked is looked at again."""
        try:
            size, files, folders = held(self.folder)
        except FileNotFoundError:
            # a run that renames folders without end would never be measured: a few such looks are an answer as well
            self.unsure += 1
            return self.unsure > MOST_UNSURE
        except OSError:
            return True
        self.unsure = 0
        return size > MOST_BYTES or files > MOST_FILES or folders > MOST_FOLDERS


def held(folder: str) -> tuple[int, int, int]:
    """Bytes on disk, files and folders in a folder; counting ends at the limit.

    Raises:
        OSError: part of it cannot be read; FileNotFoundError: or was taken away meanwhile.
    """
    size = files = folders = 0
    here = os.open(folder, FOLDER)
    try:
        levels = [list[str]()]
        is_new = True
        while True:
            if is_new:
                with os.scandir(here) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            folders += 1
                            levels[-1].append(entry.name)
                        else:
                            files += 1
                            size += entry.stat(follow_symlinks=False).st_blocks * 512
                        # counting a hundred thousand files would itself be the attack
                        if files > MOST_FILES or folders > MOST_FOLDERS:
                            return size, files, folders
            is_new = bool(levels[-1])
            if is_new:
                here = _step(here, levels[-1].pop())
                levels.append([])
                continue
            levels.pop()
            if not levels:
                return size, files, folders
            here = _step(here, "..")
    finally:
        os.close(here)
