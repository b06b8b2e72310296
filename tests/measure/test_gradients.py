"""The sketch of a row's gradient, against autograd on the weights, and its cosine with the rest."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from grpo_cli.measure.gradients import WIDTH, GradientSketch, _mixed, against_the_rest
from grpo_cli.policy.policy import Policy
from tests.builders.rollout_models import tiny

PROMPT = [5, 9, 2]
SAMPLES = [[7, 1], [3, 4, 6, 1], [8]]
ADVANTAGES = [1.0, -0.5, 0.0]


def policy_of(family: str) -> Policy:
    if family == "GPT2":
        torch.manual_seed(0)
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 60, "n_positions": 32}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    else:
        model = tiny(family)
    return Policy(model, None, torch.device("cpu"), None, frozenset({1}))  # type: ignore[arg-type]


def by_autograd(policy: Policy, sketcher: GradientSketch) -> torch.Tensor:
    """Sample by sample, token by token, from the gradients of the weights."""
    model = policy.model
    model.zero_grad()
    for ids, advantage in zip(SAMPLES, ADVANTAGES, strict=True):
        logps = torch.log_softmax(model(input_ids=torch.tensor([PROMPT + ids])).logits[0], dim=-1)
        said = [logps[len(PROMPT) + i - 1, token] for i, token in enumerate(ids)]
        (-advantage / len(SAMPLES) * torch.stack(said).mean()).backward()
    head = model.get_output_embeddings()
    found = torch.zeros(WIDTH)
    layers = [m for m in model.modules() if (isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D")]
    for number, layer in enumerate(m for m in layers if m is not head):
        weight = layer.weight.grad if isinstance(layer, nn.Linear) else layer.weight.grad.T
        flat = (weight @ sketcher.directions(layer, number, weight.shape[1]).T).flatten()
        chance = torch.Generator().manual_seed(_mixed(sketcher.seed, 2 * number + 1))
        places = torch.randint(WIDTH, flat.shape, generator=chance)
        signs = torch.randint(2, flat.shape, generator=chance) * 2.0 - 1.0
        found.index_add_(0, places, signs * flat)
    return found


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
def test_a_sketch_is_the_gradient_of_the_group_loss_seen_through_random_directions(family: str) -> None:
    policy = policy_of(family)
    sketcher = GradientSketch(policy, seed=3)
    sketch = sketcher.of(PROMPT, SAMPLES, ADVANTAGES)
    assert sketch is not None
    assert torch.allclose(sketch, by_autograd(policy, sketcher), atol=1e-6)
    assert sketch.norm() > 1e-6


def test_a_group_without_advantages_has_no_sketch_and_weights_keep_no_gradient() -> None:
    policy = policy_of("Llama")
    assert GradientSketch(policy).of(PROMPT, SAMPLES, [0.0, 0.0, 0.0]) is None
    GradientSketch(policy).of(PROMPT, SAMPLES, ADVANTAGES)
    assert all(p.grad is None for p in policy.model.parameters())


def test_five_clean_rows_and_a_flipped_one_have_the_cosines_worked_out_by_hand() -> None:
    """A three-way choice with logits (1.5, 0, 0): clean rows pay the first, the flipped one the second; over the std."""
    p = torch.softmax(torch.tensor([1.5, 0.0, 0.0], dtype=torch.float64), dim=0)

    def gradient(paid: int) -> torch.Tensor:
        rate = p[paid]
        return rate * (torch.eye(3, dtype=torch.float64)[paid] - p) / (rate * (1 - rate)).sqrt()

    found = [gradient(0)] * 5 + [gradient(1)]
    assert [round(float(g.norm()), 4) for g in found] == [0.5657] * 5 + [0.4712]
    assert against_the_rest(found) == pytest.approx([0.9876] * 5 + [-0.7676], abs=1e-4)


def test_rows_without_a_sketch_are_unknown_and_a_single_one_has_no_rest() -> None:
    one = torch.ones(4)
    assert against_the_rest([None, one]) == [None, None]
    assert against_the_rest([one, None, one])[1] is None
