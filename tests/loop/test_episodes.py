"""Training in an environment: worlds that misbehave cost an episode and a line, and a killed run goes on bit for bit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.loop.test_resume import finish, kill_after, train, what

RECIPE = """\
grpo: 1
model: builtin:tiny
data:
  train: {from: tasks:calculator, limit: 20}
  eval: {from: tasks:calculator, limit: 4}
  prompt: "{question}"
environment: {python: "world.py:World", max_turns: 3, turn_tokens: 8, timeout_s: 0.5, workers: 2}
sample: {prompts: 4, group: 4, max_tokens: 70}
train: {steps: STEPS, lr: 1e-3, seed: 3, dead_groups: keep}
stop: {verifier_errors: 1}
eval: {samples: 2, k: [1, 2], greedy: false}
run: {save_every: 2, keep: 3}
warmup: {steps: 20, lr: 3e-3, muon_lr: 0.015, batch: 16, limit: 16}
"""
WORLD = '''\
"""A calculator that slips on some sums."""

import time

from grpo_cli.environments.worlds.calculator import Calculator


class World(Calculator):
    def step(self, action):
        time.sleep(0.01)
        found = super().step(action)
        slip = SLIP
        if slip == "print":
            print("adding", action)
        if slip == "raise":
            raise ValueError("no\\nsum")
        if slip == "hang":
            while True:
                pass
        if slip == "bytes":
            return b"42"
        if slip == "long":
            return "4" * 1_000_000
        return found
'''
SLIPS = '("raise", "hang", "bytes", "long", "print", "", "", "")[sum(self.numbers) % 8]'


def write(folder: Path, steps: int, slip: str = '""') -> Path:
    folder.mkdir()
    (folder / "world.py").write_text(WORLD.replace("SLIP", slip))
    (folder / "recipe.yaml").write_text(RECIPE.replace("STEPS", str(steps)))
    return folder / "recipe.yaml"


def samples(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(run.glob("samples/*.jsonl")) for line in file.open()]


@pytest.mark.parametrize("paid", ["least", "no_verdict"])
def test_worlds_that_misbehave_cost_an_episode_and_a_line_each(paid: str, tmp_path: Path) -> None:
    recipe = write(tmp_path / "r", 3, SLIPS)
    out = finish(train(recipe, tmp_path / "runs", "--set", "run.name=a", "--set", f"environment.over_limit={paid}"))
    run = tmp_path / "runs" / "a"
    found = samples(run)
    assert len(found) == 48
    reasons: dict[str, set[str]] = {}
    for line in found:
        kind = ("raise", "hang", "bytes", "long", "print", "", "", "")[sum(line["numbers"]) % 8]
        verdict = line["verdicts"]["environment"]
        assert (line["reward"] is None) == (verdict["outcome"] == "error")
        if kind in ("raise", "hang", "bytes", "long"):
            reasons.setdefault(kind, set()).add(verdict["reason"])
            assert verdict["outcome"] == ("over_limit" if paid == "least" else "error")
            assert paid == "no_verdict" or line["reward"] <= 0
        else:
            assert line["reward"] is not None
        assert line["turns"]
        assert line["tokens"] == sum(turn["tokens"] for turn in line["turns"])
    assert {"raise": {"environment_raised"}, "hang": {"timeout"}}.items() <= reasons.items()
    assert reasons["bytes"] == reasons["long"] == {"bad_return"}
    log = (run / "train.log").read_text()
    for said in (
        "`step` of `World` raised ValueError: no sum (",
        "`step` of `World` took longer than `environment.timeout_s`",
        "returned a bytes: return a text, a dict or a `Step`",
        "returned 1,000,000 characters as the observation",
    ):
        assert log.count(said) == (1 if paid == "least" else 2), said  # and one where verdicts are counted
    assert "world.py:World printed: adding" in log
    assert "Traceback" not in out
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    steps = [line for line in metrics if "turns/mean" in line]
    assert len(steps) == 3
    assert all(line["time/environment"] > 0 for line in steps)
    shares = [line["env/no_verdict"] for line in steps]
    assert sum(shares) * 16 == sum(line["reward"] is None for line in found)
    assert (sum(shares) > 0) == (paid == "no_verdict")
    assert any(line["env_tokens/mean"] > 0 for line in steps)
    assert all("eval/turns/mean" in line for line in metrics if "eval/pass@1" in line)


def test_a_run_killed_in_the_middle_of_its_episodes_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    recipe = write(tmp_path / "r", 4)
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=whole"))
    killed = train(recipe, tmp_path / "runs", "--set", "run.name=killed")
    checkpoint = tmp_path / "runs" / "killed" / "checkpoints" / "step-000002"
    time.sleep(0.1)
    kill_after(killed, checkpoint)
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=killed", "--resume"))
    assert what(tmp_path / "runs" / "killed") == what(tmp_path / "runs" / "whole")


def test_a_critic_gives_credit_across_the_turns_of_episodes(tmp_path: Path) -> None:
    recipe = write(tmp_path / "r", 2)
    said = (
        "train.algorithm=ppo",
        "train.critic.lambda=1",
        "train.critic.warmup_steps=0",
        "run.name=ppo",
        "eval.every=null",
    )
    finish(train(recipe, tmp_path / "runs", *(part for one in said for part in ("--set", one))))
    run = tmp_path / "runs" / "ppo"
    steps = [m for m in map(json.loads, (run / "metrics.jsonl").open()) if "critic/loss" in m]
    assert [m["step"] for m in steps] == [1, 2] and all(m["time/critic"] > 0 for m in steps)
    for step in steps:
        # without discount a token's return is what is paid from its turn on: at no token of the world, once at each of the model's
        ahead, tokens = 0.0, 0
        for line in samples(run):
            if line["step"] != step["step"] or line["reward"] is None:
                continue
            left = line["reward"]
            for turn in line["turns"]:
                ahead, tokens = ahead + left * turn["tokens"], tokens + turn["tokens"]
                left -= turn["reward"]
        assert step["return/mean"] == pytest.approx(ahead / tokens, abs=1e-6)
    episodes = [line for line in samples(run) if len(line["turns"]) > 1]
    assert episodes and all(len(line["values"]) == len(line["turns"]) for line in samples(run))
    assert all(set(line["values"]) == {0.0} for line in samples(run) if line["step"] == 1)
    assert all(len(set(line["values"])) > 1 for line in episodes if line["step"] == 2)
    for line in episodes:
        own = sum(turn["advantage"] * turn["tokens"] for turn in line["turns"])
        assert own / line["tokens"] == pytest.approx(line["advantage"], abs=1e-6)
    assert any(len({turn["advantage"] for turn in line["turns"]}) > 1 for line in episodes)
