"""GRPO on one page: the loop that `grpo train` runs, with thirty lines of torch where that has TRL's trainer.

    python examples/minimal_grpo.py recipes/quickstart.yaml --set train.steps=20

Choosing rows, sampling, judging and the advantages are those of `grpo train`, so the same recipe and seed draw the same
samples, get the same rewards and end with the same weights, up to rounding. Left out, for the sake of the page: several
processes, checkpoints and resume, evaluation, a KL term, several passes over a batch, and every loss but `dapo`.
Axes: P prompts, G samples a prompt, B = P x G rows, T completion tokens (padded), S prompt and completion tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from grpo_cli.curriculum.ledger import RowOutcome
from grpo_cli.curriculum.select import Selection
from grpo_cli.curriculum.step_groups import RowChoice
from grpo_cli.display.choose import make_display
from grpo_cli.errors import UserError
from grpo_cli.jobs.open_job import OpenJob, open_job
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.train.clock import Clock, StepProgress
from grpo_cli.train.credit import Method
from grpo_cli.train.loop import RolloutParts, judged_rollouts
from grpo_cli.train.step import Learned, StepBatch, StepRecord, grpo_step


@dataclass(frozen=True)
class Batch:
    """Prompts padded on the left, completions on the right; `mask_BT` is 1 on the tokens of the loss."""

    ids_BS: Tensor
    seen_BS: Tensor
    mask_BT: Tensor
    A_B1: Tensor


def pad(before: StepBatch, padding: int) -> Batch:
    """The samples of a step as tensors."""
    samples = [(g.prompt_ids, c.token_ids) for g in before.groups for c in g.completions]
    lead, width = (max(len(ids) for ids in side) for side in zip(*samples, strict=True))
    ids, seen = [], []
    for prompt, completion in samples:
        left, right = lead - len(prompt), width - len(completion)
        ids.append([padding] * left + prompt + completion + [padding] * right)
        seen.append([0] * left + [1] * (len(prompt) + len(completion)) + [0] * right)
    seen_BS = torch.tensor(seen)
    return Batch(torch.tensor(ids), seen_BS, seen_BS[:, lead:], before.credit.A_PG.float().reshape(-1, 1))


def logprobs(policy: Policy, batch: Batch, temperature: float) -> Tensor:
    """(B, T) log-probs of the completions' tokens."""
    width = batch.mask_BT.shape[1]
    places_BS = (batch.seen_BS.cumsum(dim=1) - 1).clamp(min=0)
    logits_BTV = policy.model(input_ids=batch.ids_BS, attention_mask=batch.seen_BS, position_ids=places_BS).logits[
        :, -width - 1 : -1
    ]
    logps_BTV = (logits_BTV.float() / temperature).log_softmax(dim=-1)
    return logps_BTV.gather(2, batch.ids_BS[:, -width:, None]).squeeze(2)


def learner(policy: Policy, recipe: Recipe) -> Callable[[StepBatch], Learned]:
    """One optimizer step on a batch (DAPO's token mean, PPO's clip)."""
    train = recipe.train
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=train.lr, weight_decay=0.0, eps=train.trl.get("adam_epsilon", 1e-8)
    )
    rise, falls = train.lr_warmup_steps or 0, train.schedule == "linear"

    def share(n: int) -> float:
        """Of the rate, after n updates: up in `rise` of them, from 0 as transformers does, then down to 0 or level."""
        if n < rise:
            return n / rise
        return (train.steps - n) / max(1, train.steps - rise) if falls else 1.0

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    low, high = 1 - train.clip.low, 1 + train.clip.high

    def learn(before: StepBatch) -> Learned:
        batch = pad(before, policy.tokenizer.pad_token_id)
        logps_BT = logprobs(policy, batch, recipe.sample.temperature)
        ratio_BT = (logps_BT - logps_BT.detach()).exp()  # one update a batch: old and new are the same, this is 1
        clipped_BT = ratio_BT.clamp(low, high)
        gain_BT = torch.min(ratio_BT * batch.A_B1, clipped_BT * batch.A_B1)
        loss = -(gain_BT * batch.mask_BT).sum() / batch.mask_BT.sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(policy.model.parameters(), train.max_grad_norm)
        optimizer.step()
        schedule.step()
        return Learned({"loss": loss.item(), "grad_norm": norm.item()})

    return learn


def check_simple(recipe: Recipe) -> None:
    """Raises UserError where a recipe asks for what this page leaves out."""
    train = recipe.train
    asks = {
        "train.loss": train.loss != "dapo",
        "train.ratio": train.ratio != "token",
        "train.kl": train.kl.beta > 0,
        "train.inner_epochs": train.inner_epochs > 1,
        "train.schedule": train.schedule == "cosine",
        "train.prune": train.prune is not None,
        "train.mask_truncated": train.mask_truncated,
        "train.trl": bool(set(train.trl) - {"adam_epsilon"}),
    }
    if left_out := [key for key, is_asked in asks.items() if is_asked]:
        raise UserError(f"not on this page: {', '.join(left_out)}", hint="use `grpo train`")


def steps(job: OpenJob) -> Iterator[StepRecord]:
    """Train; every step as it is done."""
    recipe, rows = job.recipe, job.train.rows
    check_simple(recipe)
    select = Selection(recipe.train.select, [row.id for row in rows], recipe.train.seed)
    method = Method.of(recipe)
    progress = StepProgress(Clock(), job.display)
    parts = RolloutParts(recipe, rows, job.train.golds, job.judge, job.engine, job.policy)
    collect = judged_rollouts(parts, progress)
    learn = learner(job.policy, recipe)

    def choose(step: int, n: int, had: Collection[int]) -> RowChoice:
        return RowChoice(select.choose(step, 2 * n if select.screens else n, had), n, select.screens)

    def record(done: StepRecord) -> None:
        drawn = done.before.drawn
        outcomes = [RowOutcome(g.row, g.right, g.judged, method.has_signal(g)) for g in drawn]
        select.update(done.before.step, outcomes)

    for at in range(recipe.train.steps):
        yield grpo_step(at, recipe, choose=choose, collect=collect, method=method, learn=learn, record=record)


@contextmanager
def warm_job(recipe: Recipe, base: Path | None) -> Iterator[OpenJob]:
    """Rows, judge and a model that had the recipe's warm-up."""
    with open_job(recipe, base, make_display("none"), splits=["train"]) as job:
        job.warm_up()
        job.policy.model.train()
        yield job


def show(done: StepRecord) -> None:
    """A line for a step."""
    groups, learned = done.before.groups, done.learned.metrics
    right, judged = sum(g.right for g in groups), sum(g.judged for g in groups)
    signal = int(done.before.credit.signal_P.sum())
    print(
        f"step {done.step}  right {right} of {judged}  groups with signal {signal} of {len(groups)}"
        f"  loss {learned['loss']:+.4f}  gradient {learned['grad_norm']:.3f}"
    )


def main() -> None:
    """Train by a recipe and print a line a step."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    recipe = load(asked.recipe, asked.set)
    with warm_job(recipe, asked.recipe.parent) as job:
        for done in steps(job):
            show(done)


if __name__ == "__main__":
    main()
