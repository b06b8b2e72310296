"""`sample.stop` and `sample.ban` through training, held-out evaluation and the records of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from tests.builders.workplaces import tiny_recipe

ROWS = [{"question": f"{i}+{i}"} for i in range(12)]
STOP, BAN = ["Q", "Z", "3", "J"], ["X", "Y", "<|end|>"]


def run(folder: Path, engine: str = "graph", **train: Any) -> tuple[Job, list[dict[str, Any]], list[dict[str, Any]]]:
    """A run's job, its steps, and every sample that it recorded."""
    recipe: Recipe = tiny_recipe(
        folder,
        ROWS,
        ROWS[:4],
        sample={"prompts": 4, "group": 4, "max_tokens": 40, "engine": engine, "stop": STOP, "ban": BAN},
        train={"steps": 2, "inner_epochs": 2, **train},
        eval={"every": 1, "samples": 4},
        verify={"regex": {"pattern": "[QJ]"}},
        run={"dir": str(folder / "runs")},
    )
    job = Job(recipe, label="r", base=folder, display=make_display("none"))
    job.run()
    run = job.running.folder
    files = sorted([*run.path.glob("samples/*.jsonl"), *run.path.glob("eval/*.jsonl")])
    samples = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return job, [m for m in run.metrics() if "loss" in m], samples


@pytest.mark.parametrize("engine", ["graph", "transformers"])
def test_a_run_ends_its_samples_there_and_never_says_what_is_banned(engine: str, tmp_path: Path) -> None:
    _, steps, samples = run(tmp_path, engine)
    assert len(samples) == 2 * 16 + 3 * 16
    ended = [s for s in samples if any(text in s["completion"] for text in STOP)]
    assert ended
    assert len(ended) < len(samples)
    for sample in samples:
        text = sample["completion"]
        assert not any(banned in text for banned in BAN)
        assert sample["truncated"] == (sample not in ended)
        assert sum(text.count(stop) for stop in STOP) == (sample in ended)
        if sample in ended:
            assert text.endswith(tuple(STOP))
    assert steps[0]["truncated"] < 1
    assert all(step["grad_norm"] > 0 for step in steps)


def test_the_first_ratio_is_one(tmp_path: Path) -> None:
    """On-policy: what a sample was drawn with is what training scores it with."""
    _, steps, _ = run(tmp_path, inner_epochs=1, lr=1e-12, dead_groups="keep")
    assert all(step["clip/total"] == 0 for step in steps)


def test_a_stopped_sample_is_not_masked_as_cut(tmp_path: Path) -> None:
    job, _, _ = run(tmp_path, mask_truncated=True, inner_epochs=1, dead_groups="keep", steps=1)
    batch = job.running.trainer._buffered_inputs[0]
    trained = batch["completion_mask"].sum(dim=1).tolist()
    groups = job.running.trainer.before.groups
    finishes = {tuple(c.token_ids): c.finish for group in groups for c in group.completions}
    for ids, count in zip(batch["completion_ids"].tolist(), trained, strict=True):
        match = [f for said, f in finishes.items() if ids[: len(said)] == list(said)]
        assert (count > 0) == (match[0] == "stop")
    assert 0 < sum(count > 0 for count in trained) < len(trained)
    assert int(batch["num_items_in_batch"]) == sum(trained)
