"""A vLLM server that is lost between two steps costs nothing: what was trained is saved, and the run goes on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.jobs.train.result import TrainResult
from grpo_cli.recipe.reading.load import load
from grpo_cli.rollout.collect import Collect, EngineCall
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.run.folder import RunFolder
from tests.loop.recipes import small_recipe
from tests.loop.test_resume import what

METHODS = {
    "default": [],
    "queue": ["train.select=easy_to_hard"],
    "tries and history": ["train.select=screen", "train.dead_groups=resample", "train.inner_epochs=2"],
}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_lost_its_server_ends_as_the_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)
    recipe = small_recipe(tmp_path, steps=4, save_every=100)

    def run(folder: str, resume: RunFolder | None = None) -> TrainResult:
        sets = [f"run.dir={tmp_path / folder}", "run.name=run", "run.threads=1", *METHODS[method]]
        made = load(recipe, sets)
        return Job(made, label="small", base=tmp_path, display=make_display("none")).run(resume)

    run("straight")
    sample = Collect.sample

    def lost(self: Collect[Any], rows: Any, size: int, call: EngineCall, first: int = 0) -> Any:
        if call.step == 2 and (call.number == 2 or method != "tries and history"):
            raise ServerLost("lost the vLLM server", hint="start it anew")
        return sample(self, rows, size, call, first)

    with monkeypatch.context() as patch:
        patch.setattr(Collect, "sample", lost)
        with pytest.raises(ServerLost) as caught:
            run("broken")
    assert "start it anew\n      step-000002 is saved; once the cause is fixed" in caught.value.hint
    broken, straight = tmp_path / "broken/run", tmp_path / "straight/run"
    assert run("broken", RunFolder.open(broken)).steps == 4
    last = "checkpoints/step-000004/model.safetensors"
    ours, theirs = load_file(broken / last), load_file(straight / last)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert what(broken) == what(straight)
