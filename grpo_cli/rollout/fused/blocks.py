"""What a kernel's launch needs to know of a width: Triton takes powers of two only, of lanes and of warps."""

from __future__ import annotations

LANES_PER_WARP = 256
"""Numbers that a warp holds, eight a thread."""
MOST_WARPS = 8


def block_of(width: int) -> int:
    """The lanes that hold `width` numbers in one block: the next power of two."""
    return 1 << max(0, width - 1).bit_length()


def warps_of(block: int) -> int:
    """Warps for a block, a power of two from 1 to `MOST_WARPS`; `block` is one as well."""
    return min(MOST_WARPS, max(1, block // LANES_PER_WARP))
