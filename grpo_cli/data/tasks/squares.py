"""Pictures of white squares on black, to be counted: for models that read images, such as `builtin:tiny-vision`.

A picture of 32 x 32 pixels is a grid of 4 x 4 cells, each the size of a patch; one to four of them are white. A quarter of the
2,516 pictures is held out: it stands in no training row.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from io import BytesIO
from itertools import combinations
from typing import Any

from grpo_cli.data.images import Blob, require_pillow

OPTIONS = ("size", "test_size", "seed", "shuffled")
MOST, CELLS, SIDE = 4, 4, 8


def rows(
    split: str, size: int = 1000, test_size: int = 128, seed: int = 7, shuffled: int = 0
) -> Iterator[dict[str, Any]]:
    """At most `size` training rows, or the `test_size` held-out ones; columns image, question and answer. With `shuffled` the
    pictures are dealt out anew among the rows, so that they say nothing of the answers."""
    draw, held_out = random.Random(f"{seed} {split}"), split == "test"
    pictures: dict[int, list[tuple[int, ...]]] = {}
    for count in range(1, MOST + 1):
        every = list(combinations(range(CELLS * CELLS), count))
        random.Random(seed).shuffle(every)
        cut = len(every) // 4
        pictures[count] = every[:cut] if held_out else every[cut:]
    counts = [1 + i % MOST for i in range(test_size if held_out else size)]
    draw.shuffle(counts)
    shown = [draw.choice(pictures[count]) for count in counts]
    if shuffled:
        draw.shuffle(shown)
    for cells, count in zip(shown, counts, strict=True):
        yield {"image": picture(cells), "question": "How many white squares?", "answer": str(count)}


def picture(cells: tuple[int, ...]) -> Blob:
    """The picture with these cells white, as the bytes of a PNG."""
    require_pillow()
    from PIL import Image

    image = Image.new("RGB", (CELLS * SIDE, CELLS * SIDE))
    for cell in cells:
        x, y = cell % CELLS * SIDE, cell // CELLS * SIDE
        image.paste((255, 255, 255), (x, y, x + SIDE, y + SIDE))
    out = BytesIO()
    image.save(out, "PNG")
    return Blob(out.getvalue())
