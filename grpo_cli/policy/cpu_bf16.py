"""Whether bfloat16 is faster than float32 on this CPU. It is measured: the CPU's instruction flags do not show it.

Two processes may measure different results. Where several processes must compute alike, one of them measures and all
use its result.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WIDTH = 256
TRIES = 4
GAIN = 1.5
"""The smallest speed-up for which bfloat16 is used. In practice it is either 2.5 times and more (AMX), or bfloat16 is
emulated and 25 times slower."""

_settled: list[bool] = []
"""The result that this process uses; None until it is measured or set."""


def cpu_bf16_pays() -> bool:
    """Whether bfloat16 is used on this CPU: the result that was set, else a measurement at the first call."""
    if not _settled:
        settle_cpu_bf16(measure_cpu_bf16())
    return _settled[0]


def settle_cpu_bf16(pays: bool) -> None:
    """Set the result of this process to that of the other ranks, or of the run that is resumed."""
    _settled[:] = [pays]


def measure_cpu_bf16() -> bool:
    """Whether the best of a few products of 256 x 256 is faster in bfloat16 than in float32, by `GAIN`."""
    import torch

    full = _seconds(torch.float32, TRIES)
    # one try first: emulated bfloat16 takes 25 times as long, and four of those would be felt at every start
    if _seconds(torch.bfloat16, 1) > 4 * full:
        return False
    return GAIN * _seconds(torch.bfloat16, TRIES) < full


def _seconds(dtype: torch.dtype, tries: int) -> float:
    import torch

    matrix = torch.ones((WIDTH, WIDTH), dtype=dtype)
    taken = []
    for _ in range(tries + 1):  # the first one prepares
        began = time.perf_counter()
        matrix @ matrix
        taken.append(time.perf_counter() - began)
    # the fastest run: disturbances only ever make a run slower
    return min(taken[1:])
