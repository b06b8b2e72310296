"""Scores of given completions against plain forward passes, and engines that go on from given tokens."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.errors import DataError
from grpo_cli.rollout.decoding.rollout_mode import Forward
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.graph.stepper import GraphStepper
from grpo_cli.rollout.logprobs import can_share
from grpo_cli.rollout.make import make_engine
from grpo_cli.rollout.scoring import DraftScorer
from tests.builders.rollout_models import plain_logps, prompts, tiny

ENDS = {3, 11}


# going on from tokens that are there


@pytest.mark.parametrize("rows", [3, 64])
@pytest.mark.parametrize("captured", [False, True])
def test_the_engine_goes_on_from_what_was_begun(rows, captured):
    model = tiny()
    settings = SamplingSettings(12, temperature=0)
    more = {"stepper": GraphStepper(Forward(model), capture=lambda step: step)} if captured else {}
    engine = GraphEngine(model, ENDS, max_rows=rows, **more)
    asked = prompts(3)
    whole = [group[0] for group in engine.generate([Request(p) for p in asked], settings)]
    starts = [(p, c, n) for p, c in zip(asked, whole, strict=True) for n in range(len(c.token_ids))]
    rests = engine.generate([Request(p, 2, prefix=tuple(c.token_ids[:n])) for p, c, n in starts], settings)
    for (_, c, n), pair in zip(starts, rests, strict=True):
        for rest in pair:
            assert rest.token_ids == c.token_ids[n:] and rest.finish == c.finish
            assert rest.logps == pytest.approx(c.logps[n:], abs=1e-4)


def test_the_repetition_penalty_sees_what_was_begun():
    engine = make_engine("graph", tiny(), end_ids=ENDS)
    settings = SamplingSettings(20, temperature=0, repetition_penalty=1.7)
    whole = engine.generate([Request([5, 9])], settings)[0][0].token_ids
    rest = engine.generate([Request([5, 9], prefix=tuple(whole[:6]))], settings)[0][0].token_ids
    assert whole[:6] + rest == whole


def test_a_start_that_leaves_nothing_to_sample_is_refused():
    engine = make_engine("graph", tiny(), end_ids=ENDS)
    with pytest.raises(DataError, match="begun with 4 of 4 tokens"):
        engine.generate([Request([1], prefix=(1, 2, 4, 5))], SamplingSettings(4))


@pytest.mark.parametrize("shared", [False, True])
def test_scores_are_a_plain_forward_passes_in_one_pass_or_many(monkeypatch, shared):
    model = tiny()
    scorer = DraftScorer(model)
    assert scorer.shares_prompts
    scorer.shares_prompts = shared
    asked = [prompt for prompt in prompts(6) for _ in range(3)]
    old = [ids or [7] for ids in prompts(18, seed=1, longest=15)]
    one = scorer(asked, old, 0.9)
    monkeypatch.setattr("grpo_cli.rollout.scoring.TOKENS", 20)
    for prompt, ids, a, b in zip(asked, old, one, scorer(asked, old, 0.9), strict=True):
        assert a == pytest.approx(b, abs=1e-5)
        assert a == pytest.approx(plain_logps(model, prompt, ids, 0.9).tolist(), abs=1e-5)


def test_prompts_are_shared_where_positions_are_absolute_too():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    none = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "initializer_range": 0.5}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=67, n_embd=32, n_layer=2, n_head=4, **none)).eval()
    scorer = DraftScorer(model)
    assert can_share(model) and scorer.absolute and scorer.shares_prompts
    for prompt, found in zip([[5, 9, 2], [7]], scorer([[5, 9, 2], [7]], [[4, 4, 1]] * 2, 1.0), strict=True):
        assert found == pytest.approx(plain_logps(model, prompt, [4, 4, 1]).tolist(), abs=1e-5)


def test_dropout_is_off_while_scoring_and_on_afterwards():
    model = tiny(attention_dropout=0.5).train()
    score = DraftScorer(model)
    asked, texts = prompts(3), [[7, 9], [4], [5, 2, 8]]
    assert score(asked, texts, 1.0) == score(asked, texts, 1.0)
    assert model.training and not model.lm_head._forward_pre_hooks
