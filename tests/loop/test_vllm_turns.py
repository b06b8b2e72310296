"""A run whose episodes are played through vLLM in its process: the update is that of the engine `graph`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.trainer import grpo_trainer

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.policy.model import load_model
from grpo_cli.recipe.sections.recipe import Model, Recipe
from grpo_cli.rollout.decoding.sampling import sample_keys
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.graph.engine import GraphEngine
from tests.builders.vllm_stand_in import DRAW, Held, StandIn, install


def shifted(
    self: GraphEngine, requests: Sequence[Request], settings: SamplingSettings, *_: Any, **__: Any
) -> list[list[Completion]]:
    """The engine `graph` under the seeds that vLLM would be given."""
    keys = sample_keys(requests, settings.seed or 0)
    return [
        DRAW(
            self,
            [Request(request.ids, 1, key >> 1)],
            SamplingSettings(settings.max_tokens - len(request.prefix), settings.temperature),
        )[0]
        for request, key in zip(requests, keys, strict=True)
    ]


WORLD = """
class Coin:
    def reset(self, row, seed):
        self.said = 0

    def step(self, action):
        self.said += sum(map(ord, action))
        return "go on"

    def score(self):
        return float(self.said % 2)
"""
"""What was said tosses a coin: random weights are right now and then."""


def steps_of(folder: Path, engine: str) -> tuple[list[Any], list[Any]]:
    (folder / "world.py").write_text(WORLD)
    recipe = Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": {"from": "tasks:calculator", "limit": 16}, "prompt": "{question}"},
            "environment": {"python": "world.py:Coin", "max_turns": 3, "turn_tokens": 8, "workers": 1},
            "sample": {"prompts": 4, "group": 4, "max_tokens": 70, "micro_batch": 8, "engine": engine},
            "train": {"steps": 2, "lr": 1e-4, "dead_groups": "keep"},
            "run": {"dir": str(folder), "name": engine},
        }
    )
    Job(recipe, label="turns", base=folder, display=make_display("none")).run()
    run = folder / engine
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    said = [json.loads(line) for file in sorted(run.glob("samples/*.jsonl")) for line in file.open()]
    return [line for line in lines if "loss" in line], said


def test_a_run_through_it_is_the_run_through_the_engine_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    held: list[Held] = []

    def made(model: Any, **_: Any) -> Held:
        held.append(Held(StandIn(GraphEngine(model, ends))))
        return held[-1]

    found = load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0)
    ends = found.end_ids
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", made)
    through, spoken = steps_of(tmp_path, "vllm")
    assert held[0].syncs == 2
    monkeypatch.setattr(GraphEngine, "generate", shifted)
    plain, wanted = steps_of(tmp_path, "graph")
    first = [line for line in spoken if line["step"] == 1]
    assert [line["completion"] for line in first] == [line["completion"] for line in wanted if line["step"] == 1]
    assert any(len(line["turns"]) > 1 for line in first)
    for name in ("loss", "grad_norm", "reward/total/mean"):
        assert through[0][name] == pytest.approx(plain[0][name], rel=1e-3, abs=1e-6), name
    assert through[0]["grad_norm"] > 0
