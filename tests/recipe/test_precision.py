"""Weights in few bits and small rates: the share that moves, said before a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.check.recipe import RecipeCheck
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.arithmetic import SPREAD, moving_share, stuck_weights
from tests.builders.workplaces import tiny_recipe

ROWS = [{"question": f"{i}+{i}"} for i in range(8)]
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize(
    ("dtype", "rate"), [("bfloat16", 1e-6), ("bfloat16", 1e-5), ("bfloat16", 1e-4), ("float16", 1e-6)]
)
def test_the_share_is_that_of_a_step_of_adam(dtype: str, rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter((torch.randn(200_000, generator=generator) * SPREAD).to(DTYPES[dtype]))
    before = weights.detach().clone()
    weights.grad = torch.randn(200_000, generator=generator).to(DTYPES[dtype])
    torch.optim.AdamW([weights], lr=rate, weight_decay=0.0).step()
    moved = float((weights.detach() != before).float().mean())
    # the spacing is the same up to the next power of two: within a factor of two of the mean
    assert moving_share(dtype, rate) / 2 < moved < min(1.0, 2 * moving_share(dtype, rate)) + 1e-9


@pytest.mark.parametrize(
    ("model", "rate", "says"),
    [
        ({"dtype": "bfloat16"}, 1e-6, "about 2% of them"),
        ({"dtype": "float16"}, 1e-6, "about 16% of them"),
        ({"dtype": "bfloat16"}, 1e-3, None),
        ({"dtype": "float32"}, 1e-6, None),
        ({}, 1e-6, None),
        ({"dtype": "bfloat16", "lora": {"r": 4}}, 1e-6, None),
    ],
)
def test_only_weights_that_cannot_move_are_a_finding(
    model: dict[str, object], rate: float, says: str | None, tmp_path: Path
) -> None:
    recipe = tiny_recipe(tmp_path, ROWS, model={"path": "builtin:tiny", **model}, train={"lr": rate})
    found = stuck_weights(recipe, adapter=False)
    assert (found is None) == (says is None)
    assert says is None or says in str(found)
    assert stuck_weights(recipe, adapter=True) is None
    checks = {finding.check: finding for finding in RecipeCheck(recipe, tmp_path).findings()}
    assert ("precision" in checks) == (says is not None)


@pytest.mark.parametrize(
    ("model", "width"), [({}, 16), ({"dtype": "bfloat16"}, 8), ({"dtype": "float16"}, 8), ({"dtype": "float32"}, 16)]
)
def test_memory_counts_what_will_be_held(model: dict[str, object], width: int, tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, ROWS, model={"path": "builtin:tiny", **model})
    found = next(f for f in RecipeCheck(recipe, tmp_path).findings() if f.check == "memory")
    assert found.data["state_bytes"] == found.data["parameters"] * width


def test_memory_of_an_adapter_start_is_that_of_an_adapter(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, "base_model_name_or_path": ""}))
    fresh = tiny_recipe(tmp_path, ROWS, model={"path": "builtin:tiny", "lora": {"r": 4}})
    saved = tiny_recipe(tmp_path, ROWS, model={"path": str(folder), "base": "builtin:tiny"})
    lost = tiny_recipe(tmp_path, ROWS, model={"path": str(folder)})
    one, other = (
        next(f for f in RecipeCheck(recipe, tmp_path).findings() if f.check == "memory") for recipe in (fresh, saved)
    )
    assert one.data["state_bytes"] == other.data["state_bytes"]
    broken = next(f for f in RecipeCheck(lost, tmp_path).findings() if f.check == "model")
    assert "does not name its base" in broken.message


def test_a_run_says_so_too(tmp_path: Path) -> None:
    recipe = tiny_recipe(
        tmp_path, ROWS, model={"path": "builtin:tiny", "dtype": "bfloat16"}, train={"lr": 1e-6, "steps": 1},
        run={"dir": str(tmp_path / "runs")}, monitor={"kl": "off"},
    )  # fmt: skip
    job = Job(recipe, label="r", base=tmp_path, display=make_display("none"))
    job.run()
    assert "a step moves about 2% of them" in job.running.folder.log_path.read_text()
