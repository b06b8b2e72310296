"""What an engine draws, against the probabilities of all completions that there are."""

from __future__ import annotations

import torch
from scipy.stats import chisquare

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import tiny


def test_a_hundred_thousand_samples_follow_the_exact_distribution():
    model = tiny(vocab_size=5, initializer_range=0.1)
    count, steps = 100_000, 2
    asked = [Request([1, 2], count)]
    done = make_engine("graph", model, max_rows=20_000).generate(
        asked, SamplingSettings(steps, temperature=0.8, seed=4)
    )
    pairs = torch.tensor([c.token_ids for c in done[0]])
    with torch.no_grad():
        first = (model(torch.tensor([[1, 2]])).logits[0, -1] / 0.8).softmax(-1)
        second = torch.stack([(model(torch.tensor([[1, 2, t]])).logits[0, -1] / 0.8).softmax(-1) for t in range(5)])
    expected = (first[:, None] * second).double().flatten()
    observed = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
    assert chisquare(observed.numpy(), (expected / expected.sum() * count).numpy()).pvalue > 1e-3
