"""Which captured shape a micro-batch runs in, and when it is worth a capture of its own. No device is asked.

Samples of a policy are of uneven length, so that hardly two micro-batches need the same sizes. A capture costs as much as
several passes; padding costs a little each time. So a shape is captured larger than it must be, what is smaller runs in it,
and a size gets a shape of its own once the padding that it went without comes to what a capture costs: all captures and all
padding together then cost at most about twice what they would if all sizes were known before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from grpo_cli.train.packed.layout import STEP, PackedShape, shape_for

MOST = 8
"""Shapes held; they share one pool of memory."""
HEADROOM = 16
"""A shape that is larger than all others is captured a 16th larger than needed, as far as its rows could be longer."""
STEPS = 4, 8, STEP
"""Sizes that a capture is weighed for: many sizes share one of the coarse ones, whose padding adds up soon."""
CAPTURE = 10
"""Passes that a capture costs: two before it, the recording, and what the host does meanwhile. One H200 took about 0.85 s, which
is 8 passes of the 1.5B shape and 14 at 135M."""


@dataclass
class ShapeChoice:
    """Remembers the padding of each size."""

    vain: dict[tuple[int, int], int] = field(default_factory=dict)
    """Step and tokens of a size -> tokens that were padding beyond it in the shapes taken instead."""

    def of(self, held: Iterable[PackedShape], need: PackedShape, shorter: int) -> PackedShape:
        """The shape for rows that need `need`: one of those `held`, or one to capture.

        Args:
            held: shapes that are captured.
            need: sizes of the rows.
            shorter: tokens that their completions would have more if all were as long as the longest.
        """
        near = [shape for shape in held if shape.holds(need)]
        if not near:
            return shape_for(with_headroom(need, shorter))
        found = min(near, key=lambda shape: shape.tokens)
        for step in STEPS:
            own = shape_for(need, step)
            if own.tokens < found.tokens:
                vain = self.vain.get((step, own.tokens), 0) + found.tokens - own.tokens
                self.vain[step, own.tokens] = vain
                if vain >= CAPTURE * own.tokens:
                    del self.vain[step, own.tokens]
                    return own
        return found


def to_drop(held: Iterable[PackedShape]) -> PackedShape:
    """Of shapes in the order of their last use the first that is not the largest, which alone can hold what is largest."""
    shapes = list(held)
    largest = max(shapes, key=lambda shape: shape.tokens)
    return next((shape for shape in shapes if shape != largest), largest)


def with_headroom(need: PackedShape, most: int) -> PackedShape:
    """What micro-batches a little larger need, by `most` tokens at most."""
    more = min(need.tokens // HEADROOM, most)
    keys = need.keys + more * need.keys // need.tokens
    return PackedShape(need.tokens + more, keys, need.targets + more, need.sequences, need.longest)
