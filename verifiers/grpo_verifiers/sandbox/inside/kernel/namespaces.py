"""A new root with nothing but the interpreter, own pids, no network, no privileges. Works as root and as a plain user."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import libc

NOBODY = 65534
FIRST_UID = 1_900_000_000  # lanes of root get a user each: threads are counted by user, so one lane could starve all
SCRATCH = "/tmp"  # inside the new root, not of the host
SCRATCH_OPTIONS = "size=64m,nr_inodes=4096,mode=1777"
USERS = 1 << 22  # as many as there can be pids
MOUNT_POINTS = ("/mnt", "/media", "/srv", "/opt", "/var/tmp", "/run", "/home", "/tmp")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def enter(readable: Sequence[str], links: Sequence[tuple[str, str]], hidden: Sequence[str]) -> None:
    """Move this process into the namespaces; returns in a child that is pid 1 there, the caller waits for it and exits.

    It sees the readable paths, bound read-only, the links as they are, the hidden folders empty, and its scratch folder.

    Raises:
        OSError: the kernel or a container policy refuses; nothing of the process can be used then.
    """
    is_root, user = os.geteuid() == 0 and _can_become_nobody(), user_of(os.getpid())
    flags = libc.CLONE_NEWNS | libc.CLONE_NEWPID | libc.CLONE_NEWNET | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS
    try:
        if not is_root:
            raise PermissionError
        libc.unshare(flags)
    except OSError:
        is_root = False
        _unshare_as_user(flags)
    # only children enter a pid namespace: the first one is pid 1 there, and all others end with it
    keeper = os.getpid()
    child = os.fork()
    if child:
        _keep(child)
    _build_root(readable, links, hidden)
    _give_up_rights(user if is_root else None)
    libc.prctl(libc.PR_SET_PDEATHSIG, 9)  # cleared by the change of user, so set after it
    if os.getppid() not in (0, keeper):
        os._exit(1)


def _keep(child: int) -> None:
    """Hold the place of the server outside; ends with it."""
    os.closerange(3, 256)
    _, status = os.waitpid(child, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _can_become_nobody() -> bool:
    """Root may change user, and nobody could read the interpreter's library by its own mode bits."""
    try:
        with open("/proc/self/uid_map", encoding="utf-8") as file:
            inside, _, count = (int(x) for x in file.read().split()[:3])
        mode = os.stat(os.__file__).st_mode
    except (OSError, ValueError):
        return False
    try:
        with open("/proc/self/setgroups", encoding="utf-8") as file:
            groups = file.read().strip()
    except OSError:
        groups = "allow"
    return inside == 0 and count > NOBODY and groups == "allow" and bool(mode & 0o004)


def _unshare_as_user(flags: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    libc.unshare(flags | libc.CLONE_NEWUSER)
    for name, text in (
        # the kernel lets a plain user write its map of groups only after this
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {uid} 1"),
        ("gid_map", f"{NOBODY} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def _build_root(readable: Sequence[str], links: Sequence[tuple[str, str]], hidden: Sequence[str]) -> None:
    # first of all: mounts made from here on do not show on the host
    libc.mount("", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    # a folder to stand on that hides nothing which is to be shown
    root = next(p for p in MOUNT_POINTS if os.path.isdir(p) and not any(_is_under(r, p) for r in (*readable, *DEVICES)))
    libc.mount("tmpfs", root, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "size=1m,mode=755")
    os.mkdir(root + SCRATCH, 0o755)
    libc.mount("tmpfs", root + SCRATCH, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, SCRATCH_OPTIONS)
    # the outer before the inner, which it would cover
    for path in sorted(readable, key=len):
        _bind(path, root + path, read_only=True)
    for path in DEVICES:
        if os.path.exists(path):
            _bind(path, root + path, read_only=False)
    for path in hidden:
        if os.path.isdir(root + path):
            libc.mount("tmpfs", root + path, "tmpfs", libc.MS_RDONLY, "size=4k")
    for path, target in links:
        if not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), 0o755, exist_ok=True)
            os.symlink(target, root + path)
    os.chdir(root)
    # stacks the new root over the old one, which the next line takes away: unlike chroot there is no way back
    libc.syscall(libc.PIVOT_ROOT[libc.ARCH], b".", b".")
    libc.umount(".")
    os.chdir(SCRATCH)
    # the root itself last, when every mount point in it is made
    libc.mount("", "/", "", libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV)


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _bind(source: str, target: str, read_only: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return
    libc.mount(source, target, "", libc.MS_BIND | libc.MS_REC)
    if read_only:
        # flags that the host set are locked: a remount that leaves one out is refused
        kept = os.statvfs(target).f_flag & (libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
        libc.mount("", target, "", libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | libc.MS_NOSUID | kept)


def user_of(number: int) -> int:
    """A user that no one else is, by a number such as a pid, where the user map reaches that far; else nobody."""
    try:
        with open("/proc/self/uid_map", encoding="utf-8") as file:
            inside, _, count = (int(x) for x in file.read().split()[:3])
    except (OSError, ValueError):
        return NOBODY
    return FIRST_UID + number % USERS if inside == 0 and count > FIRST_UID + USERS else NOBODY


def _give_up_rights(user: int | None) -> None:
    if user is not None:
        # while it is still root: a user without rights cannot leave its groups
        os.setgroups([])
        os.setresgid(user, user, user)
        for cap in range(64):
            try:
                libc.prctl(libc.PR_CAPBSET_DROP, cap)
            except OSError:
                break
        # real, effective and saved at once, or the old user could be taken back
        os.setresuid(user, user, user)
        libc.clear_capabilities()
    else:
        libc.drop_capabilities()
