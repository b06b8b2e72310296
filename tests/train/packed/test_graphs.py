"""Which captured shapes stay and which memory they are captured in, on a CPU: captures are stood in for, the choice is real."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_cli.train.packed import graphs as graphs_module
from grpo_cli.train.packed.graphs import Graphs
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
