"""`train.compile`: the same numbers, layers compiled once, and rollouts left alone."""

import copy

import pytest
import torch
from rollout_models import tiny

from grpo_cli.errors import SetupError
from grpo_cli.train.compiled import compile_layers
from grpo_cli.train.rollout.engine import Request, SamplingSettings
from grpo_cli.train.rollout.make import make_engine


class Counting:
    """A backend that runs what it is given as it is."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


def gradients(model, ids):
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_gradients_are_the_same_and_layers_share_their_graphs():
    torch._dynamo.reset()
    plain, backend = tiny("Llama").train(), Counting()
    compiled = copy.deepcopy(plain)
    layers = compile_layers(compiled, backend)
    assert layers == plain.config.num_hidden_layers >= 2
    for rows, width in ((2, 9), (3, 12), (5, 7)):
        ids = torch.randint(0, 40, (rows, width), generator=torch.Generator().manual_seed(width))
        for ours, theirs in zip(gradients(compiled, ids), gradients(plain, ids), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert 0 < backend.graphs < layers * 3


def test_a_rollout_compiles_nothing_and_leaves_the_layers_compiled():
    torch._dynamo.reset()
    model, backend = tiny("Qwen2"), Counting()
    before = make_engine("graph", model, end_ids={3}).generate(
        [Request([5, 6, 7], 4)], SamplingSettings(8, seed=1)
    )
    compile_layers(model, backend)
    after = make_engine("graph", model, end_ids={3}).generate(
        [Request([5, 6, 7], 4)], SamplingSettings(8, seed=1)
    )
    assert backend.graphs == 0
    assert [c.token_ids for c in after[0]] == [c.token_ids for c in before[0]]
    model(input_ids=torch.tensor([[5, 6, 7]]))
    assert backend.graphs > 0


def test_a_model_that_does_not_name_its_layers_is_refused():
    with pytest.raises(SetupError, match="does not name its layers"):
        compile_layers(torch.nn.Linear(2, 2))
