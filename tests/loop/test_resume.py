"""A run that is killed and resumed ends as the unbroken one, bit for bit (CPU, fixed threads)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.loop.program import start
from tests.loop.recipes import ROOT, environment, small_recipe

TIMING = ("time/", "eta_s", "tokens_per_s", "at", "eval/seconds")
"""Fields that tell when, not what; everything else must be equal."""


def train(recipe: Path, folder: Path, *more: str, cold: bool = False) -> Any:
    """A run that is under way, by the names of `subprocess.Popen`."""
    return start(["train", str(recipe), "--set", f"run.dir={folder}", *more], folder, cold=cold)


def finish(process: Any) -> str:
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    return str(out)


def kill_after(process: Any, checkpoint: Path) -> None:
    deadline = time.monotonic() + 120
    while not checkpoint.is_dir():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def what(run: Path) -> dict[str, Any]:
    """Everything a run recorded, without the timing fields."""
    metrics = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        metrics.append({k: v for k, v in row.items() if not k.startswith(TIMING) and not k.endswith("_s")})
    samples = {}
    for file in sorted([*run.glob("samples/*.jsonl"), *run.glob("eval/*.jsonl")]):
        rows = [json.loads(line) for line in file.open()]
        for row in rows:
            for verdict in row["verdicts"].values():
                verdict.pop("seconds")
        samples[f"{file.parent.name}/{file.name}"] = rows
    return {"metrics": metrics, "samples": samples}


KEEP = ("train.dead_groups=keep",)
METHODS = {
    "default": [],
    "two passes": ["train.inner_epochs=2"],
    "mini-batches": ["train.mini_batches=4", "train.inner_epochs=2", "sample.micro_batch=2"],
    "history": ["train.select=greso", "train.dead_groups=resample", "monitor.kl.every=2"],
    "critic": [
        *("train.algorithm=ppo", "train.critic.warmup_steps=3", "train.kl.beta=0.05", "train.inner_epochs=2"),
        *("sample.prompts=16", "sample.group=1", "train.critic.positive=0.1"),
    ],
    "ads": ["train.select=ads", "train.ads_ok=true", "train.ads.clusters=3", "train.ads.active=2"],
    "parts apart": [
        *('verify.form={kind: regex, pattern: "5"}', "train.reward_combine=split"),
        "train.split={task: {verifiers: [regex]}, form: {verifiers: [form], weight: {from: 0.1, to: 0.9, steps: 5}}}",
    ],
    # the gold is in every demonstration, behind lines that differ
    "cuts": [
        *("train.credit={method: rredcot, segments: 3, force: '\\boxed{'}", "train.inner_epochs=2"),
        *("verify.math.primary=true", "data.answer='7'", "sample.max_tokens=24", "warmup.0.steps=60"),
        r'warmup.0.demonstration="{question}\n{question}\n\\boxed{{7}}"',
    ],
    "mixed inputs": ["sample.mix={rate: 0.3, neighbours: 3, until: ''}", "train.inner_epochs=2", "monitor.kl.every=1"],
    "mixed, anchors written": ["sample.mix={rate: 0.3, until: '', written: anchor}", "train.kl.beta=0.05", *KEEP],
    "teacher": [
        *("train.method=distil", "train.inner_epochs=2", "verify.regex.right_at=1"),
        "distil={teacher: [sibling, reason], when: wrong, rate: 0.3, mix: 0.5}",
    ],
    "teacher of the start, compared by the likeliest tokens": [
        *("train.method=distil", "distil={teacher: reason, when: wrong, weights: base, loss: topk, k: 4}")
    ],
    "reference": ["train.algorithm=rloo", "train.select=mopps", "train.inner_epochs=2"],
}


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_and_resumed_run_equals_the_unbroken_one(tmp_path: Path, method: str) -> None:
    recipe = small_recipe(tmp_path, steps=7, save_every=2)
    sets = [part for one in ["run.name=run", *METHODS[method]] for part in ("--set", one)]
    cold = method == "default"
    finish(train(recipe, tmp_path / "straight", *sets, cold=cold))
    kill_after(train(recipe, tmp_path / "broken", *sets, cold=cold), tmp_path / "broken/run/checkpoints/step-000004")
    said = finish(train(recipe, tmp_path / "broken", *sets, "--resume", cold=cold))
    assert "resuming run from step-00000" in said
    straight, broken = tmp_path / "straight/run", tmp_path / "broken/run"
    assert what(straight) == what(broken)
    last = "checkpoints/step-000007"
    assert (straight / last / "model.safetensors").read_bytes() == (broken / last / "model.safetensors").read_bytes()
    optimizers = [torch.load(run / last / "optimizer.pt", weights_only=True) for run in (straight, broken)]
    for index, state in optimizers[0]["state"].items():
        for name, value in state.items():
            assert torch.equal(value, optimizers[1]["state"][index][name])
    if method == "critic":
        critics = [torch.load(run / last / "critic/critic.pt", weights_only=True) for run in (straight, broken)]
        assert all(map(torch.equal, critics[0]["weights"], critics[1]["weights"]))


DIES_BEFORE_THE_POLICY_LEARNS = """
import os, signal
from grpo_cli.train.critic.learning import CriticLearning

