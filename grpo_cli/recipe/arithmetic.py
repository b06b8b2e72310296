"""The arithmetic of a recipe before a run: steps, epochs and evaluations, micro-batches, and weights too coarse for the
learning rate.

How this works: `plan` divides the training rows into steps; rows that do not fill one are dropped each epoch. `unreached`
lists bounds that a run with this many steps never reaches. `batching` divides the completions of one process into
micro-batches that have one size, as TRL wants them. `stuck_weights` compares the rate with the spacing of the numbers
that hold the weights.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from grpo_cli.errors import DataError, RecipeError
from grpo_cli.recipe.checking.method import check_rows, never_moves
from grpo_cli.recipe.sections.course import KlMonitor
from grpo_cli.recipe.sections.method import whole_only
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_verifiers.shaping import TERMS

GPU_TOKENS_A_FORWARD = 32_768
"""Prompt and completion tokens of one micro-batch where the recipe leaves it open."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The amounts of a run: per step, and in total."""

    rows: int
    prompts_step: int
    group: int
    completions_step: int
    tokens_step: int
    """Most completion tokens a step can take."""
    steps: int
    updates: int
    """Optimizer steps: each step's completions serve `inner_epochs` x `mini_batches` of them."""
    steps_epoch: int
    rows_dropped: int
    """Rows of an epoch that fill no step."""
    epochs: float
    draws: bool = True
    """Whether a step draws samples of these rows; where pairs or demonstrations are there already, none does."""

    def text(self) -> str:
        """The sum in two lines."""
        if not self.draws:
            return f"{self.steps:,} steps, nothing is drawn\n{self.rows:,} rows"
        step = (
            f"{self.prompts_step} prompts x {self.group} = {self.completions_step:,} completions a step"
            f" (at most {self.tokens_step:,} tokens)"
        )
        epoch = f"{self.rows:,} rows = {self.steps_epoch:,} steps an epoch"
        if self.rows_dropped:
            epoch += f", {self.rows_dropped:,} left over"
        updates = f" with {self.updates:,} optimizer steps" if self.updates != self.steps else ""
        return f"{step}\n{epoch}; {self.steps:,} steps{updates} = {self.epochs:.3g} epochs"


def plan(recipe: Recipe, n_rows: int) -> BatchPlan:
    """The arithmetic of a recipe over `n_rows` training rows.

    Raises:
        DataError: the rows do not fill one step that draws of them, so nothing would be trained; too few for `select: ads`; or
            a critic that learns alone in all of the steps.
    """
    sample, train = recipe.sample, recipe.train
    steps_epoch, dropped = divmod(n_rows, sample.prompts)
    from_file = recipe.prefer is not None and recipe.prefer.data is not None
    draws = recipe.train.method != "sft" and not from_file
    if not draws:
        steps_epoch = max(1, steps_epoch)
    if steps_epoch == 0 or not n_rows:
        raise DataError(
            f"{n_rows:,} training rows do not fill one step of {sample.prompts} prompts: 0 steps would run",
            hint=f"lower `sample.prompts` to {n_rows} or fewer, or give more rows" if n_rows else "give some rows",
        )
    check_rows(recipe, n_rows)
    completions = sample.prompts * sample.group
    steps = train.steps if train.epochs is None else math.ceil(train.epochs * steps_epoch)
    if train.critic is not None and (train.critic.warmup_steps or 0) >= steps:
        raise DataError(never_moves(train.critic, steps), hint="lower `train.critic.warmup_steps`")
    return BatchPlan(
        rows=n_rows,
        prompts_step=sample.prompts,
        group=sample.group,
        completions_step=completions,
        tokens_step=completions * sample.max_tokens,
        steps=steps,
        updates=steps * train.updates,
        steps_epoch=steps_epoch,
        rows_dropped=dropped,
        epochs=steps / steps_epoch,
        draws=draws,
    )


def evaluations(recipe: Recipe, steps: int, held_out: int) -> Counter[int]:
    """Completions of an evaluation of so many held-out rows -> how many evaluations of a run draw as many."""
    spec, stop = recipe.eval, recipe.stop
    if not held_out:
        return Counter()
    sampled = min(held_out, spec.limit or held_out)
    whole = sampled * spec.samples + (held_out if spec.greedy else 0)
    # who compares evaluations needs them over the same rows
    compares = stop.patience is not None or recipe.monitor.gold is not None
    few = whole if spec.between is None or compares else min(sampled, spec.between) * spec.samples
    found = Counter({whole: 2})
    found[few] += (steps - 1) // spec.every if spec.every else 0
    return found


def with_steps(recipe: Recipe, n_rows: int) -> Recipe:
    """The recipe with as many `train.steps` as its `train.epochs` take over `n_rows` training rows.

    Raises:
        DataError: as `plan`.
    """
    train = recipe.train.model_copy(update={"steps": plan(recipe, n_rows).steps})
    return recipe.model_copy(update={"train": train})


