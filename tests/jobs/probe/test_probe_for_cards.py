"""A probe that is asked about cards: the sum by the lengths that were drawn, and by a step that is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grpo_cli.errors import UsageError
from grpo_cli.jobs import probe
from grpo_cli.jobs.open_job import open_start
from grpo_cli.jobs.probe import lines_of, run_probe
from grpo_cli.measure.probe import ProbeSize
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.sizing.cards import card_of, read_cards
from grpo_cli.sizing.fit import CardQuestion, lengths_of
from grpo_cli.sizing.work import Work
from tests.builders.workplaces import Told, tiny_recipe
from tests.sizing.test_fit import sizes

SIZE = ProbeSize(4, 2)


def recipe(folder: Path) -> Recipe:
    return tiny_recipe(folder, [{"question": f"{i}+{i}=?"} for i in range(8)])


def ask(said: str, price: float | None = None) -> CardQuestion:
    return CardQuestion(read_cards(said), price)


def test_a_card_that_is_not_here_is_answered_for_by_the_lengths_drawn(tmp_path: Path) -> None:
    found = run_probe(recipe(tmp_path), tmp_path, Told().display, SIZE, ask=ask("h100", 2.0))
    assert found.fit is not None and found.fit.step_cost is None
    lengths, drawn = found.fit.work.lengths, found.run.probe
    assert lengths.completion == drawn.mean_tokens
    assert lengths.longest == max(record.tokens for record in found.run.records)
    text = "\n".join(lines_of(found, None, "builtin:tiny", 1.0))
    assert "fit       fits one H100" in text and "cost" in text
    assert found.fit.as_json()["measured"] is False


def test_on_such_a_card_a_step_is_measured_and_no_weight_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "card_of", lambda name: card_of("H100"))
    found = run_probe(recipe(tmp_path), tmp_path, Told().display, SIZE, ask=ask("h100"))
    assert found.fit is not None and found.fit.step_cost is not None
    cost, took = found.fit.step_cost, found.fit.duration
    assert cost.generate > 0 and cost.update > 0 and cost.pass_bytes is None  # a CPU counts no bytes
    assert (took.generate, took.update) == (cost.generate, cost.update)
    assert "were measured here" in "\n".join(found.fit.lines())


def test_measuring_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    one = recipe(tmp_path)
    with open_start(one, tmp_path, Told().display, splits=["train"], trains=True) as place:
        before = {name: weight.clone() for name, weight in place.policy.model.state_dict().items()}
        work = Work(one, sizes("135m"), plan(one, 8), lengths_of([5], 8), read_cards("h100").card)
        assert probe.why_unmeasured(place, work) is None
        probe.measure_step(place, work)
        after = place.policy.model.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert all(p.grad is None for p in place.policy.model.parameters())


def test_a_step_that_does_not_fit_leaves_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(probe, "card_of", lambda name: card_of("H100"))
    monkeypatch.setattr(probe, "_passed", full)
    told = Told()
    found = run_probe(recipe(tmp_path), tmp_path, told.display, SIZE, ask=ask("h100"))
    assert found.fit is not None and found.fit.step_cost is None
    assert "a step was tried here, and its memory is not there" in told.notes


def test_other_cards_than_the_recipe_launches_are_refused_first(tmp_path: Path) -> None:
    one = tiny_recipe(tmp_path, [{"question": "1"}] * 8, launch={"gpus": 2})
    with pytest.raises(UsageError, match="come to 2, not 4"):
        run_probe(one, tmp_path, Told().display, SIZE, ask=ask("4xh100"))
