"""How many cores this process may use."""

from __future__ import annotations

import os


def allowed_cores() -> int:
    """Cores in the affinity mask, at least one; where a system has no mask, all of the machine."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
