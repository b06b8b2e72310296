"""Gradients of several ranks in flat buffers: what two and three gloo ranks make of them, and what it costs in collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from grpo_cli.distributed import exchange
from grpo_cli.distributed.exchange import ALIGNED, FlatGradients, take_weights

START = (1.0, -2.0, 0.5, 3.0, -0.25)
MINE = ((0.1, 0.2, -0.3, 0.4, 0.5), (0.3, -0.2, 0.1, 0.0, -0.1))
MEAN, NORM = (0.2, 0.0, -0.1, 0.2, 0.2), 0.360555
STEPPED = (0.989, -1.998, 0.5095, 2.987, -0.25975)
"""One step of AdamW with a rate of .01, a decay of .1, and the mean clipped to .5."""


class Layers(nn.Module):
    """Parameters of uneven sizes and two types, of which one takes no part in the loss."""

    def __init__(self, values: tuple[float, ...] = START) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.tensor(part)) for part in (values[:2], values[2:]))
        self.small = nn.Parameter(torch.ones(3, 2, dtype=torch.bfloat16))
        self.idle = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.tensor(values[0] > 0))

    def pull(self, *by: float) -> None:
        """A backward pass whose gradient is `by`."""
        weights = torch.cat([self.first, self.second])
        ((weights * torch.tensor(by)).sum() + (self.small * by[0]).float().sum()).backward()


def rank(number: int, world: int, folder: str) -> None:
    """What one rank finds, written to a file."""
    dist.init_process_group("gloo", f"file://{folder}/store", rank=number, world_size=world)
    # other weights than those of rank 0, as of an adapter drawn by another chance
    model = Layers(START if number == 0 else tuple(-x for x in START))
    take_weights(model)
    found: dict[str, Any] = {"weights": [p.detach().clone() for p in model.parameters()], "seen": model.seen.clone()}
    flat = FlatGradients(list(model.parameters()))
    calls: list[int] = []
    reduce = dist.all_reduce

    def counted(tensor: torch.Tensor, *given: Any) -> Any:
        calls.append(tensor.numel())
        return reduce(tensor, *given)

    dist.all_reduce = counted
    exchange.SLICE = 200
    flat.collect()
    # a rank without a row that teaches has no backward pass
    if number < 2:
        for half in (0.25, 0.75):
            model.pull(*(half * g for g in MINE[number]))
    found["local"] = [v.clone() for v in flat.views]
    flat.average()
    assert [p.grad is view for p, view in zip(flat.parameters, flat.views, strict=True)] == [True] * 4
    found["calls"], found["mean"] = calls, [v.clone() for v in flat.views]
    optimizer = torch.optim.AdamW([model.first, model.second], lr=0.01, weight_decay=0.1)
    found["norm"] = nn.utils.clip_grad_norm_([model.first, model.second], 0.5)
    optimizer.step()
    found["stepped"] = torch.cat([model.first, model.second]).detach()
    model.zero_grad(set_to_none=True)
    flat.collect()
    found["again"] = [v.clone() for v in flat.views]
    torch.save(found, f"{folder}/{number}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    mp.start_processes(rank, (request.param, str(folder)), nprocs=request.param, start_method="fork")
    return [torch.load(Path(folder) / f"{number}.pt") for number in range(request.param)]


def test_every_rank_begins_with_the_weights_of_the_first(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert torch.equal(torch.cat(found["weights"][:2]), torch.tensor(START)) and bool(found["seen"])


def test_gradients_add_up_over_passes_and_are_averaged_over_ranks(ranks: list[dict[str, Any]]) -> None:
    for mine, found in zip(MINE, ranks, strict=False):
        assert torch.allclose(torch.cat(found["local"][:2]), torch.tensor(mine))
    share = 2 / len(ranks)  # a third rank adds nothing, and counts
    for found in ranks:
        assert torch.allclose(torch.cat(found["mean"][:2]), share * torch.tensor(MEAN), atol=1e-7)
        assert torch.allclose(found["mean"][2].float(), torch.full((3, 2), share * 0.2), rtol=0.01)
        assert not found["mean"][3].any()
        assert all(torch.equal(a, b) for a, b in zip(found["mean"], ranks[0]["mean"], strict=True))
        assert not any(view.any() for view in found["again"])


def test_the_mean_is_clipped_and_not_each_ranks_own(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert float(found["norm"]) == pytest.approx(NORM * 2 / len(ranks), abs=1e-6)
        if len(ranks) == 2:
            assert torch.allclose(found["stepped"], torch.tensor(STEPPED), atol=1e-6)
        assert torch.equal(found["stepped"], ranks[0]["stepped"])


def test_a_slice_of_a_buffer_is_one_exchange(ranks: list[dict[str, Any]]) -> None:
    # 384 elements of float32 in three parameters, 256 of bfloat16
    assert {tuple(found["calls"]) for found in ranks} == {(200, 184, 200, 56)}


def test_views_are_aligned_and_in_the_order_of_the_parameters() -> None:
    model = Layers()
    flat = FlatGradients(list(model.parameters()))
    assert [v.shape for v in flat.views] == [p.shape for p in model.parameters()]
    starts = {b.dtype: b.data_ptr() for b in flat.buffers}
    offsets = [v.data_ptr() - starts[v.dtype] for v in flat.views]
    assert offsets == [0, ALIGNED, 0, 2 * ALIGNED]


def test_a_gradient_that_something_else_made_is_taken_over() -> None:
    model = Layers()
    flat = FlatGradients(list(model.parameters()))
    model.first.grad = torch.tensor([1.0, 2.0])
    flat.views[1].fill_(7.0)  # of the step before
    flat.collect()
    assert model.first.grad is flat.views[0] and flat.views[0].tolist() == [1.0, 2.0]
    assert model.second.grad is flat.views[1] and not flat.views[1].any()
