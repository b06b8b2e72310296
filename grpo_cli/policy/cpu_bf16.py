"""Whether half precision is faster than float32 on this CPU: measured, since flags of instruction sets do not show it.

A measurement may fall differently in another process; where several have to compute alike one of them measures, and its
answer is settled for all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WIDTH = 256
TRIES = 4
GAIN = 1.5
"""By how much a product in bfloat16 must be faster. Where it is, it is by far (2.5 times and more with AMX); where it is
emulated it is 25 times slower."""

_settled: list[bool] = []
"""The answer of this process, once it has one."""


def cpu_bf16_pays() -> bool:
    """Whether bfloat16 is used on this CPU: what was settled, else what is measured at the first call."""
    if not _settled:
        settle_cpu_bf16(measure_cpu_bf16())
    return _settled[0]


def settle_cpu_bf16(pays: bool) -> None:
    """The answer of this process from now on: that of the other ranks, or of the run that is resumed."""
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
    # the fastest: what disturbs a measurement only ever makes it slower
    return min(taken[1:])
