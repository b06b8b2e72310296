"""The CPU's decode step and cache: the same numbers as the model's own forward, and taken only then."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.rollout.decoding.cache import CacheLayout
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.fused.llama_cpu import checked_llama_cpu
from grpo_cli.rollout.graph.caches import PackedStore
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import FAMILIES, prompts, tiny

ENDS = {3, 11}
LAYOUT = CacheLayout(2, (3, 4), (2, 5), torch.float32, torch.device("cpu"))
OWN_BUILD = {"Gemma", "Gemma2", "Gemma3", "GptOss", "SmolLM3"}
"""Another norm, layers without rotation."""


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_llamas_build_decode_leanly_and_others_by_themselves(family):
    assert len(checked_llama_cpu(tiny(family))) == (family not in OWN_BUILD)


def test_a_scale_that_is_no_module_is_noticed():
    assert checked_llama_cpu(tiny("Granite", residual_multiplier=0.5)) == []


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - OWN_BUILD))
def test_a_lean_step_draws_what_the_models_own_forward_draws(family):
    model = tiny(family, initializer_range=0.2)
    asked = [Request(p, 5) for p in prompts(6)]
    settings = SamplingSettings(25, temperature=0.9, seed=4)
    own = GraphEngine(model, ENDS, max_rows=7).generate(asked, settings)
    lean = make_engine("graph", model, end_ids=ENDS, max_rows=7).generate(asked, settings)
    assert [[c.token_ids for c in row] for row in lean] == [[c.token_ids for c in row] for row in own]
    for ours, theirs in zip((c for row in lean for c in row), (c for row in own for c in row), strict=True):
        assert torch.allclose(torch.tensor(ours.logps), torch.tensor(theirs.logps), atol=1e-5)


def test_a_model_that_does_something_else_keeps_its_own_forward():
    model = tiny()
    norm = model.model.layers[1].post_attention_layernorm
    own = norm.forward
    norm.forward = lambda x: 1.001 * own(x)
    assert checked_llama_cpu(model) == []


def test_half_precision_weights_keep_their_own_forward():
    assert checked_llama_cpu(tiny().to(torch.bfloat16)) == []


def test_a_cache_keeps_its_rows_as_it_widens():
    store, length = PackedStore(LAYOUT, 4, 40), 0
    written: list[tuple[torch.Tensor, torch.Tensor]] = []
    for column in range(40):
        length = store.reach(column + 1, 3)
        assert column < length <= 40
        assert store.keys[1][:3].is_contiguous()
        key, value = torch.randn(3, 3, 4), torch.randn(3, 2, 5)
        store.keys[1][:3, :, column], store.values[1][:3, :, column] = key, value
        written.append((key, value))
    assert length == 40
    assert torch.equal(store.keys[1][:3], torch.stack([key for key, _ in written], dim=2))
    assert torch.equal(store.values[1][:3], torch.stack([value for _, value in written], dim=2))


def test_what_lies_in_a_cache_unwritten_is_finite():
    store = PackedStore(LAYOUT, 4, 40)
    for columns in (3, 17, 40):
        store.reach(columns, 1)
        store.keys[0][:1], store.values[1][:1] = 1.0, 1.0
    store.restart()
    store.reach(9)
    assert all(buffer.isfinite().all() for buffer in (*store.keys, *store.values))


def test_a_cache_that_the_machine_has_no_memory_for_says_so():
    with pytest.raises(RuntimeError, match="memory"):
        PackedStore(LAYOUT, 1 << 30, 1 << 20)
