"""Which shapes are captured for micro-batches of uneven samples, on a CPU: the choice asks no device."""

from __future__ import annotations

import random

from grpo_cli.train.packed.graphs import CAPTURE, HEADROOM, MOST, ShapeChoice, to_drop
from grpo_cli.train.packed.layout import PackedShape, shape_for


def need(lengths: list[int], prompts: int = 4, prompt: int = 64) -> PackedShape:
    """What completions of these lengths need, as `plan` counts it."""
    fed, of_each = sum(lengths) - len(lengths), len(lengths) * prompt
    tokens = prompts * prompt + fed
    return PackedShape(tokens, tokens + of_each, sum(lengths), prompts + len(lengths), prompt + max(lengths) - 1)


class Held:
    """The shapes that `Graphs` would hold, least recently used first."""

    def __init__(self) -> None:
        self.shapes: dict[PackedShape, None] = {}
        self.choice = ShapeChoice()
        self.captured: list[PackedShape] = []

    def run(self, wanted: PackedShape, shorter: int = 10**6) -> PackedShape:
        shape = self.choice.of(self.shapes, wanted, shorter)
        assert shape.holds(wanted)
        if shape not in self.shapes:
            self.captured.append(shape)
            while len(self.shapes) >= MOST:
                del self.shapes[to_drop(self.shapes)]
        self.shapes.pop(shape, None)
        self.shapes[shape] = None
        return shape


def test_uneven_samples_are_hardly_ever_captured_anew() -> None:
    for seed in range(5):
        rng, held, padding = random.Random(seed), Held(), 0.0
        passes = 60 * 8
        for _ in range(passes):
            wanted = need([rng.randint(64, 256) for _ in range(32)])
            padding += held.run(wanted).tokens / wanted.tokens - 1
        # in passes: a shape for each of the dozen sizes that come would cost 120
        assert len(held.captured) <= 7 and CAPTURE * len(held.captured) + padding < 0.21 * passes


def test_the_first_capture_leaves_room_for_a_longer_step() -> None:
    held, rng = Held(), random.Random(0)
    first = [rng.randint(64, 256) for _ in range(32)]
    held.run(need(first))
    held.run(need([length + length // (2 * HEADROOM) for length in first]))
    assert len(held.captured) == 1


def test_rows_of_full_length_are_captured_as_they_are() -> None:
    held, full = Held(), need([256] * 32)
    assert held.run(full, shorter=0) == shape_for(full)
    # cut ones fit in it
    rng = random.Random(0)
    for _ in range(CAPTURE):
        held.run(need([rng.randint(64, 256) for _ in range(31)] + [256]))
    assert len(held.captured) == 1


def test_a_size_gets_its_own_shape_once_its_padding_has_cost_a_capture() -> None:
    held = Held()
    held.run(need([256] * 32))
    small = need([100] * 32)
    tokens = [held.run(small).tokens for _ in range(20 * CAPTURE)]
    assert tokens[0] == held.captured[0].tokens and len(held.captured) == 2
    assert tokens[-1] == held.captured[1].tokens <= shape_for(small, 8).tokens
    lost = sum(taken - small.tokens for taken in tokens if taken != tokens[-1])
    assert CAPTURE / 2 * small.tokens <= lost <= 2 * CAPTURE * small.tokens


def test_the_largest_shape_is_never_dropped_for_smaller_ones() -> None:
    held = Held()
    held.run(need([256] * 32))
    largest = held.captured[0]
    for length in range(20, 240, 8):
        for _ in range(12 * CAPTURE):
            held.run(need([length] * 32))
    assert len(held.captured) > MOST and largest in held.shapes and len(held.shapes) == MOST
