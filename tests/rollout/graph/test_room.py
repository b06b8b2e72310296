"""The cache of an engine that is asked for more and more: only the last one stays."""

from __future__ import annotations

import gc
import weakref

import pytest

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.graph.caches import PackedStore
from grpo_cli.rollout.graph.engine import GraphEngine
from tests.builders.rollout_models import tiny


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Gemma3"])
def test_a_smaller_cache_goes_before_a_larger_one_is_made(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[PackedStore]] = []
    lived_on: list[int] = []
    init = PackedStore.__init__

    def noted(self: PackedStore, *args: object, **named: object) -> None:
        lived_on.append(sum(store() is not None for store in made))
        made.append(weakref.ref(self))
        init(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(PackedStore, "__init__", noted)
    engine = GraphEngine(tiny(family, max_position_embeddings=512), [])
    gc.collect()
    gc.disable()  # memory of a device is not what Python looks at when it decides to look for circles
    try:
        for new in (8, 100, 200):
            engine.generate([Request([1, 2, 3], 4)], SamplingSettings(new))
    finally:
        gc.enable()
    assert lived_on == [0, 0, 0]
