"""Whether half precision is faster than float32 on this CPU: measured, since flags of instruction sets do not say it."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WIDTH = 256
TRIES = 4
GAIN = 1.5
"""By how much a product in bfloat16 must be faster. Where it is, it is by far (2.5 times and more with AMX); where it is
emulated it is 25 times slower: so the answer is the same each time it is asked on a machine."""


@cache
def half_pays() -> bool:
    """Whether bfloat16 pays on this CPU: the best of a few products of 256 x 256 in each type. Measured once a process."""
    import torch

    full = _seconds(torch.float32, TRIES)
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
    return min(taken[1:])
