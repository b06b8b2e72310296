"""Training rows sampled and judged the way a training step would, for `grpo probe` and the gate of `grpo train`.

Prompts are drawn from the training rows by the recipe's seed, never the first ones: data sets are often sorted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from grpo_cli.algorithm.advantage import gate, told_apart
from grpo_cli.data.rows import Split
from grpo_cli.distributed.ranks import ALONE, Ranks
from grpo_cli.measure.evaluation import Evaluator
from grpo_cli.measure.probe_result import Probe, ScorerNoise, scored_twice, summarise
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.beside import unlearnable
from grpo_cli.recipe.sections.recipe import Eval, Gate, Recipe
from grpo_cli.reward.judge import Judge, Judgement
from grpo_cli.reward.pay import RewardRule
from grpo_cli.rollout.engine import Engine, SamplingSettings
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome


@dataclass(frozen=True, slots=True)
class ProbeSize:
    """How many prompts, and samples of each."""

    prompts: int
    samples: int

    @classmethod
    def of(cls, gate: Gate) -> ProbeSize:
        """What the gate needs."""
        return cls(gate.n, gate.samples)


@dataclass(frozen=True)
class ProbeRun:
    """A probe with the samples behind it, and where and how long they were made."""

    probe: Probe
    records: list[SampleRecord]
    device: str
    seconds: float


def sample_probe(
    recipe: Recipe,
    train: Split,
    judge: Judge,
    engine: Engine,
    policy: Policy,
    size: ProbeSize,
    *,
    seed: int | None = None,
    ranks: Ranks = ALONE,
    base: Path | None = None,
    is_noisy: bool = False,
    device: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProbeRun:
    """Sample and judge `size.prompts` training rows the way a training step would. `is_noisy`: some of the answers are scored
    twice, by the recipe's scorers as `base`, its folder, has them.

    Raises:
        RecipeError, SetupError: a scorer cannot be started a second time.
    """
    seed, began = recipe.train.seed if seed is None else seed, time.perf_counter()
    places = sorted(random.Random(seed).sample(range(len(train.rows)), min(size.prompts, len(train.rows))))
    spec, sampling = Eval(samples=size.samples, k=[1], greedy=False), SamplingSettings.of(recipe.sample, seed)
    rows, world = train.take(places), recipe.environment
    # sampling settings of training, not of evaluation: a probe forecasts what a step will draw
    evaluator = Evaluator(spec, rows, judge, engine, policy, sampling, ranks, world)
    records = evaluator.run(0, on_progress).sampled.records
    noise: ScorerNoise | None = None
    if is_noisy:
        # in one process only: each would measure a different noise
        noise = ranks.gathered([scored_twice(recipe, base, rows, records) if ranks.rank == 0 else None])[0]
    probe = summarise(
        records,
        samples=size.samples,
        group=recipe.sample.group,
        max_tokens=recipe.sample.max_tokens,
        seed=seed,
        signals=_signals(recipe, records, size.samples, noise),
        noise=noise,
        unlearnable=unlearnable(recipe),
    )
    return ProbeRun(probe, records, device, time.perf_counter() - began)


def _signals(recipe: Recipe, records: Sequence[SampleRecord], samples: int, noise: ScorerNoise | None) -> list[bool]:
    """Whether training would learn from each group of `samples` records: whether their rewards differ after shaping and
    gate, or under the placebo."""
    pay, train, found = RewardRule(recipe), recipe.train, []
    if train.std_floor == "noise":
        floor = noise.floor(samples, train.std_ddof) if noise is not None else 0.0
    else:
        floor = train.std_floor
    for start in range(0, len(records), samples):
        group = records[start : start + samples]
        judged = [Judgement(dict(r.verdicts), r.outcome or Outcome.ERROR, r.reward) for r in group]
        # names a placebo's chance, as a step and call of training would
        place = f"0/0/{group[0].row}"
        invalid = [sum(not turn.get("valid", True) for turn in r.turns) for r in group]
        made = pay.of(judged, [r.completion for r in group], [r.tokens for r in group], place, invalid)
        rewards = torch.tensor([made.rewards], dtype=torch.float64)
        if train.alive_by != "reward" and train.baseline != "critic":
            outcomes = torch.tensor([made.outcomes], dtype=torch.float64)
            rewards, _ = gate(outcomes, rewards, ddof=train.std_ddof, floor=floor)
        found.append(bool(told_apart(rewards, ddof=train.std_ddof, floor=floor)))
    return found
