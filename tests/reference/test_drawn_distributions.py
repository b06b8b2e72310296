"""What an engine draws, against the probabilities of all completions that there are: alone, and behind kept tokens."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine
from grpo_cli.rollout.reuse.engine import PrefixReuse
from grpo_cli.rollout.reuse.history import History
from tests.builders.rollout_models import tiny
from tests.rollout.reuse.test_reuse import moved


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
        second = torch.stack(
            [(model(torch.tensor([[1, 2, t]])).logits[0, -1] / 0.8).softmax(-1) for t in range(5)]
        )
    expected = (first[:, None] * second).double().flatten()
    observed = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
    assert chisquare(observed.numpy(), (expected / expected.sum() * count).numpy()).pvalue > 1e-3


def exact_distribution(old, new, lenience, ends, steps):
    """P(completion) of the procedure: accepted along the old one up to a cut, and the new policy's from there."""
    found = {}

    def walk(prefix, of_old, of_new):
        """`of_old`: chance that `prefix` is kept so far, `of_new`: that it was come by after a cut."""
        if len(prefix) == steps or (prefix and prefix[-1] in ends):
            found[prefix] = of_old + of_new
            return
        q, p = old(prefix), new(prefix)
        kept = q * np.minimum(1, lenience * p / q)
        for token in range(len(p)):
            cut = of_old * (1 - kept.sum()) + of_new
            walk((*prefix, token), of_old * kept[token], cut * p[token])

    walk((), 1.0, 0.0)
    return found


@pytest.mark.parametrize("lenience", [1.0, pytest.param(math.exp(0.5), marks=pytest.mark.slow)])
def test_a_hundred_thousand_samples_follow_the_distribution_of_the_procedure(lenience):
    count, steps, prompt = 100_000, 3, [1, 2]
    model = tiny(vocab_size=5, initializer_range=0.15)

    def next_token(prefix):
        with torch.no_grad():
            return (
                (model(torch.tensor([[*prompt, *prefix]])).logits[0, -1] / 0.8).double().softmax(-1).numpy()
            )

    def table():
        """The policy as it is now, remembered."""
        known = {p: next_token(p) for n in range(steps) for p in itertools.product(range(5), repeat=n)}
        return known.__getitem__

    asked, past = [Request(prompt, count)], History()
    engine = make_engine("graph", model, end_ids={3}, max_rows=20_000)
    reuse = PrefixReuse(engine, model, lenience)
    old = table()
    past.update({0: reuse.engine.generate(asked, SamplingSettings(steps, temperature=0.8, seed=4))[0]})
    moved(model, 0.1)
    new = table()
    done = reuse.generate(past.drafts([0]), asked, SamplingSettings(steps, temperature=0.8, seed=5))[0]
    expected = exact_distribution(old, new, lenience, {3}, steps)
    assert sum(expected.values()) == pytest.approx(1)
    observed = dict.fromkeys(expected, 0)
    for completion in done:
        observed[tuple(completion.token_ids)] += 1
    theirs = np.array(list(expected.values())) * count
    assert chisquare(list(observed.values()), theirs).pvalue > 1e-3
    # and they are not the new policy's own: the bias is there, and the test is sharp enough to see it
    plain = np.array(list(exact_distribution(old, new, 0.0, {3}, steps).values())) * count
    assert chisquare(list(observed.values()), plain).pvalue < 1e-6
