"""The captured form of decoding, with a stand-in for the capture so that it runs on a CPU."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from grpo_cli.rollout.decoding.attention import attend_one
from grpo_cli.rollout.decoding.cache import PLAIN
from grpo_cli.rollout.decoding.rollout_mode import Forward
from grpo_cli.rollout.decoding.supports import measure_forms, measure_layout
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.fused.llama_cuda import FusedBackbone
from grpo_cli.rollout.fused.merged_weights import MergedWeights
from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.fused.self_check import attention_error, checked_merged_weights
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.graph.stepper import GraphStepper
from tests.builders.rollout_models import FAMILIES, plain_logps, prompts, tiny

ENDS = {3, 11}


def plain_fused(query, key, value, keys, values, position, scale, *, form=PLAIN):
    """What the fused kernel does, in plain torch."""
    rows = torch.arange(len(position))
    keys[rows, :, position], values[rows, :, position] = key[:, :, 0], value[:, :, 0]
    live = slice(0, len(position))
    hidden = torch.arange(keys.shape[2]) > position[:, None]
    if form.window is not None:
        hidden |= torch.arange(keys.shape[2]) <= position[:, None] - form.window
    # The kernel never reads columns it does not need, so they may hold anything.
    safe = [buffer[live].masked_fill(hidden[:, None, :, None], 0) for buffer in (keys, values)]
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[:, None, None]
    return attend_one(query, *safe, mask, scale, form)


def captured(model, steps=8, **options):
    stepper = GraphStepper(Forward(model), steps=steps, capture=lambda step: step)
    return GraphEngine(model, ENDS, stepper=stepper, **options), stepper


def tokens_of(done):
    return [[c.token_ids for c in row] for row in done]


@cache
def eager_samples(settings):
    """What the fresh model draws without captured steps after seven prompts, four samples each."""
    return tokens_of(GraphEngine(tiny(), ENDS).generate([Request(p, 4) for p in prompts(7)], settings))


@cache
def scored(prompt, tokens, temperature):
    return plain_logps(tiny(), list(prompt), list(tokens), temperature)


@pytest.mark.parametrize("fused", [None, plain_fused], ids=["plain", "fused"])
@pytest.mark.parametrize("rows", [1, 3, 7, 64])
@pytest.mark.parametrize("steps", [1, 8])
def test_captured_steps_give_the_same_samples_as_eager_ones(steps, rows, fused):
    model = tiny()
    asked = [Request(p, 4) for p in prompts(7)]
    for settings in (SamplingSettings(21, seed=3), SamplingSettings(9, temperature=0, repetition_penalty=1.3)):
        engine, _ = captured(model, steps, max_rows=rows, attention=fused)
        done = engine.generate(asked, settings)
        assert tokens_of(done) == eager_samples(settings)
        for request, samples in zip(asked, done, strict=True):
            for sample in samples:
                temperature = settings.temperature or 1.0
                logps = scored(tuple(request.prompt_ids), tuple(sample.token_ids), temperature)
                assert torch.allclose(torch.tensor(sample.logps), logps, atol=1e-4)


def test_graphs_are_kept_over_an_update_in_place_and_follow_it():
    model = tiny()
    engine, stepper = captured(model)
    settings = SamplingSettings(12, temperature=0)
    engine.generate([Request([4, 9], 2)], settings)
    once = stepper.captures
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    done = engine.generate([Request([4, 9], 2)], settings)
    assert stepper.captures == once
    assert tokens_of(done) == tokens_of(GraphEngine(model, ENDS).generate([Request([4, 9], 2)], settings))


def test_a_moved_weight_makes_the_graphs_anew():
    model = tiny()
    engine, stepper = captured(model)
    settings = SamplingSettings(4, temperature=0)
    engine.generate([Request([4, 9])], settings)
    model.model.norm.weight = torch.nn.Parameter(model.model.norm.weight.detach().clone())
    engine.generate([Request([4, 9])], settings)
    assert stepper.captures == 2


def test_switching_an_adapter_makes_the_graphs_anew():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    engine, stepper = captured(model)
    settings = SamplingSettings(4, temperature=0)
    engine.generate([Request([4, 9])], settings)
    with model.disable_adapter():
        engine.generate([Request([4, 9])], settings)
    assert stepper.captures == 2


def test_training_and_evaluation_settings_keep_their_own_graphs():
    engine, stepper = captured(tiny())
    train, held_out = SamplingSettings(8, seed=1), SamplingSettings(8, temperature=0)
    for settings in (train, held_out):
        engine.generate([Request([4, 9], 4)], settings)
    once = stepper.captures
    for seed in (2, 3):
        engine.generate([Request([4, 9], 4)], SamplingSettings(8, seed=seed))
        engine.generate([Request([4, 9], 4)], held_out)
    assert stepper.captures == once


def test_rows_are_captured_in_buckets():
    stepper = GraphStepper(Forward(tiny()))
    assert [stepper.width(n) for n in (1, 3, 33, 256, 257, 1025)] == [1, 4, 64, 256, 384, 1280]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stand_in_for_the_fused_attention_agrees_with_the_plain_one(family):
    model = tiny(family)
    heads = model.config.num_attention_heads
    for form in measure_forms(model):
        assert attention_error(plain_fused, measure_layout(model), heads, form) < 1e-5


@pytest.mark.parametrize("family", ["Mistral-window", "Gemma2", "GptOss"])
def test_a_fused_attention_that_forgets_windows_caps_or_sinks_is_caught(family):
    def forgetful(*inputs, form):
        return plain_fused(*inputs)

    model = tiny(family)
    heads = model.config.num_attention_heads
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "sinks"):
                module.sinks.fill_(2.0)
    for form in measure_forms(model):
        if not form.is_plain:
            assert attention_error(forgetful, measure_layout(model), heads, form) > 0.05


def test_a_fused_attention_that_forgets_to_store_is_caught():
    def forgetful(query, key, value, keys, values, position, scale, *, form):
        return plain_fused(query, key, value, keys.clone(), values.clone(), position, scale, form=form)

    assert attention_error(forgetful, measure_layout(tiny()), 4) == float("inf")


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_copies_give_the_logits_of_autocast_and_follow_an_update(family):
    model = tiny(family)
    merged = MergedWeights(model, torch.bfloat16)
    ids = torch.arange(12)[None]
    for _ in range(2):
        merged.refresh()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            expected = model(ids, use_cache=False).logits
            with patched(merged.patches()):
                got = model(ids, use_cache=False).logits
        assert (got - expected).norm() < 0.02 * expected.norm()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    assert "forward" not in vars(model.lm_head)


def test_projections_of_one_input_run_as_one_product():
    merged = MergedWeights(tiny("Llama"), torch.bfloat16)
    assert sorted(len(group.modules) for group in merged.groups) == [1] * 5 + [2, 2, 3, 3]


def test_captured_steps_under_autocast_run_through_the_copies():
    model = tiny(initializer_range=0.05)
    merged = checked_merged_weights(model, torch.bfloat16, pytest.fail)
    engine, _ = captured(model, autocast=torch.bfloat16, merged=merged)
    done = engine.generate([Request([4, 9, 5], 16)], SamplingSettings(20, seed=3))
    apart = []
    with torch.autocast("cpu", torch.bfloat16):
        for sample in done[0]:
            apart.append(torch.tensor(sample.logps) - plain_logps(model, [4, 9, 5], sample.token_ids))
    assert torch.cat(apart).abs().mean() < 0.02
    engine.release()
    assert engine.generate([Request([4, 9, 5], 16)], SamplingSettings(20, seed=3)) == done


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_weights_in_their_own_type_move_side_by_side_and_are_not_kept_twice(family, tmp_path):
    model = tiny(family)
    ids = torch.arange(12)[None]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    merged = MergedWeights(model, torch.float32)
    merged.refresh()
    layer = model.model.layers[0]
    storage = {m.weight.untyped_storage().data_ptr() for m in (layer.mlp.gate_proj, layer.mlp.up_proj)}
    assert len(storage) == 1 and len(merged.groups) == 4
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with torch.no_grad():
            expected = model(ids, use_cache=False).logits
            with patched(merged.patches()):
                assert torch.allclose(model(ids, use_cache=False).logits, expected, atol=1e-4)
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_weights_that_somebody_moves_on_are_read_where_they_are():
    model = tiny()
    merged = MergedWeights(model, torch.float32)
    merged.refresh()
    weight = model.model.layers[0].mlp.up_proj.weight
    weight.data = 2 * weight.data
    merged.refresh()
    ids = torch.arange(12)[None]
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
        with patched(merged.patches()):
            assert torch.allclose(model(ids, use_cache=False).logits, expected, atol=1e-4)


def test_the_sum_and_the_norm_of_a_layer_outside_the_known_build_are_not_fused():
    model = tiny()
    assert FusedBackbone(model.base_model, measure_forms(model), None, None).layers
    model.model.layers[1].mlp.extra = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="`extra`"):
        FusedBackbone(model.base_model, measure_forms(model), None, None)
    with pytest.raises(ValueError, match="no rotary"):
        FusedBackbone(tiny("SmolLM3").base_model, [PLAIN] * 2, None, None)
    with pytest.raises(ValueError, match="another activation"):
        FusedBackbone(tiny(hidden_act="gelu").base_model, [PLAIN] * 2, None, None)
