"""The cache of warmed-up weights: what is taken from it is what would be made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grpo_cli.data.rows import load_rows
from grpo_cli.policy.coldstart import warm_up, weights_digest
from grpo_cli.policy.model import attach_lora, load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import Lora, WarmupPhase
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
