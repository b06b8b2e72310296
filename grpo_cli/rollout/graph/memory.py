"""How many rows of cache fit. A row that does not fit is not started; a call for which not even one fits is refused
before any work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.errors import SetupError

if TYPE_CHECKING:
    import torch

    from grpo_cli.rollout.decoding.cache import CacheLayout

SHARE = 0.6
"""Of the free memory, at most this much becomes cache: the forward pass itself and the training step need the rest."""


def free_bytes(device: torch.device, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory to be had on the device now; None where it cannot be read."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        # what torch has reserved and does not use can be had as well
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def rows_that_fit(layout: CacheLayout, wanted: int, columns: int, budget: int | None) -> int:
    """At most `wanted` rows of `columns` columns within `budget` bytes; SetupError when not one fits."""
    if budget is None:
        return wanted
    row = layout.token_bytes * columns
    if row > budget:
        raise SetupError(
            f"the cache of one sample of {columns} tokens needs {_size(row)}, and {_size(budget)} are free for it",
            hint="lower `sample.max_tokens`, or use a smaller model",
        )
    return int(min(wanted, budget // row))


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} GiB"
