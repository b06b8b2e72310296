"""The engines against `model.generate` and plain forward passes."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import GenerationConfig

from grpo_cli.rollout.decoding.supports import supports
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import FAMILIES, plain_logps, prompts, tiny

ENDS = {3, 11}


def generate_greedily(model, prompt, new, ends=frozenset(ENDS)):
    config = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=sorted(ends) or None, pad_token_id=0)
    with torch.no_grad():
        ids = torch.tensor([prompt])
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("engine", ["graph", "transformers"])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generate_token_for_token(family, engine):
    model = tiny(family)
    asked = [Request(p, 2) for p in prompts(5)]
    done = make_engine(engine, model, end_ids=ENDS, pad_id=0).generate(asked, SamplingSettings(12, temperature=0))
    for request, pair in zip(asked, done, strict=True):
        expected = generate_greedily(model, request.prompt_ids, 12)
        assert [c.token_ids for c in pair] == [expected, expected]
        assert all(c.finish == ("stop" if expected[-1] in ENDS else "length") for c in pair)


@pytest.mark.parametrize("engine", ["graph", "transformers"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logps_equal_a_plain_forward_pass(family, engine):
    model = tiny(family)
    asked = [Request(p, 3) for p in prompts(4)]
    settings = SamplingSettings(10, temperature=0.7, seed=5)
    for request, samples in zip(asked, make_engine(engine, model, end_ids=ENDS).generate(asked, settings), strict=True):
        for sample in samples:
            expected = plain_logps(model, request.prompt_ids, sample.token_ids, 0.7)
            assert torch.allclose(torch.tensor(sample.logps), expected, atol=1e-4)


@pytest.mark.parametrize(
    "rule", [{"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.2}, {"repetition_penalty": 1.4}], ids=lambda r: next(iter(r))
)
@pytest.mark.parametrize("engine", ["graph", "transformers"])
def test_logps_stay_those_of_the_untruncated_distribution(engine, rule):
    model = tiny()
    request = Request(prompts(1)[0], 4)
    settings = SamplingSettings(8, temperature=1.3, seed=5, **rule)
    for sample in make_engine(engine, model).generate([request], settings)[0]:
        expected = plain_logps(model, request.prompt_ids, sample.token_ids, 1.3)
        assert torch.allclose(torch.tensor(sample.logps), expected, atol=1e-4)


def test_greedy_with_a_repetition_penalty_equals_generate():
    model = tiny()
    prompt = prompts(1, shortest=6)[0]
    config = GenerationConfig(max_new_tokens=20, do_sample=False, repetition_penalty=1.7, pad_token_id=0)
    with torch.no_grad():
        ids = torch.tensor([prompt])
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config)
    settings = SamplingSettings(20, temperature=0, repetition_penalty=1.7)
    done = make_engine("graph", model).generate([Request(prompt, 2), Request([5], 1)], settings)
    assert done[0][0].token_ids == out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("rows", [1, 2, 5, 7])
def test_few_rows_give_the_same_samples_as_many(rows):
    model = tiny()
    asked = [Request(p, 4) for p in prompts(6)]
    settings = SamplingSettings(15, seed=9)
    many = make_engine("graph", model, end_ids=ENDS).generate(asked, settings)
    few = make_engine("graph", model, end_ids=ENDS, max_rows=rows).generate(asked, settings)
    assert [[c.token_ids for c in row] for row in few] == [[c.token_ids for c in row] for row in many]


def test_a_prompt_has_the_same_samples_whatever_it_is_batched_with():
    model = tiny()
    engine = make_engine("graph", model, end_ids=ENDS)
    asked = [Request(p, 3) for p in prompts(6)]
    settings = SamplingSettings(15, seed=9)
    together = engine.generate(asked, settings)
    alone = [engine.generate([request], settings)[0] for request in asked]
    backwards = engine.generate(asked[::-1], settings)[::-1]
    tokens = [[[c.token_ids for c in row] for row in done] for done in (together, alone, backwards)]
    assert tokens[0] == tokens[1] == tokens[2]


def test_equal_prompts_in_one_call_get_different_samples():
    done = make_engine("graph", tiny()).generate([Request([1, 2], 2), Request([1, 2], 2)], SamplingSettings(12, seed=1))
    assert len({tuple(c.token_ids) for row in done for c in row}) == 4


def test_without_a_seed_torch_decides_and_calls_differ():
    engine = make_engine("graph", tiny())
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append([engine.generate([Request([1, 2], 1)], SamplingSettings(12))[0][0].token_ids for _ in range(2)])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]


def test_the_engine_sees_a_change_of_the_weights():
    model = tiny()
    engine = make_engine("graph", model)
    settings = SamplingSettings(12, temperature=0)
    before = engine.generate([Request([4, 9])], settings)[0][0].token_ids
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    after = engine.generate([Request([4, 9])], settings)[0][0].token_ids
    assert before != after == generate_greedily(model, [4, 9], 12, set())


def test_lora_adapters_take_part_merged_or_not():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    engine = make_engine("graph", model, end_ids=ENDS)
    settings = SamplingSettings(12, temperature=0)
    tokens = engine.generate([Request([4, 9], 2)], settings)[0][0].token_ids
    assert tokens == generate_greedily(model.eval(), [4, 9], 12)
    with model.disable_adapter():
        assert engine.generate([Request([4, 9])], settings)[0][0].token_ids == generate_greedily(model, [4, 9], 12)
    model.merge_adapter()
    assert engine.generate([Request([4, 9], 2)], settings)[0][0].token_ids == tokens


def test_the_model_is_left_as_it_was_also_after_an_error():
    model = tiny()
    model.gradient_checkpointing_enable()
    model.train()
    model.lm_head.eval()
    modes = [module.training for module in model.modules()]
    attention = model.config._attn_implementation
    engine = make_engine("graph", model)

    def fail(*_):
        raise KeyboardInterrupt

    engine.generate([Request([1])], SamplingSettings(3))
    with pytest.raises(KeyboardInterrupt):
        engine.generate([Request([1])], SamplingSettings(3), on_finish=fail)
    assert [module.training for module in model.modules()] == modes
    assert model.config._attn_implementation == attention
    assert model.is_gradient_checkpointing
    model(input_ids=torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    assert model.lm_head.weight.grad is not None
    assert not model.lm_head._forward_pre_hooks


@pytest.mark.parametrize("engine", ["graph", "transformers"])
def test_an_end_at_the_first_token_is_a_completion_of_one_token(engine):
    model = tiny()
    first = generate_greedily(model, [4, 9], 1, set())[0]
    done = make_engine(engine, model, end_ids={first}).generate(
        [Request([4, 9], 2)], SamplingSettings(5, temperature=0)
    )
    assert [(c.token_ids, c.finish) for c in done[0]] == [([first], "stop")] * 2


@pytest.mark.parametrize("engine", ["graph", "transformers"])
def test_every_sample_is_reported_once_and_as_returned(engine):
    seen, counts = {}, []
    asked = [Request(p, 3) for p in prompts(5)]
    done = make_engine(engine, tiny(), end_ids=ENDS).generate(
        asked,
        SamplingSettings(20, seed=2),
        lambda r, s, c: seen.__setitem__((r, s), c),
        lambda finished, total: counts.append((finished, total)),
    )
    assert seen == {(r, s): c for r, row in enumerate(done) for s, c in enumerate(row)}
    assert counts[-1] == (15, 15) and counts == sorted(counts)


def test_samples_are_reported_before_the_call_ends():
    order = []
    asked = [Request(p, 3) for p in prompts(5)]
    engine = make_engine("graph", tiny(), end_ids=ENDS, max_rows=4)
    engine.generate(asked, SamplingSettings(20, seed=2), lambda r, s, c: order.append(len(c.token_ids)))
    assert len(order) == 15 and order != sorted(order)


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [("Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic")],
)
def test_what_the_engine_cannot_drive_it_declares(family, changes, word):
    model = tiny(family, **changes)
    assert word in str(supports(model))
    said = []
    engine = make_engine("auto", model, end_ids=ENDS, note=said.append)
    assert engine.kind.name == "transformers" and len(said) == 1 and word in said[0]
    assert engine.generate([Request([1, 2])], SamplingSettings(4, temperature=0))


def test_layers_of_an_unknown_kind_are_declared():
    model = tiny("Gemma2")
    model.config.layer_types = ["chunked_attention", "full_attention"]
    assert "`chunked_attention` layers" in str(supports(model))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_model_that_keeps_its_window_to_itself_is_not_driven(kind):
    model = tiny("Mistral-window").to(kind)
    for layer in model.model.layers:
        layer.self_attn.config = copy.deepcopy(model.config)
        layer.self_attn.config.sliding_window = None
    found = str(supports(model))
    assert "a trial run differs" in found, found


@pytest.mark.parametrize("family", FAMILIES)
def test_supported_families_pass_the_trial_run(family):
    assert supports(tiny(family)) is None
