"""Blocks and warps of the kernels: powers of two, whatever the width of a model."""

from __future__ import annotations

import pytest

from grpo_cli.rollout.fused.launch import MOST_WARPS, block_of, warps_of

HEADS = (
    [(64, n) for n in (1, 3, 5, 9, 15, 25)]
    + [(80, 32), (96, 32), (112, 7)]
    + [(128, n) for n in (2, 4, 12, 14, 28, 40)]
)
WIDTHS = (1, 2, 48, 255, 256, 257, 576, 768, 896, 960, 1152, 1536, 2304, 2560, 3584, 4864, 5120, 8960, 13824)


@pytest.mark.parametrize("size", sorted({*WIDTHS, *(width * heads for width, heads in HEADS)}))
def test_every_width_gets_a_block_that_holds_it_and_warps_that_triton_takes(size):
    block = block_of(size)
    assert block & (block - 1) == 0 and block // 2 < size <= block
    warps = warps_of(block)
    assert warps & (warps - 1) == 0 and 1 <= warps <= MOST_WARPS


def test_the_widths_of_known_models_get_these():
    found = {size: (block_of(size), warps_of(block_of(size))) for size in (192, 256, 576, 1536, 8960)}
    assert found == {192: (256, 1), 256: (256, 1), 576: (1024, 4), 1536: (2048, 8), 8960: (16384, 8)}
