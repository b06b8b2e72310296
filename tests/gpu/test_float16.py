"""A run as on a card without bfloat16: the capability is faked, the products run in float16 on the card that is here."""

from __future__ import annotations

import json

import pytest
import torch

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train import job
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.inputs import Lora
from tests.builders.workplaces import tiny_recipe

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("lora", [None, Lora(r=4)])
def test_a_run_in_float16_scales_its_gradients_and_trains_float32_weights(tmp_path, monkeypatch, lora):
    assert torch.cuda.is_available(), "these tests need a CUDA device"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    made, kept = job.make_trainer, []

    def seen(*args, **named):
        kept.append(made(*args, **named))
        return kept[-1]

    monkeypatch.setattr(job, "make_trainer", seen)
    rows = [{"question": f"{i}+{i}=?"} for i in range(8)]
    recipe = tiny_recipe(tmp_path, rows, train={"steps": 4, "lr": 1e-4}, run={"dir": str(tmp_path / "runs")})
    model = recipe.model.model_copy(update={"lora": lora})
    Job(recipe.model_copy(update={"model": model}), label="t4", base=tmp_path, display=make_display("none")).run()
    (trainer,) = kept
    assert trainer.accelerator.scaler is not None and trainer.args.fp16 and not trainer.args.bf16
    assert trainer.packed is None
    assert {p.dtype for p in trainer.model.parameters() if p.requires_grad} == {torch.float32}
    (file,) = (tmp_path / "runs").glob("*/metrics.jsonl")
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(step["loss"] == step["loss"] for step in steps if "loss" in step) and len(steps) >= 4
