"""`grpo eval`: one model, or two on the same rows, measured with the recipe's own verifiers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import load_rows
from grpo_cli.jobs.evaluate.evaluator import Evaluation, Evaluator, Measured
from grpo_cli.policy.model import pick_device
from grpo_cli.policy.threads import choose_threads
from grpo_cli.resilience.opened import Place, open_model
from grpo_cli.reward.judge import Judge, proxy_warnings
from grpo_cli.rollout.make import make_engine
from grpo_cli.run.records import SampleRecord, dump_line
from grpo_cli.statistics.estimate import Comparison, mcnemar_exact, min_detectable, paired_clustered
from grpo_cli.train.trl_config import uses_bf16


@dataclass(frozen=True)
class Paired:
    """B against A on the same prompts: sampled by a clustered t test, greedy by McNemar's exact test."""

    sampled: Comparison
    greedy_only_a: int | None
    greedy_only_b: int | None
    greedy_p: float | None
    greedy_detectable: float | None


def measure_place(
    place: Place, on_progress: Callable[[int, int], None], say: Callable[[str], None], seed: int
) -> Evaluation:
    """Load, sample and judge; the model is given back before this returns."""
    recipe = place.recipe
    torch.set_num_threads(choose_threads(recipe.run.threads)[0])
    judge = Judge.of(recipe, place.base)
    try:
        judge.start()
        for warning in proxy_warnings(recipe.verify):
            say(warning)
        rows = load_rows(recipe.data, "eval", place.base)
        audit = audit_golds(rows, judge.verifiers, recipe.data.on_bad_gold, judge.rule)
        if audit.dropped:
            say(f"dropped {len(audit.dropped)} of {len(rows)} rows with a bad gold")
        device = pick_device()
        loaded = open_model(place, device)
        half = uses_bf16(recipe, device, sum(p.numel() for p in loaded.model.parameters()))
        engine = make_engine(
            recipe.sample.engine,
            loaded.model,
            loaded.tokenizer,
            autocast=torch.bfloat16 if half else None,
            say=say,
        )
        evaluator = Evaluator(
            recipe.eval,
            audit.rows,
            audit.golds,
            judge,
            engine,
            loaded.tokenizer,
            max_tokens=recipe.sample.max_tokens,
            temperature=recipe.sample.temperature,
            seed=seed,
        )
        found = evaluator.run(0, on_progress)
        del loaded, engine, evaluator
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return found
    finally:
        judge.close()


def compare(a: Evaluation, b: Evaluation) -> Paired:
    """B minus A, prompt by prompt."""
    sampled = paired_clustered(shares(a.sampled), shares(b.sampled))
    if a.greedy is None or b.greedy is None:
        return Paired(sampled, None, None, None, None)
    pairs = [(x[0], y[0]) for x, y in zip(shares(a.greedy), shares(b.greedy), strict=True) if x and y]
    only_a, only_b = sum(x > y for x, y in pairs), sum(y > x for x, y in pairs)
    disagree = (only_a + only_b) / len(pairs) if pairs else 0.0
    return Paired(
        sampled, only_a, only_b, mcnemar_exact(only_a, only_b), min_detectable(len(pairs), disagree or 0.2)
    )


def shares(measured: Measured) -> list[list[float]]:
    """Right (1.0) or not (0.0) of every judged sample, by prompt in the order of the rows."""
    groups: dict[Any, list[float]] = {}
    for record in measured.records:
        group = groups.setdefault(record.group, [])
        if record.is_judged:
            group.append(float(record.is_right))
    return list(groups.values())


def write_records(path: Path, records: Sequence[SampleRecord]) -> None:
    """One line a sample, as `grpo verify` reads them; written beside, then renamed."""
    beside = path.with_name(path.name + ".part")
    beside.write_text("".join(dump_line(record.as_json()) for record in records), encoding="utf-8")
    beside.replace(path)
