"""The sampled distribution, and the rules against Hugging Face's processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from grpo_cli.rollout.decoding.sampling import penalise, sample, sample_keys, truncate, uniforms
from grpo_cli.rollout.engine import Request, SamplingSettings


@pytest.mark.parametrize(
    "rule", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.3}, {"top_k": 4, "top_p": 0.8, "min_p": 0.1}], ids=str
)
def test_truncated_samples_follow_the_truncated_distribution(rule):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 12, generator=generator) * 2
    count = 100_000
    settings = SamplingSettings(1, temperature=1.5, **rule)
    uniform = torch.from_numpy(uniforms(sample_keys([Request([1], count)], 0), 1))[:, 0]
    tokens, _ = sample(logits.expand(count, -1), uniform, settings)
    expected = hugging_face(logits / 1.5, settings).softmax(-1)[0].double().numpy()
    observed = np.bincount(tokens.numpy(), minlength=12)
    assert (observed[expected == 0] == 0).all()
    kept = expected > 0
    assert chisquare(observed[kept], expected[kept] / expected[kept].sum() * count).pvalue > 1e-3


def hugging_face(scores, settings):
    rules = []
    if settings.top_k:
        rules.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        rules.append(TopPLogitsWarper(settings.top_p))
    if settings.min_p:
        rules.append(MinPLogitsWarper(settings.min_p))
    for rule in rules:
        scores = rule(None, scores)
    return scores


@pytest.mark.parametrize("top_k", [0, 1, 7, 500])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("min_p", [0.0, 0.1, 1.0])
def test_truncation_keeps_what_hugging_face_keeps(top_k, top_p, min_p):
    scores = torch.randn(9, 60, generator=torch.Generator().manual_seed(top_k)) * 3
    settings = SamplingSettings(1, top_k=top_k, top_p=top_p, min_p=min_p)
    assert torch.equal(truncate(scores, settings), hugging_face(scores, settings))


def test_the_repetition_penalty_is_hugging_faces():
    scores = torch.randn(3, 20, generator=torch.Generator().manual_seed(1))
    ids = torch.tensor([[1, 2, 2], [5, 6, 19], [0, 0, 0]])
    seen = torch.zeros(3, 20, dtype=torch.bool).scatter_(1, ids, True)
    assert torch.equal(penalise(scores, seen, 1.3), RepetitionPenaltyLogitsProcessor(1.3)(ids, scores))


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    edges = torch.tensor([0.0, 0.5, 1 - 2**-24, 0.4999999])
    tokens, logps = sample(logits.expand(4, -1), edges, SamplingSettings(1))
    assert tokens.tolist() == [1, 3, 3, 1]
    assert torch.allclose(logps, torch.full((4,), 0.5).log())


def test_the_uniform_numbers_are_uniform_along_samples_and_along_steps():
    table = uniforms(sample_keys([Request([1, 2], 1000)], 3), 200)
    assert table.min() >= 0 and table.max() < 1
    assert kstest(table.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.01


def test_a_longer_limit_keeps_the_numbers_of_a_shorter_one():
    keys = sample_keys([Request([1], 4)], 0)
    assert np.array_equal(uniforms(keys, 8)[:, :5], uniforms(keys, 5))


@pytest.mark.parametrize(
    ("rule", "off"),
    [
        ({}, False),
        ({"temperature": 0.5}, False),
        ({"top_k": 5}, True),
        ({"temperature": 0, "top_k": 5}, False),
        ({"repetition_penalty": 1.1}, True),
    ],
)
def test_truncating_settings_know_that_they_are(rule, off):
    assert SamplingSettings(1, **rule).truncates is off
