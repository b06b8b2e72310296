"""How many threads torch may use here. The core count of the machine is not the answer: an affinity mask, a
cgroup quota or neighbours that already run make more threads *slower*, because idle OpenMP threads spin.
"""

from __future__ import annotations

import os
from pathlib import Path

from grpo_verifiers.processes.pool import allowed_cores


def cgroup_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """The smallest CPU quota, in cores, of this process's cgroup and its parents (v2, then v1); None without one."""
    folders = [root, root / "cpu"]
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        # a line of v2 names no controllers; of v1 only the line with `cpu` among them counts
        if controllers and "cpu" not in controllers.split(","):
            continue
        here = (root / "cpu" if controllers else root) / path.strip("/")
        # a parent's quota holds for all below it
        folders += [here, *[parent for parent in here.parents if parent.is_relative_to(root)]]
    quotas = []
    for folder in folders:
        try:
            if (folder / "cpu.max").exists():
                limit, period = (folder / "cpu.max").read_text().split()
            else:
                limit = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            if limit not in ("max", "-1"):
                quotas.append(int(limit) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return min(quotas) if quotas else None


def usable_cores() -> int:
    """Whole cores this process may use: the affinity mask, cut by the cgroup quota; at least 1."""
    cores = allowed_cores()
    quota = cgroup_quota()
    if quota is not None:
        # rounded down: one thread more than the quota is throttled in every period, and the others spin meanwhile
        cores = min(cores, int(quota))
    return max(1, cores)


def set_threads(asked: int | None) -> None:
    """Have torch use the threads that `choose_threads` chooses."""
    import torch

    torch.set_num_threads(choose_threads(asked)[0])


def choose_threads(asked: int | None = None) -> tuple[int, str]:
    """(threads, why): what was asked, else `OMP_NUM_THREADS`, else the usable cores that neighbours leave idle."""
    if asked:
        return asked, "asked for"
    try:
        given = int(os.environ.get("OMP_NUM_THREADS", ""))
    except ValueError:
        given = 0
    if given > 0:
        return given, "OMP_NUM_THREADS"
    cores = usable_cores()
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = 0.0
    # the load is the whole machine's, so it is taken from the whole machine's cores, not from ours
    idle = (os.cpu_count() or cores) - load
    if idle < cores - 0.5:
        return max(1, min(cores, round(idle))), f"{cores} usable cores, load {load:.1f}"
    return cores, f"{cores} usable cores"
