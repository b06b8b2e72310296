"""The cache of warmed-up weights: what is taken from it is what would be made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from grpo_cli.data.rows import Row, load_rows
from grpo_cli.policy.coldstart import played, warm_up, weights_digest
from grpo_cli.policy.model import attach_lora, load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.warmup import WarmupText
from grpo_cli.recipe.sections.recipe import Demonstration, Lora, WarmupPhase
from tests.builders.workplaces import tiny_recipe
from tests.reference.families import write_checkpoint

ROWS = [{"question": f"{i}+1=?", "answer": str(i + 1)} for i in range(4)]


def test_another_model_under_the_same_name_is_warmed_up_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    folder = write_checkpoint("llama", tmp_path)
    phase = WarmupPhase.model_validate(
        {"demonstration": [{"template": "{answer}"}], "steps": 2, "lr": 1e-2, "batch": 2}
    )
    recipe = tiny_recipe(tmp_path, ROWS, model={"path": str(folder)}).model_copy(update={"warmup": [phase]})

    def warmed() -> tuple[Policy, bool]:
        policy = load_model(recipe.model, device=torch.device("cpu"), seed=0)
        found = warm_up(recipe, policy, load_rows(recipe.data, "train", tmp_path), tmp_path, lambda *_: None)
        assert found is not None
        return policy, found.from_cache

    (first, cached), (again, from_cache) = warmed(), warmed()
    assert (cached, from_cache) == (False, True)
    assert weights_digest(first.model) == weights_digest(again.model)
    start = load_model(recipe.model, device=torch.device("cpu"), seed=0)
    with torch.no_grad():
        next(iter(start.model.parameters())).add_(0.5)
    start.model.save_pretrained(folder)
    other, from_cache = warmed()
    assert not from_cache
    assert weights_digest(other.model) != weights_digest(first.model)


def phase_of(**more: int) -> WarmupPhase:
    return WarmupPhase.model_validate({"steps": 10, "lr": 1e-2, "batch": 3} | more)


def test_a_world_that_is_drawn_from_its_seed_shows_more_than_a_text_a_row() -> None:
    rows, seeds = load_rows_of(4), []

    def play(some: Sequence[Row], seed: int) -> list[WarmupText]:
        seeds.append(seed)
        return [WarmupText([i], [seed % 997, i]) for i in range(len(some))]

    found = played(play, rows, phase_of(), 7)
    assert len(found) == 30 == len({tuple(one.completion_ids) for one in found})  # steps x batch
    assert seeds[0] == 7 and len(set(seeds)) == len(seeds) == 8
    assert len(played(play, rows, phase_of(limit=9), 7)) == 9


def test_a_world_that_its_row_decides_is_played_once_more_and_no_oftener() -> None:
    rows, rounds = load_rows_of(4), []

    def play(some: Sequence[Row], seed: int) -> list[WarmupText]:
        rounds.append(seed)
        return [WarmupText([i], [5]) for i in range(len(some))]

    assert len(played(play, rows, phase_of(), 7)) == 4
    assert len(rounds) == 2
    assert len(played(play, load_rows_of(40), phase_of(), 7)) == 40  # as many as are drawn: one round
    assert len(rounds) == 3


def test_what_a_warm_up_showed_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    phase = phase_of(steps=40).model_copy(update={"demonstration": [Demonstration(template="{answer}")]})
    recipe = tiny_recipe(tmp_path, ROWS).model_copy(update={"warmup": [phase]})
    measured = []
    for _ in range(2):  # the second from the cache
        policy = load_model(recipe.model, device=torch.device("cpu"), seed=0)
        done = warm_up(recipe, policy, load_rows(recipe.data, "train", tmp_path), tmp_path, lambda *_: None)
        assert done is not None and "(4 different ones, 30.0 times each)" in done.text()
        measured.append(done.metrics())
    assert measured[0] == measured[1]
    assert measured[0]["warmup/texts"] == 4 and measured[0]["warmup/repeats"] == 30.0
    assert 0.0 < measured[0]["warmup/entropy"] < 3.0  # of ln 266 = 5.6 before it


def load_rows_of(count: int) -> list[Row]:
    return [Row(f"r{i}", "q", None, {}) for i in range(count)]


def test_a_fresh_adapter_is_no_other_start(tmp_path: Path) -> None:
    folder = write_checkpoint("llama", tmp_path)
    digests = set()
    for seed in (0, 1):
        policy = load_model(
            tiny_recipe(tmp_path, ROWS, model={"path": str(folder)}).model, device=torch.device("cpu"), seed=0
        )
        torch.manual_seed(seed)
        digests.add(weights_digest(attach_lora(policy.model, Lora(r=2))))
    assert len(digests) == 1


def test_a_fresh_adapter_is_drawn_from_the_seed(tmp_path: Path) -> None:
    folder = write_checkpoint("llama", tmp_path)
    spec = tiny_recipe(tmp_path, ROWS, model={"path": str(folder), "lora": {"r": 2}}).model

    def drawn(seed: int) -> list[torch.Tensor]:
        torch.rand(seed + 3)  # whatever was drawn before
        model = load_model(spec, device=torch.device("cpu"), seed=seed).model
        return [p for name, p in model.named_parameters() if "lora_A" in name]

    one, again, other = drawn(1), drawn(1), drawn(2)
    assert one and all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
