"""One step of preference learning: groups → pairs → TRL's trainer → what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from grpo_cli.errors import TrainingError
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.policy import Policy
from grpo_cli.preference.summary import PairSummary, why_no_pairs
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.rollout.collect import step_seed
from grpo_cli.train.nonfinite import NonFinite
from grpo_cli.train.prefer.configs import trl_config, update_of
from grpo_cli.train.prefer.examples import (
    Example,
    LabelledExample,
    in_order,
    keep_rows_apart,
)
from grpo_cli.train.prefer.method import PairMethod
from grpo_cli.train.prefer.pair_set import PairSet
from grpo_cli.train.prefer.trainers import UpdateLog, make_pair_trainer

RENAMED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "logps/chosen": "chosen/logps",
    "logps/rejected": "rejected/logps",
    "rewards/chosen": "chosen/reward",
    "rewards/rejected": "rejected/reward",
    "rewards/margins": "prefer/margin",
    "rewards/accuracies": "prefer/accuracy",
    "kl": "prefer/kl",
    "nll_loss": "prefer/nll",
    "entropy": "entropy",
}
"""What TRL logs, and what it is called in `metrics.jsonl`; the rest is left out."""
LAST = ("loss", "chosen/logps", "rejected/logps", "prefer/margin", "prefer/accuracy")
"""Of these the last update's too: how far the step came, beside the mean over it."""


NO_PAIRS = (
    "`grpo probe RECIPE` says what the model is right and wrong on; more rows, samples or tokens may help"
)


class PairLearner:
    """Learns from the pairs of a step, in place. The optimizer and the schedule are each step's own, the reference too."""

    def __init__(self, recipe: Recipe, policy: Policy, folder: Path, guard: NonFinite) -> None:
        self.recipe, self.policy, self.folder, self.guard = recipe, policy, folder, guard
        self.method = PairMethod.of(recipe)

    def learn(
        self, at: int, groups: Sequence[Group], on_update: Callable[[int, int], None]
    ) -> dict[str, float]:
        """Update the policy on the pairs of step `at` (from 0); what it measured.

        A later step without any pair learns nothing, says so and is counted (`updates` is 0).

        Raises:
            TrainingError: no pair in the first step, or a loss that is not finite.
        """
        found = [self.method.pairs(group) for group in groups]
        return self.learn_from(at, PairSet.of_groups(groups, found), on_update)

    def learn_from(self, at: int, pairs: PairSet, on_update: Callable[[int, int], None]) -> dict[str, float]:
        """The same with pairs that are made.

        Raises:
            TrainingError: as `learn`.
        """
        summary, examples = pairs.summary, self._examples(at, pairs)
        if not examples:
            if at == 0:
                raise TrainingError(why_no_pairs(summary), hint=NO_PAIRS)
            self.guard.say(f"step {at + 1}: {why_no_pairs(summary)}; nothing is learned")
            return {**summary_metrics(summary), "updates": 0}
        # dropout and whatever else TRL leaves to chance, the same after a resume
        torch.manual_seed(step_seed(self.recipe.train.seed, at + 1))
        heard = UpdateLog(on_update)
        with unpatched(self.policy.model):
            self._train(at, examples, heard)
        return {**summary_metrics(summary), **update_metrics(heard.updates)}

    def _examples(self, at: int, pairs: PairSet) -> list[Example]:
        prefer, seed = self.recipe.prefer, step_seed(self.recipe.train.seed, at + 1)
        assert prefer is not None
        if prefer.loss != "kto":
            return [*in_order(pairs.pairs, prefer.epochs, prefer.batch, seed)]
        if len({one.label for one in pairs.answers}) < 2:  # of one kind there is nothing to prefer
            return []
        ordered = in_order(pairs.answers, prefer.epochs, prefer.batch, seed)
        width = max(one.width for one in ordered)
        micro = update_of(prefer, len(ordered), width, self.policy.device).micro
        return [*keep_rows_apart(ordered, micro)]

    def _train(self, at: int, examples: Sequence[Example], heard: UpdateLog) -> None:
        recipe, policy, prefer = self.recipe, self.policy, self.recipe.prefer
        assert prefer is not None
        labels = [one.label for one in examples if isinstance(one, LabelledExample)]
        config = trl_config(
            prefer,
            recipe.train,
            self.folder,
            update_of(prefer, len(examples), max(one.width for one in examples), policy.device),
            on_cpu=policy.device.type == "cpu",
            bf16=policy.autocast is not None,
            counts=(sum(labels), len(labels) - sum(labels)) if labels else (1, 1),
        )
        trainer = make_pair_trainer(prefer.loss, policy.model, config, examples, policy.tokenizer, heard)
        trainer.guard, trainer.at = self.guard, at + 1
        trainer.train()


@contextmanager
def unpatched(model: nn.Module) -> Iterator[None]:
    """What TRL puts around the model's forward pass is taken off afterwards, else every step would add a layer of it."""
    inner = causal_model(model)
    own = inner.__dict__.get("forward")
    try:
        yield
    finally:
        if own is None:
            inner.__dict__.pop("forward", None)
        else:
            inner.__dict__["forward"] = own


def summary_metrics(summary: PairSummary) -> dict[str, float]:
    """Counts of pairs and of rows without one, and the length gap of a step."""
    found: dict[str, float] = {
        "prefer/pairs": summary.pairs,
        "prefer/rows": summary.rows_with_pairs,
        "prefer/answers/right": summary.right,
        "prefer/answers/wrong": summary.wrong,
    }
    if summary.length_gap is not None:
        found["prefer/length_gap"] = summary.length_gap.mean
    return found


def update_metrics(updates: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over the updates of a step, and `NAME/last` of those whose course matters; without non-finite ones."""
    found: dict[str, float] = {"updates": len(updates)}
    for theirs, ours in RENAMED.items():
        values = [u[theirs] for u in updates if theirs in u and math.isfinite(u[theirs])]
        if values:
            found[ours] = math.fsum(values) / len(values)
            if ours in LAST:
                found[f"{ours}/last"] = values[-1]
    return found
