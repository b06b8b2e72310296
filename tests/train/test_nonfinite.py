import pytest
import torch

from grpo_cli.errors import TrainingError
from grpo_cli.train.updates import NonFinite


def guard(stops: bool) -> tuple[NonFinite, list[str]]:
    said: list[str] = []
    return NonFinite(stops, said.append), said


def test_a_nan_loss_stops_the_run_and_names_its_rows() -> None:
    keeper, _ = guard(True)
    keeper.loss(torch.tensor(float("nan")), lambda: ["a", "b"])
    with pytest.raises(TrainingError, match=r"step 3: the loss is nan on rows a, b; the weights were not touched"):
        keeper.gradient(float("nan"), 3, torch.nn.Linear(1, 1))


def test_an_infinite_gradient_stops_the_run() -> None:
    with pytest.raises(TrainingError, match="gradient norm is inf"):
        guard(True)[0].gradient(torch.tensor(float("inf")), 1, torch.nn.Linear(1, 1))


def test_a_finite_step_passes_untouched() -> None:
    keeper, said = guard(True)
    keeper.loss(torch.tensor(1.5), list)
    assert keeper.gradient(0.5, 1, torch.nn.Linear(1, 1)) == 0.5
    assert keeper.skipped == 0
    assert said == []


def test_a_skipped_step_leaves_the_weights_as_they_were() -> None:
    keeper, said = guard(False)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()  # momentum exists
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.zero_grad()
    for bad in (False, True):  # one good and one bad micro-batch: the whole step goes
        loss = model(torch.ones(1, 2)).sum() * (float("nan") if bad else 1.0)
        keeper.loss(loss, lambda: ["r"])
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert keeper.gradient(norm, 2, model) is None
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert keeper.skipped == 1
    assert len(said) == 1


def test_after_a_skipped_step_the_next_one_counts_again() -> None:
    keeper, _ = guard(False)
    model = torch.nn.Linear(1, 1)
    assert keeper.gradient(float("nan"), 1, model) is None
    assert keeper.gradient(2.0, 2, model) == 2.0
    assert keeper.gradient(float("nan"), 3, model) is None
    assert keeper.skipped == 2
