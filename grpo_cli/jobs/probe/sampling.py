"""Sampling for `grpo probe` and for the gate of `grpo train`: the policy as training would start it, warm-up included.

Prompts are drawn from the training rows by the recipe's seed, never the first ones: data sets are often sorted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.distributed.ranks import Alone, Shared
from grpo_cli.jobs.evaluate.evaluator import Evaluator
from grpo_cli.jobs.probe.result import Probe, summarise
from grpo_cli.jobs.rows import Split, fit_split, load_split
from grpo_cli.policy.coldstart import warm_up
from grpo_cli.policy.model import device_name, load_model, pick_device
from grpo_cli.policy.threads import choose_threads
from grpo_cli.recipe.sections.recipe import Eval, Gate, Recipe
from grpo_cli.reward.judge import Judge
from grpo_cli.rollout.make import make_engine
from grpo_cli.run.records import SampleRecord
from grpo_cli.train.trl_config import uses_bf16


@dataclass(frozen=True, slots=True)
class ProbeSize:
    """How many prompts, and samples of each."""

    prompts: int
    samples: int

    @classmethod
    def of(cls, gate: Gate) -> ProbeSize:
        """What the gate asks for."""
        return cls(gate.n, gate.samples)


@dataclass(frozen=True)
class Probed:
    """A probe with the samples behind it, and where and how long they were made."""

    probe: Probe
    records: list[SampleRecord]
    device: str
    seconds: float


def probe_recipe(
    recipe: Recipe, base: Path | None, display: Display, size: ProbeSize, seed: int | None = None
) -> Probed:
    """Load rows, golds and model, warm it up where the recipe says so, and sample.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
    """
    torch.set_num_threads(choose_threads(recipe.run.threads)[0])
    judge = Judge(recipe.verify, base)
    try:
        judge.start()
        train = load_split(recipe, "train", base, judge, display)
        device = pick_device()
        display.progress("load model", 0, 1)
        # a model that is warmed up is loaded as for training, so that the cached weights fit and are the same
        loaded = load_model(recipe.model, device=device, seed=recipe.train.seed, training=bool(recipe.warmup))
        display.progress("load model", 1, 1)
        train = fit_split(recipe, train, loaded, display)
        done = warm_up(
            recipe, loaded, train.rows, base, device, lambda n, total: display.progress("warm-up", n, total)
        )
        if done is not None:
            display.note("info", done.text())
        elif not loaded.is_pretrained:
            display.note("warn", f"`{recipe.model.path}` has random weights and the recipe no `warmup`")
        half = uses_bf16(recipe, device, sum(p.numel() for p in loaded.model.parameters()))
        engine = make_engine(
            recipe.sample.engine,
            loaded.model,
            loaded.tokenizer,
            autocast=torch.bfloat16 if half else None,
            say=lambda text: display.note("info", text),
        )
        return sample_probe(
            recipe,
            train,
            judge,
            engine,
            loaded.tokenizer,
            size,
            seed=seed,
            device=device_name(device),
            on_progress=lambda n, total: display.progress("probe", n, total),
        )
    finally:
        judge.close()


def sample_probe(
    recipe: Recipe,
    train: Split,
    judge: Judge,
    engine: Any,
    tokenizer: Any,
    size: ProbeSize,
    *,
    seed: int | None = None,
    shared: Shared | None = None,
    device: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Probed:
    """Sample and judge `size.prompts` training rows the way a training step would."""
    seed, began = recipe.train.seed if seed is None else seed, time.perf_counter()
    places = sorted(random.Random(seed).sample(range(len(train.rows)), min(size.prompts, len(train.rows))))
    evaluator = Evaluator(
        Eval(samples=size.samples, k=[1], greedy=False),
        [train.rows[i] for i in places],
        {name: [golds[i] for i in places] for name, golds in train.golds.items()},
        judge,
        engine,
        tokenizer,
        max_tokens=recipe.sample.max_tokens,
        temperature=recipe.sample.temperature,
        seed=seed,
        shared=shared or Alone(),
    )
    records = evaluator.run(0, on_progress).sampled.records
    probe = summarise(
        records,
        samples=size.samples,
        group=recipe.sample.group,
        max_tokens=recipe.sample.max_tokens,
        seed=seed,
    )
    return Probed(probe, records, device, time.perf_counter() - began)