whole = CriticLearning.learn

def learn(self, trainer, before, *rest):
    weights = [p.detach().clone() for p in self.critic.trained]
    found = whole(self, trainer, before, *rest)
    assert any((a != b).any() for a, b in zip(weights, self.critic.trained))
    if before.step == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

CriticLearning.learn = learn
from grpo_cli.__main__ import main
main()
"""


def test_a_run_killed_between_the_critics_update_and_the_policys_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=6, save_every=2)
    sets = [part for one in ["run.name=run", *METHODS["critic"]] for part in ("--set", one)]
    finish(train(recipe, tmp_path / "straight", *sets))
    words = ["train", str(recipe), "--set", f"run.dir={tmp_path / 'broken'}", *sets]
    died = subprocess.run(
        [sys.executable, "-c", DIES_BEFORE_THE_POLICY_LEARNS, *words],
        cwd=ROOT, env=environment(tmp_path / "broken"), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    straight, broken = tmp_path / "straight/run", tmp_path / "broken/run"
    assert [line["step"] for line in what(broken)["metrics"] if "critic/loss" in line] == [1, 2, 3, 4]
    assert "resuming run from step-000004" in finish(train(recipe, tmp_path / "broken", *sets, "--resume"))
    assert what(straight) == what(broken)
    last = "checkpoints/step-000006"
    weights = [(run / last / "model.safetensors").read_bytes() for run in (straight, broken)]
    assert weights[0] == weights[1]
    critics = [torch.load(run / last / "critic/critic.pt", weights_only=True) for run in (straight, broken)]
    assert all(map(torch.equal, critics[0]["weights"], critics[1]["weights"]))


def test_a_run_that_dies_after_a_rule_stopped_it_stops_there_again(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=9, save_every=100)
    recipe.write_text(recipe.read_text().replace("every: 3", "every: 1").replace("lr: 1e-3", "lr: 1e-9"))
    sets = [part for one in ("run.name=run", "stop.patience=2") for part in ("--set", one)]
    process = train(recipe, tmp_path / "straight", *sets)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 1, said
    straight, broken = tmp_path / "straight/run", tmp_path / "broken/run"
    (stopped,) = (straight / "checkpoints").glob("step-*")
    kill_after(train(recipe, tmp_path / "broken", *sets), broken / "checkpoints" / stopped.name)
    process = train(recipe, tmp_path / "broken", *sets, "--resume")
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 1, said
    assert f"resuming run from {stopped.name}" in said
    assert "no better held-out score" in said
    assert what(straight) == what(broken)
    told = [json.loads((run / "run.json").read_text()) for run in (straight, broken)]
    assert told[0]["status"] == told[1]["status"] == "stopped"
    assert told[0]["steps"] == told[1]["steps"] < 9
