"""Which captured shapes stay and which memory they are captured in, on a CPU: captures are stood in for, the choice is real."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from grpo_cli.distributed.exchange import FlatGradients, collect
from grpo_cli.train.packed import graphs as graphs_module
from grpo_cli.train.packed.graphs import CapturedGraph, Graphs, NotCaptured
from grpo_cli.train.packed.layout import plan
from grpo_cli.train.packed.score import ScoreNumerics
from tests.builders.rollout_models import tiny
from tests.train.packed.test_packed import batch


class Memory:
    """Stands for a pool."""


class Capture:
    """Stands for a captured pass; notes the pool that it was made in and the shapes held then."""

    def __init__(self, graphs: Graphs, held: Any) -> None:
        self.held, self.pool, self.beside = held, graphs.pool, list(graphs.held)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    zeros = torch.zeros
    monkeypatch.setattr(graphs_module, "GraphMemory", Memory)
    monkeypatch.setattr(graphs_module, "CapturedGraph", Capture)
    monkeypatch.setattr(torch, "zeros", lambda *size, **named: zeros(*size, **{**named, "device": "cpu"}))
    return Graphs(tiny(), ScoreNumerics())


def captured(graphs: Graphs, groups: int) -> Any:
    laid = plan(*batch(0, groups=groups))
    assert laid is not None
    return graphs._captured(laid)


def test_a_larger_shape_is_captured_in_memory_that_all_smaller_ones_gave_back(graphs: Graphs) -> None:
    small, large = captured(graphs, 40), captured(graphs, 160)
    assert large.held.shape.tokens > small.held.shape.tokens
    assert large.beside == [] and large.pool is not small.pool
    assert list(graphs.held) == [large.held.shape] and graphs.pool is large.pool


def test_a_smaller_shape_runs_in_the_larger_or_beside_it_in_one_memory(graphs: Graphs) -> None:
    large = captured(graphs, 160)
    for _ in range(1000):
        small = captured(graphs, 40)
        if small is not large:
            break
    assert small is not large, "padding is never worth a capture"
    assert small.pool is large.pool and small.beside == [large.held.shape]
    assert captured(graphs, 160) is large


@pytest.fixture
def flat_graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """Of one of several ranks; what a capture does first runs on a CPU too."""
    zeros, model = torch.zeros, tiny()
    monkeypatch.setattr(graphs_module, "GraphMemory", Memory)
    monkeypatch.setattr(Memory, "working", nullcontext, raising=False)
    monkeypatch.setattr(torch, "zeros", lambda *size, **named: zeros(*size, **{**named, "device": "cpu"}))
    return Graphs(model, ScoreNumerics(), FlatGradients([p for p in model.parameters() if p.requires_grad]))


def warmed(graphs: Graphs) -> CapturedGraph:
    laid = plan(*batch(0))
    assert laid is not None
    capture = CapturedGraph.__new__(CapturedGraph)
    capture.graphs, capture.held = graphs, laid.fill(laid.need, torch.device("cpu"))
    capture.pull = torch.zeros(laid.need.targets)
    capture._warm(graphs.parameters)
    return capture


def test_a_capture_keeps_gradients_in_the_buffer_that_ranks_exchange(flat_graphs: Graphs) -> None:
    flat = flat_graphs.flat
    assert flat is not None
    collect(flat_graphs.parameters, flat_graphs.sums)
    for buffer in flat.buffers:
        buffer.fill_(2.0)  # of the micro-batches before
    places = [view.data_ptr() for view in flat.views]
    capture = warmed(flat_graphs)
    assert [p.grad.data_ptr() for p in flat_graphs.parameters if p.grad is not None] == places
    assert all(bool((view == 2.0).all()) for view in flat.views)
    logps, _ = graphs_module.score(flat_graphs.base, capture.held, flat_graphs.numbers)
    logps.sum().backward()
    assert [p.grad.data_ptr() for p in flat_graphs.parameters if p.grad is not None] == places
    assert sum(bool((view != 2.0).any()) for view in flat.views) == len(places)


def test_a_gradient_that_leaves_the_buffer_is_no_capture(flat_graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(*_: Any) -> None:
        flat_graphs.parameters[3].grad = torch.zeros_like(flat_graphs.parameters[3])

    monkeypatch.setattr(torch.autograd, "backward", moved)
    with pytest.raises(NotCaptured, match="left the buffer"):
        warmed(flat_graphs)
