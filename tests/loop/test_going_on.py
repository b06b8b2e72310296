"""A finished run goes on: longer, at another rate, from its own folder; and its best checkpoint is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from grpo_cli.display.choose import make_display
from grpo_cli.errors import RecipeError, UsageError
from grpo_cli.jobs.train.job import Job
from grpo_cli.jobs.train.result import recipe_of_run
from grpo_cli.recipe.reading.load import load
from grpo_cli.resilience.resume import find_run
from grpo_cli.run.folder import RunFolder

RECIPE = """\
grpo: 1
model: builtin:tiny
data: {train: rows.jsonl, prompt: "{q}"}
verify: {regex: {pattern: "[a-m]"}}
sample: {prompts: 2, group: 4, max_tokens: 8}
train: {lr: 1e-3, seed: 4, SCHEDULE}
monitor: {kl: off}
run: {dir: RUNS}
"""


def written(folder: Path, schedule: str = "steps: 2") -> Path:
    rows = "".join(f'{{"q": "{i}+{i}"}}\n' for i in range(10))
    (folder / "rows.jsonl").write_text(rows)
    file = folder / "r.yaml"
    file.write_text(RECIPE.replace("RUNS", str(folder / "runs")).replace("SCHEDULE", schedule))
    return file


def started(folder: Path, name: str, *sets: str, schedule: str = "steps: 2") -> RunFolder:
    recipe = load(str(written(folder, schedule)), [f"run.name={name}", *sets])
    job = Job(recipe, label="r", base=folder, display=make_display("none"))
    job.run()
    return job.running.folder


def resumed(run: RunFolder, *sets: str) -> RunFolder:
    """As `grpo train --resume RUN --set …`."""
    recipe, base, label, place = recipe_of_run(str(run.path), list(sets))
    found = find_run(recipe, place)
    Job(recipe, label=label, base=base, display=make_display("none")).run(found)
    return found


def steps(run: RunFolder, *keys: str) -> list[Any]:
    lines = [m for m in run.metrics() if "loss" in m]
    return [tuple(m[key] for key in keys) if len(keys) > 1 else m[keys[0]] for m in lines]


def weights(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint_path(step) / "model.safetensors")


def test_a_longer_run_at_a_constant_rate_is_the_run_that_was_longer_from_the_start(tmp_path: Path) -> None:
    whole = started(tmp_path, "whole", "train.steps=4", schedule="steps: 2, schedule: constant")
    run = started(tmp_path, "run", schedule="steps: 2, schedule: constant")
    resumed(run, "train.steps=4")
    keys = ("step", "loss", "grad_norm", "lr", "reward/total/mean")
    assert steps(run, *keys) == steps(whole, *keys)
    assert all(torch.equal(value, weights(whole, 4)[name]) for name, value in weights(run, 4).items())
    assert run.manifest()["pace"] == [{"step": 2, "train.steps": [2, 4]}]
    assert run.manifest()["status"] == "done"
    assert load(str(run.path / "recipe.yaml"), []).train.steps == 4
    log = run.log_path.read_text()
    assert "goes on from step 2 to 4: `train.steps` 2 → 4; a constant rate of 0.001" in log


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_falling_rate_is_that_of_the_longer_run_from_the_step_reached(schedule: str, tmp_path: Path) -> None:
    whole = started(tmp_path, "whole", "train.steps=6", schedule=f"steps: 2, schedule: {schedule}")
    run = started(tmp_path, "run", schedule=f"steps: 2, schedule: {schedule}")
    resumed(run, "train.steps=6")
    assert steps(run, "lr")[2:] == steps(whole, "lr")[2:]
    assert steps(run, "lr")[:2] != steps(whole, "lr")[:2]
    assert f"the {schedule} rate of a run of 6 steps from 0.001, taken up at step 2" in run.log_path.read_text()


def test_another_rate_holds_from_the_next_step(tmp_path: Path) -> None:
    run = started(tmp_path, "run", schedule="steps: 2, schedule: constant")
    resumed(run, "train.steps=3", "train.lr=5e-4")
    resumed(run, "train.steps=4", "train.schedule=linear")
    assert steps(run, "step", "lr") == [(1, 1e-3), (2, 1e-3), (3, 5e-4), (4, pytest.approx(1.25e-4))]
    assert [change["step"] for change in run.manifest()["pace"]] == [2, 3]
    again = resumed(run)
    assert steps(again, "step") == [1, 2, 3, 4]


def test_fewer_steps_than_are_done_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    run = started(tmp_path, "run")
    with pytest.raises(UsageError, match=r"has done 2 steps, and `train.steps` is 1"):
        resumed(run, "train.steps=1")
    assert steps(run, "step") == [1, 2]
    assert load(str(run.path / "recipe.yaml"), []).train.steps == 2


def test_what_a_step_computes_cannot_change(tmp_path: Path) -> None:
    run = started(tmp_path, "run")
    with pytest.raises(RecipeError, match=r"differs from the run's in `sample.temperature`") as caught:
        resumed(run, "train.steps=4", "sample.temperature=0.5")
    assert "train.steps" not in str(caught.value)


def test_a_bare_resume_of_another_pace_names_the_run_to_name(tmp_path: Path) -> None:
    started(tmp_path, "run")
    with pytest.raises(RecipeError, match=r"differs in `train.steps`") as caught:
        find_run(load(str(written(tmp_path, "steps: 9")), ["run.name=run"]), "last")
    assert "at the new pace" in caught.value.hint


def test_epochs_go_through_the_rows_and_can_be_more_later(tmp_path: Path) -> None:
    run = started(tmp_path, "run", schedule="epochs: 0.5")
    assert steps(run, "step") == [1, 2, 3]
    assert run.manifest()["epoch_steps"] == 3
    resumed(run)
    assert steps(run, "step") == [1, 2, 3]
    resumed(run, "train.epochs=1")
    assert steps(run, "step") == [1, 2, 3, 4, 5]
    assert run.manifest()["epoch_steps"] == 5
    rows = [record.row for step in range(1, 6) for record in run.samples(step)]
    assert len(set(rows)) == 10


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("steps: 2, epochs: 1", "both say how long"),
        ("algorithm: grpo", "neither `steps` nor `epochs`"),
        ("steps: 0", "`train.steps: 0` trains nothing"),
        ("epochs: 0", "train.epochs"),
    ],
)
def test_how_long_to_train_is_said_once(schedule: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=words):
        load(str(written(tmp_path, schedule)), [])


def test_a_run_whose_recipe_was_given_by_set_goes_on_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def score(completion):\n    return float(len(completion) % 3)\n")
    function = f"{tmp_path}/f.py:score"
    run = started(tmp_path, "run", f"verify.mine={{kind: python, function: '{function}'}}", "verify.regex.weight=0.5")
    resumed(run, "train.steps=3")
    assert steps(run, "step") == [1, 2, 3]


def test_a_function_named_on_the_command_line_from_elsewhere_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.py").write_text("def score(completion):\n    return float(len(completion) % 3)\n")
    sub, elsewhere = tmp_path / "sub", tmp_path / "elsewhere"
    sub.mkdir(), elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    run = started(sub, "run", "verify.mine={kind: python, function: f.py:score}")
    monkeypatch.chdir(elsewhere)
    resumed(run, "train.steps=3")
    assert steps(run, "step") == [1, 2, 3]


def test_the_best_checkpoint_outlives_those_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpo_cli.jobs.train.measurements import HeldOut

    (tmp_path / "eval.jsonl").write_text('{"q": "1+1"}\n')
    scores = {0: 0.1, 1: 0.2, 2: 0.9, 3: 0.9, 4: 0.3, 5: 0.2, 6: 0.1}
    metrics = HeldOut._metrics
    monkeypatch.setattr(
        HeldOut, "_metrics", lambda self, step, *found: _scored(metrics(self, step, *found), scores[step])
    )
    run = started(
        tmp_path, "run", "data.eval=eval.jsonl", "eval.every=1", "run.save_every=1", "run.keep=2",
        "train.steps=6", "eval.samples=2",
    )  # fmt: skip
    kept = sorted(p.name for p in (run.path / "checkpoints").glob("step-*"))
    assert kept == ["step-000002", "step-000005", "step-000006"]


def _scored(metrics: dict[str, Any], score: float) -> dict[str, Any]:
    metrics["eval/pass@1"] = score
    return metrics