def unreached(recipe: Recipe, steps: int, context: int | None) -> list[str]:
    """Lengths of a recipe that contradict each other: what would not happen, or only in part, in a run of `steps` steps of a
    model that takes `context` tokens; each in a sentence."""
    train, ev, run = recipe.train, recipe.eval, f"the run's {steps:,} steps"
    said: list[str] = []
    rise = (train.lr_warmup_steps or 0) * train.updates
    if train.runs_grpo and train.lr_warmup_steps and rise >= steps * train.updates:
        share = (steps * train.updates - 1) / rise
        said.append(
            f"`train.lr_warmup_steps: {train.lr_warmup_steps}` is not less than {run}: the rate rises to {share:.0%} of"
            " `train.lr` and no further"
        )
    for name, phases in (("warmup", recipe.warmup), ("sft", recipe.sft)):
        said += [
            f"`{name}[{i}].lr_warmup_steps: {phase.lr_warmup_steps}` is more than its {phase.steps} steps: the rate rises to"
            f" {phase.steps / phase.lr_warmup_steps:.0%} of its `lr`"
            for i, phase in enumerate(phases or ())
            if phase.lr_warmup_steps > phase.steps
        ]
    never = [
        ("eval.every", ev.every, "nothing is measured between the first and the last"),
        ("run.save_every", recipe.run.save_every, "only the last is saved"),
        ("stop.patience", recipe.stop.patience, "it never stops the run"),
        ("train.ads.reset", train.ads.reset if train.ads else None, "the windows never go back"),
    ]
    kl, canary = recipe.monitor.kl, recipe.monitor.canary
    if isinstance(kl, KlMonitor) and kl != KlMonitor():
        never.append(("monitor.kl.every", kl.every, "the KL is never measured"))
    if canary is not None and canary.every != type(canary).model_fields["every"].default:
        never.append(("monitor.canary.every", canary.every, "it is asked before and after only"))
    said += [f"`{key}: {n}` is more than {run}: {what}" for key, n, what in never if n is not None and n > steps]
    if ev.every is not None and ev.between is not None and ev.limit is not None and ev.between >= ev.limit:
        said.append(
            f"`eval.between: {ev.between}` is not less than `eval.limit: {ev.limit}`: all evaluations are alike"
        )
    # bounds in tokens that nothing can reach
    most, prompts = recipe.sample.max_tokens, recipe.data.max_prompt_tokens
    if prompts is not None and context is not None and most < context < prompts + most:
        said.append(
            f"`data.max_prompt_tokens: {prompts}` is more than a context of {context:,} leaves beside `sample.max_tokens:"
            f" {most}`: prompts above {context - most:,} are left out"
        )
    for name, term in recipe.shaping.items():
        options: Any = TERMS[name].options(**term.options)
        start = options.target if name == "length" else 0
        if name == "overlong" and options.max_tokens is not None:
            start = (1 - options.cache) * options.max_tokens
        if start >= most:
            said.append(f"`shaping.{name}` begins at {start:g} tokens and `sample.max_tokens` is {most}: it never acts")
    return said


@dataclass(frozen=True, slots=True)
class Batching:
    """Completions a forward pass, forward passes an optimizer step, and the mini-batches that a batch is used up in."""

    micro: int
    accumulate: int
    parts: int = 1


def batching(recipe: Recipe, longest_prompt: int, world: int = 1, *, on_gpu: bool = False) -> Batching:
    """The micro-batch: the recipe's, else everything at once on a CPU, else what fits a token budget on a GPU.

    Raises:
        RecipeError: the completions of a process do not divide into the mini-batches and micro-batches of the recipe.
    """
    own, parts = recipe.sample.prompts * recipe.sample.group // world, recipe.train.mini_batches
    micro = recipe.sample.micro_batch
    if parts > 1 and own % (parts * (micro or 1)):
        raise RecipeError(
            f"{own} completions on each of {world} processes do not divide into {parts} mini-batches"
            + (f" of micro-batches of {micro}" if micro else ""),
            hint="change `train.mini_batches`, `sample.micro_batch`, `sample.prompts` or `sample.group`",
        )
    total = own // parts
    if micro is None:
        most = total
        if on_gpu:
            most = max(1, GPU_TOKENS_A_FORWARD // (longest_prompt + recipe.sample.max_tokens))
        # a divisor: TRL splits a batch into micro-batches of one size
        micro = max(size for size in range(1, total + 1) if total % size == 0 and size <= most)
    return Batching(micro, total // micro, parts)


def refuse_parts(recipe: Recipe, batch: Batching, world: int) -> None:
    """Refuse terms that are exact only over a whole step if the step is split.

    Raises:
        RecipeError: a term that would change.
    """
    for name in whole_only(recipe.train.trl):
        if batch.accumulate > 1 or (world > 1 and recipe.train.trl.get("entropy_coef")):
            raise RecipeError(
                f"`train.trl.{name}` is taken over one micro-batch at a time, and a step is {batch.accumulate} of them on"
                f" each of {world} processes: it would train on something else than one",
                hint=f"leave `{name}` out, or run in one process with `sample.micro_batch` as large as a step",
            )


BITS = {"bfloat16": 8, "float16": 11}
"""Of the significand, the implied one included: a number's neighbours are its size times 2^(1 - bits) away, or half that."""
SPREAD = 0.02
"""Standard deviation that weights are taken to have: what most models start their matrices with."""
FEW = 0.5
STUCK_HINT = (
    "leave `model.dtype` out (weights in float32, products in bfloat16 where that pays), train adapters (`model.lora`),"
    " or raise `train.lr`"
)


def moving_share(dtype: str, rate: float) -> float:
    """About how many of the weights a step of Adam can move, which changes each by about the rate; 1 where bits suffice."""
    if dtype not in BITS:
        return 1.0
    largest = rate * 2 ** (BITS[dtype] + 1)
    return math.erf(largest / (SPREAD * math.sqrt(2)))


def stuck_weights(recipe: Recipe, *, adapter: bool) -> str | None:
    """What to say where most weights cannot move; None where they can, or only an adapter is trained."""
    if adapter or recipe.model.lora is not None:
        return None
    dtype, rate = recipe.model.dtype, recipe.train.lr
    share = moving_share(dtype, rate)
    if share >= FEW:
        return None
    return (
        f"weights in {dtype} and a rate of {rate:g}: a step moves about {share:.0%} of them, the rest is rounded back"
        f" (a weight must be smaller than {rate * 2 ** (BITS[dtype] + 1):.1g})"
    )
