"""Training rows sampled and judged the way a training step would, for `grpo probe` and the gate of `grpo train`.

Prompts are drawn from the training rows by the recipe's seed, never the first ones: data sets are often sorted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_cli.data.split import Split
from grpo_cli.distributed.ranks import Shared
from grpo_cli.measure.evaluator import Evaluator
from grpo_cli.measure.probe_result import Probe, summarise
from grpo_cli.policy.policy import Policy
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
        """What the gate asks for."""
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
    shared: Shared | None = None,
    device: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProbeRun:
    """Sample and judge `size.prompts` training rows the way a training step would."""
    seed, began = recipe.train.seed if seed is None else seed, time.perf_counter()
    places = sorted(random.Random(seed).sample(range(len(train.rows)), min(size.prompts, len(train.rows))))
    spec, sampling = Eval(samples=size.samples, k=[1], greedy=False), SamplingSettings.of(recipe.sample, seed)
    rows, world = train.take(places), recipe.environment
    # the settings of training, not those of measuring: a probe forecasts what a step will draw
    evaluator = Evaluator(spec, rows, judge, engine, policy, sampling, shared, world)
    records = evaluator.run(0, on_progress).sampled.records
    probe = summarise(
        records,
        samples=size.samples,
        group=recipe.sample.group,
        max_tokens=recipe.sample.max_tokens,
        seed=seed,
        paid=_paid(recipe, records, size.samples),
    )
    return ProbeRun(probe, records, device, time.perf_counter() - began)


def _paid(recipe: Recipe, records: Sequence[SampleRecord], samples: int) -> list[list[float]]:
    """What training would pay each group of `samples` records: with shaping, or as its placebo arm."""
    pay, found = RewardRule(recipe), []
    for start in range(0, len(records), samples):
        group = records[start : start + samples]
        judged = [Judgement(dict(r.verdicts), r.outcome or Outcome.ERROR, r.reward) for r in group]
        # names a placebo's chance, as a step and call of training would
        place = f"0/0/{group[0].row}"
        found.append(pay.of(judged, [r.completion for r in group], [r.tokens for r in group], place))
    return found
