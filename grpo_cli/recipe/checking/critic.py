"""What a critic cannot go with: every row carries signal, advantages are of tokens and made from values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.critic import CriticSpec
    from grpo_cli.recipe.sections.recipe import Recipe

BASELINE: Path = ("train", "baseline")


def check_critic(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """Keys that have no meaning with a critic, or none without one."""
    train, sample = recipe.train, recipe.sample
    if train.baseline != "critic":
        yield from _without(recipe)
        return
    at = next((path for path in (("train", "algorithm"), BASELINE) if said(path)), BASELINE)
    for key, wanted in (("scale", "none"), ("dead_groups", "keep"), ("ratio", "token"), ("reward_combine", "sum")):
        if (value := getattr(train, key)) != wanted:
            yield RecipeFinding(
                ("train", key),
                f"a critic gives each token an advantage of its own: `{key}: {value}` has no meaning for it",
                f"say `{key}: {wanted}`, or leave it out beside `algorithm: ppo`",
            )
    for key in ("prune", "credit"):
        if getattr(train, key) is not None:
            yield RecipeFinding(
                ("train", key),
                f"`train.{key}` compares the samples of a group, a critic does not",
                f"leave `{key}` out",
            )
    if train.select not in ("uniform", "easy_to_hard"):
        yield RecipeFinding(
            ("train", "select"),
            f"`select: {train.select}` goes by which groups have a signal, and with a critic all have",
            "say `select: uniform`",
        )
    if train.kl.beta > 0 and train.kl.estimator == "k1_reward":
        yield RecipeFinding(
            ("train", "kl", "estimator"),
            "`k1_reward` takes the KL off the reward of a whole answer; with a critic each token pays its own",
            "say `estimator: k1_token`",
        )
    if train.control == "shuffled" and sample.group == 1:
        yield RecipeFinding(
            ("train", "control"),
            "`control: shuffled` deals rewards out anew within a group, and a group of one keeps its own: no placebo",
            "say `control: random`, or raise `sample.group`",
        )
    if sample.prompts * sample.group % 2:
        yield RecipeFinding(
            ("sample", "prompts"),
            f"{sample.prompts} x {sample.group} completions a step are an odd number",
            "make it even",
        )
    if recipe.launch.strategy.startswith("zero"):
        yield RecipeFinding(
            ("launch", "strategy"),
            f"a critic was not tried with `launch.strategy: {recipe.launch.strategy}`",
            "say `ddp` or `fsdp2`",
        )
    yield from _spec(recipe, at)


def _without(recipe: Recipe) -> Iterator[RecipeFinding]:
    train, sample = recipe.train, recipe.sample
    if train.critic is not None:
        yield RecipeFinding(
            ("train", "critic"),
            f"`train.critic` has no effect with `baseline: {train.baseline}`",
            "say `algorithm: ppo`, or leave it out",
        )
    if train.kl.estimator == "k1_token":
        yield RecipeFinding(
            ("train", "kl", "estimator"),
            "`k1_token` takes the KL off the reward of each token, which only a critic tells apart",
            "say `algorithm: ppo`, or `estimator: k1_reward`",
        )
    if sample.group < 2:
        yield RecipeFinding(
            ("sample", "group"),
            f"a group of 1 is its own mean: with `baseline: {train.baseline}` every advantage is 0",
            "raise `group` to 2 or more, or say `algorithm: ppo`",
        )


def never_moves(spec: CriticSpec, steps: int) -> str:
    """What is wrong with a critic that learns alone all along."""
    return f"the policy would never move: {spec.warmup_steps} steps of warm-up in a run of {steps}"


def _spec(recipe: Recipe, at: Path) -> Iterator[RecipeFinding]:
    spec = recipe.train.critic
    if spec is None:
        yield RecipeFinding(at, "`baseline: critic` needs `train.critic`", "such as `critic: {}`")
        return
    if spec.share and spec.source != "policy":
        yield RecipeFinding(
            ("train", "critic", "share"),
            f"a head on the policy's hidden state is no copy of `{spec.source}`",
            "leave `from` or `share` out",
        )
    # of `train.epochs` the steps are known with the rows (`arithmetic.plan`)
    if recipe.train.steps and (spec.warmup_steps or 0) >= recipe.train.steps:
        yield RecipeFinding(
            ("train", "critic", "warmup_steps"), never_moves(spec, recipe.train.steps), "lower `warmup_steps`"
        )
