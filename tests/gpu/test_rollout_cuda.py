"""The graph engine on a CUDA device: captured steps and fused kernels against plain code on the same card."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import FAMILIES, plain_logps, prompts, tiny

pytestmark = pytest.mark.gpu
ENDS = {3, 11}


@pytest.fixture(autouse=True)
def exact_products():
    assert torch.cuda.is_available(), "these tests need a CUDA device"
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.device("cuda"):
        yield


def on_card(family="Llama", dtype=torch.float32, **changes):
    with torch.device("cpu"):
        model = tiny(family, **changes)
    return model.to("cuda", dtype)


def random_prompts(count, **options):
    with torch.device("cpu"):
        return prompts(count, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generate_and_nothing_falls_back(family):
    model, said = on_card(family), []
    engine = make_engine("graph", model, end_ids=ENDS, note=said.append)
    graphed = family != "GptOss"  # its mixture of experts asks the device how many rows an expert has
    assert graphed or [line.partition(":")[0] for line in said] == ["decoding without CUDA graphs"]
    assert graphed == (not said and engine.attention is not None and engine.stepper.steps > 1)
    # GPT-OSS turns halves that it splits by itself
    assert any(patch.name == "apply_rotary_pos_emb" for patch in engine.patches) == graphed
    fused = any(patch.owner is model.base_model for patch in engine.patches)
    assert fused == (family not in ("Gemma", "Gemma2", "Gemma3", "GptOss", "SmolLM3"))
    asked = [Request(p, 3) for p in random_prompts(5)]
    done = engine.generate(asked, SamplingSettings(30, temperature=0))
    config = GenerationConfig(max_new_tokens=30, do_sample=False, eos_token_id=sorted(ENDS), pad_token_id=0)
    for request, samples in zip(asked, done, strict=True):
        ids = torch.tensor([request.prompt_ids])
        with torch.no_grad():
            out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config)
        assert [c.token_ids for c in samples] == [out[0, len(request.prompt_ids) :].tolist()] * 3


@pytest.mark.parametrize("rule", [{}, {"top_k": 9, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.2}])
@pytest.mark.parametrize("rows", [5, 1024])
def test_logps_equal_a_plain_forward_pass(rows, rule):
    model = on_card()
    engine = make_engine("graph", model, end_ids=ENDS, max_rows=rows)
    asked = [Request(p, 6) for p in random_prompts(9)]
    for _ in range(2):
        done = engine.generate(asked, SamplingSettings(40, temperature=0.9, seed=3, **rule))
    worst = 0.0
    for request, samples in zip(asked, done, strict=True):
        for sample in samples:
            expected = plain_logps(model, request.prompt_ids, sample.token_ids, 0.9)
            worst = max(worst, (torch.tensor(sample.logps) - expected).abs().max().item())
    assert worst < 1e-4


def test_a_seed_gives_the_samples_it_gives_on_a_cpu():
    asked = [Request(p, 4) for p in random_prompts(6)]
    settings = SamplingSettings(20, seed=5)
    here = make_engine("graph", on_card(), end_ids=ENDS).generate(asked, settings)
    with torch.device("cpu"):
        there = make_engine("graph", tiny(), end_ids=ENDS).generate(asked, settings)
    assert [[c.token_ids for c in row] for row in here] == [[c.token_ids for c in row] for row in there]


def test_graphs_follow_an_optimizer_step():
    model = on_card()
    engine = make_engine("graph", model, end_ids=ENDS)
    settings = SamplingSettings(20, temperature=0)
    engine.generate([Request([4, 9], 2)], settings)
    captures = engine.stepper.captures
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    ids = torch.tensor([[4, 9, 1, 2]])
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    done = engine.generate([Request([4, 9], 2)], settings)
    assert engine.stepper.captures == captures
    fresh = make_engine("graph", model, end_ids=ENDS).generate([Request([4, 9], 2)], settings)
    assert done[0][0].token_ids == fresh[0][0].token_ids


@pytest.mark.parametrize("autocast", [False, True], ids=["bf16-weights", "autocast"])
def test_bf16_logps_stay_near_a_plain_forward_pass(autocast):
    model = on_card(dtype=torch.float32 if autocast else torch.bfloat16, initializer_range=0.05)
    engine = make_engine("graph", model, end_ids=ENDS, autocast=torch.bfloat16 if autocast else None)
    done = engine.generate([Request([4, 9, 5], 64)], SamplingSettings(40, seed=3))
    apart = []
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        for sample in done[0]:
            apart.append(torch.tensor(sample.logps) - plain_logps(model, [4, 9, 5], sample.token_ids))
    assert torch.cat(apart).abs().mean() < 0.01


def test_lora_takes_part():
    from peft import LoraConfig, get_peft_model

    with torch.device("cpu"):
        model = get_peft_model(tiny(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    model = model.to("cuda").eval()
    done = make_engine("graph", model, end_ids=ENDS).generate([Request([4, 9], 2)], SamplingSettings(20, seed=1))
    for sample in done[0]:
        expected = plain_logps(model, [4, 9], sample.token_ids)
        assert torch.allclose(torch.tensor(sample.logps), expected, atol=1e-4)


@pytest.mark.parametrize("rows", [5, 1024])
def test_captured_steps_go_on_from_a_prefix(rows):
    engine = make_engine("graph", on_card(), end_ids=ENDS, max_rows=rows)
    settings = SamplingSettings(20, temperature=0)
    whole = {tuple(p): engine.generate([Request(p)], settings)[0][0] for p in random_prompts(4)}
    starts = [(p, c, n) for p, c in whole.items() for n in range(len(c.token_ids))]
    rests = engine.generate([Request(list(p), prefix=tuple(c.token_ids[:n])) for p, c, n in starts], settings)
    for (_, c, n), (rest,) in zip(starts, rests, strict=True):
        assert rest.token_ids == c.token_ids[n:] and rest.finish == c.finish
