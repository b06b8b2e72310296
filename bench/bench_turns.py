"""What an episode costs by its turns: with the history computed anew each turn, and with it kept between turns.

    PYTHONPATH=.:verifiers:bench python -m bench.bench_turns [--turns 2 4 8 16 32] [--episodes 64] [--times 3]

The embedded model with random weights, or with `--shape` one of that shape in bfloat16, plays keydoor: hardly an episode ends
before its turns do. Prints one JSON line a row: seconds of one play (median of `times`), and the tokens that went through the
model before the first new one of a turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from grpo_cli.data.rows import Row
from grpo_cli.data.tasks import task_rows
from grpo_cli.environments.pool import Worlds
from grpo_cli.policy.model import load_model, pick_device
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.rollout.decoding.rollout_mode import Forward
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.make import make_engine

TURN_TOKENS = 8
BETWEEN, CHAT_BETWEEN = 12, 48
"""Most tokens between two turns, with the embedded model's template and with Qwen's."""


class Watched(Forward):
    """Counts the tokens of prefills."""

    tokens = 0

    def __call__(self, phase: Any, tokens: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        if tokens.shape[1] > 1:
            self.tokens += tokens.numel()
        return super().__call__(phase, tokens, *more, **named)


class Forgetting:
    """An engine that is never told what it could keep."""

    def __init__(self, engine: GraphEngine) -> None:
        self.engine, self.kind = engine, engine.kind

    def generate(self, requests: Sequence[Request], *more: Any, **named: Any) -> list[list[Completion]]:
        return self.engine.generate([replace(one, slot=None) for one in requests], *more, **named)


def measure(policy: Policy, rows: Sequence[Row], turns: int, keeps: bool, times: int, between: int) -> dict[str, Any]:
    engine: Any = make_engine("graph", policy.model, policy.tokenizer, end_ids=policy.end_ids)
    engine.forward = Watched(policy.model)
    spec = Environment(python="environments:keydoor", max_turns=turns, turn_tokens=TURN_TOKENS)
    worlds = Worlds(spec.python, {}, workers=1)
    worlds.start()
    try:
        episodes = Episodes.where_asked(spec, worlds, engine if keeps else Forgetting(engine), policy)  # type: ignore[arg-type]
        assert episodes is not None
        seconds = []
        for seed in range(times + 1):  # the first one makes the cache
            engine.forward.tokens = 0
            play = episodes.open(rows, 1, seed % 2)
            began = time.perf_counter()
            done = play.generate(SamplingSettings(turns * (TURN_TOKENS + between), seed=seed % 2))
            seconds.append(time.perf_counter() - began)
        spoken = sum(completion.sampled_tokens for (completion,) in done)
    finally:
        worlds.close()
    return {
        "turns": turns,
        "kept": keeps,
        "seconds": round(statistics.median(seconds[1:]), 3),
        "prefilled": engine.forward.tokens,
        "spoken": spoken,
    }


def load(shape: str | None, rows: int) -> Policy:
    """The embedded model, or one of a shape with random weights."""
    if shape is None:
        return load_model(Model(path="builtin:tiny", context=2048), device=pick_device(), seed=0)
    from bench_episodes import write_chat_model
    from bench_rollout import build_model

    with tempfile.TemporaryDirectory() as name:
        write_chat_model(Path(name), build_model(shape, "cpu", torch.float32), rows)
        return load_model(Model(path=f"{name}/model", dtype="bfloat16"), device=pick_device(), seed=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--shape", help="one of bench_rollout's instead of the embedded model")
    asked = parser.parse_args()
    policy = load(asked.shape, asked.episodes)
    made = task_rows("keydoor", "train", {}, "")
    rows = list[Row]()
    for number, fields in zip(range(asked.episodes), made, strict=False):
        messages: Any = [{"role": "user", "content": fields["question"]}]
        rows.append(Row(f"row{number}", fields["question"], messages, fields))
    between = BETWEEN if asked.shape is None else CHAT_BETWEEN
    for turns in asked.turns:
        for keeps in (False, True):
            print(json.dumps(measure(policy, rows, turns, keeps, asked.times, between)), flush=True)


if __name__ == "__main__":
    main()
