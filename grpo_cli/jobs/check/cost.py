"""The cost of a run, with the formula of each number. These are bounds, not forecasts: kernels, padding and idle time
are extra.

Every completion counts with `sample.max_tokens`, so tokens are an upper bound; FLOPs are a lower bound.
`check_costs` makes these findings; `Machine` those about processes, packages and the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_cli.distributed.launch import choose_processes, gpu_count, meeting_settings, refuse_stdin
from grpo_cli.errors import Exit, UsageError, UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.prompts import PromptLengths
from grpo_cli.jobs.refusals import Question, questions
from grpo_cli.policy.loading.sizes import ModelSizes, size_hint
from grpo_cli.recipe.arithmetic import BatchPlan, batching, evaluations, refuse_parts
from grpo_cli.recipe.sections.course import splits_parameters
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.checkpoint import REST, check_space
from grpo_cli.rollout.vllm.server import NotUp, find_server
from grpo_cli.sizing.cards import NO_BF16
from grpo_cli.sizing.choose import hint_of
from grpo_cli.sizing.fit import PROMPT, CardQuestion, cards_of, fit, lengths_of, unfit
from grpo_cli.sizing.work import critic_parameters, in_4bit, trained

# The finding of whether the run fits the named GPUs.

LEVELS = {"fits": Level.OK, "without graphs": Level.OK, "tight": Level.NOTE, "does not fit": Level.WARN}


def check_fit(
    recipe: Recipe,
    sizes: ModelSizes | None,
    plan: BatchPlan,
    lengths: PromptLengths | None,
    ask: CardQuestion,
    held_out: int,
) -> CheckFinding:
    """The answer for these cards; `held_out` rows are measured in each evaluation."""
    if sizes is None:
        return CheckFinding(
            "fit", Level.UNKNOWN, "unknown: the sizes of this model are not known here", hint=size_hint(recipe.model)
        )
    if (why := unfit(recipe, sizes)) is not None:
        return CheckFinding("fit", Level.UNKNOWN, f"unknown: {why}")
    most, taken = recipe.sample.max_tokens, tuple[str, ...]()
    counts = lengths.counts if lengths is not None else []
    if not counts:
        counts = [min(PROMPT, max(1, (sizes.context or PROMPT + most) - most))]
        taken = (f"prompts of {counts[0]} tokens are taken: theirs are unknown here",)
    try:
        found = fit(recipe, sizes, plan, lengths_of(counts, most), ask, held_out)
    except UsageError as err:
        return CheckFinding("fit", Level.FAIL, str(err), hint=err.hint, code=Exit.USAGE)
    lines = (*found.lines(), *taken)
    return CheckFinding("fit", LEVELS[found.answer], found.message(), lines, found.as_json(), hint_of(found))


# What `grpo train` would refuse on this machine: processes, packages, the engine, the run folder.


@dataclass
class Machine:
    """Where a recipe would run: on the GPUs that the user names, else on this machine."""

    recipe: Recipe
    ask: CardQuestion | None
    is_stdin: bool = False
    """Whether the recipe came on stdin."""
    processes: int = 1
    """Number of processes of all machines together; known after `findings`."""
    on_gpu: bool = False
    is_refused: bool = False
    """Whether `findings` reported a problem of packages or of the machine."""

    def findings(self) -> Iterator[CheckFinding]:
        """One finding for each reason to refuse the run; empty if there is none."""
        if self.is_elsewhere:
            assert self.ask is not None
            self.on_gpu = True
            with suppress(UserError):  # `fit` says so
                self.processes = cards_of(self.recipe, self.ask.cards)
        else:
            self.on_gpu = gpu_count() > 0
            try:
                nodes, here = choose_processes(self.recipe)
                self.processes = here * nodes.count
                meeting_settings(nodes)
                if self.is_stdin:
                    refuse_stdin(self.processes)
            except UserError as err:
                yield failed("launch", err)
        found = list(refused(questions(self.recipe, self.processes, on_gpu=self.on_gpu)))
        self.is_refused = bool(found)
        yield from found
        if not any(finding.check == "engine" for finding in found):
            sample = self.recipe.sample
            if sample.is_served:
                try:
                    find_server({**sample.vllm, "server_timeout": 0}, lambda waited, most: None)
                except NotUp as err:
                    yield CheckFinding("engine", Level.UNKNOWN, str(err), hint=err.hint)
                except UserError as err:
                    yield failed("engine", err)

    def parts(self, recipe: Recipe, longest: int) -> Iterator[CheckFinding]:
        """Whether a step of the recipe, or of its stage, can be divided among processes and micro-batches; `longest` is
        the longest prompt in tokens."""
        if not recipe.train.runs_grpo:
            return
        try:
            batch = batching(recipe, longest, self.processes, on_gpu=self.on_gpu)
            refuse_parts(recipe, batch, self.processes)
        except UserError as err:
            yield failed("batches", err)

    def trainer(self, recipe: Recipe) -> Iterator[CheckFinding]:
        """Whether TRL's version is supported and accepts the settings of the recipe, or of its stage. Imports TRL,
        which takes seconds."""
        if not recipe.train.runs_grpo or self.is_elsewhere or self.is_refused:
            return  # do not report a missing package a second time
        import torch

        from grpo_cli.train.trl_config import refuse_settings

        try:
            refuse_settings(recipe, self.processes, torch.device("cuda" if self.on_gpu else "cpu"))
        except UserError as err:
            yield failed("trainer", err)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the user asks about GPUs of another machine."""
        return self.ask is not None and not self.ask.cards.is_here


def refused(asked: Iterable[Question]) -> Iterator[CheckFinding]:
    """A finding for each question that raises."""
    for question in asked:
        try:
            question.ask()
        except UserError as err:
            yield failed(question.check, err)


GIB = 1 << 30
WHOLE_COPY = "whole copy of the weights on each process"

SHARED = {
    "fsdp2": "shared out among the processes by",
    "zero3": "shared out among the processes by",
    "zero1": "Adam's shared out among the processes by",
    "zero2": "all but the weights shared out among the processes by",
}


def check_costs(
    recipe: Recipe,
    sizes: ModelSizes | None,
    plan: BatchPlan,
    lengths: PromptLengths | None,
    hint: str,
    ask: CardQuestion | None,
    held_out: int,
) -> Iterator[CheckFinding]:
    """Memory and time; and whether the cards that were asked about will do, where some were. `hint`: who may know the sizes."""
    if ask is not None and ask.cards.card.half != "bfloat16":
        is_emulated = recipe.model.dtype == "bfloat16"
        said = f"a {ask.cards.card.name} has {NO_BF16}"
        fix = "`model.dtype: bfloat16` is emulated there, and slow: leave it out" if is_emulated else ""
        yield CheckFinding("card", Level.WARN if is_emulated else Level.NOTE, said, hint=fix)
    if sizes is None:
        said = "unknown: no `config.json` of this model on this disk"
        yield CheckFinding("memory", Level.UNKNOWN, said, hint=hint or size_hint(recipe.model))
    else:
        yield check_memory(recipe, sizes, plan, lengths)
        if runs_here := ask is None or ask.cards.is_here:
            own = trained(recipe, sizes)
            folder = Path(recipe.run.dir).absolute()
            there = next(place for place in (folder, *folder.parents) if place.exists())
            try:
                check_space(there, 3 * own.parameters * own.width + REST)
            except UserError as err:
                yield failed("run", err)
        yield check_time(recipe, sizes, plan, lengths, held_out, runs_here=runs_here)
    if ask is not None:
        yield check_fit(recipe, sizes, plan, lengths, ask, held_out)


def check_memory(recipe: Recipe, sizes: ModelSizes, plan: BatchPlan, lengths: PromptLengths | None) -> CheckFinding:
    """Weights and optimizer, the KV cache of a step, and the logits of one completion, each with its formula."""
    n, own = sizes.parameters, trained(recipe, sizes)
    state, width = own.optimized, round((own.optimized - own.frozen) / own.parameters, 1)
    kind = "float32" if recipe.model.dtype == "auto" else recipe.model.dtype
    how = f"{n:,} parameters x {width:g} B ({kind} weight, gradient, Adam)"
    if own.rank is not None:
        frozen = f"{n:,} x {own.frozen / n:g} B (frozen)"
        if in_4bit(recipe.model):
            frozen = f"{_gib(own.frozen).strip()} (frozen, layers in 4 bits, embeddings and head in 16)"
        how = f"{frozen} + {own.parameters:,} adapter parameters x {width:g} B"
    prompt = lengths.quantile(0.95) if lengths else 0
    tokens = prompt + recipe.sample.max_tokens
    cache = plan.completions_step * tokens * sizes.kv_values_token * 2
    logits = recipe.sample.max_tokens * sizes.vocab * 4
    strategy = recipe.launch.strategy
    shared = f", {SHARED[strategy]} `{strategy}`" if strategy in SHARED else ""
    lines = (
        f"{_gib(state)}  weights and optimizer = {how}{shared}",
        *([f"{_gib(n * 2)}  {WHOLE_COPY} = {n:,} x 2 B (bfloat16)"] if splits_parameters(strategy) else ()),
        *_critic(recipe, sizes),
        f"{_gib(cache)}  KV cache of a step = {plan.completions_step:,} completions x {tokens:,} tokens"
        f" x {sizes.kv_values_token:,} values x 2 B (bfloat16; twice that on a CPU)",
        f"{_gib(logits)}  logits of one completion = {recipe.sample.max_tokens:,} tokens x {sizes.vocab:,} x 4 B",
    )
    data = {"state_bytes": state, "kv_cache_bytes": cache, "logits_bytes": logits, "parameters": n}
    message = (
        f"at least {_gib(state).strip()} to hold {n / 1e6:,.3g} M parameters ({sizes.source}); activations come on top"
    )
    return CheckFinding("memory", Level.OK, message, lines, data)


def _critic(recipe: Recipe, sizes: ModelSizes) -> list[str]:
    """The memory of a critic: a copy of the policy's layers, or of its adapter, with an optimizer of its own."""
    critic = recipe.train.critic
    if critic is None:
        return []
    counted = critic_parameters(recipe, sizes)
    if counted is None:
        return [f"         —  critic = `{critic.source}`, whose size is not known here"]
    n, width, of = counted
    if critic.share:
        return [f"{_gib(n * width)}  critic = a head of {n:,} parameters x {width} B on the policy's states"]
    return [f"{_gib(n * width)}  critic = {n:,} {of} x {width} B (weight, gradient, Adam)"]


def check_time(
    recipe: Recipe,
    sizes: ModelSizes,
    plan: BatchPlan,
    lengths: PromptLengths | None,
    held_out: int,
    *,
    runs_here: bool = True,
) -> CheckFinding:
    """The arithmetic of all steps and of the evaluations of `held_out` rows; where it `runs_here`, on a machine without a GPU, also the
    least time at its measured matrix product."""
    n = sizes.parameters
    prompt = lengths.mean if lengths else 0.0
    tokens = plan.completions_step * (prompt + recipe.sample.max_tokens)
    passes = {"generate": 2, "update": 6 * recipe.train.inner_epochs}
    if recipe.train.updates > 1:
        passes["old log-probs"] = 2
    if recipe.train.kl.beta > 0:
        passes["reference"] = 2
    counted = evaluations(recipe, plan.steps, held_out)
    drawn = sum(completions * times for completions, times in counted.items())
    longest = recipe.eval.max_tokens or recipe.sample.max_tokens
    evaluated = drawn * (prompt + longest)
    flops = plan.steps * tokens * n * sum(passes.values()) + evaluated * n * passes["generate"]
    parts = " + ".join(f"{count} {name}" for name, count in passes.items())
    lines = [
        f"{plan.steps:,} steps x {tokens:,.0f} tokens x {n:,} parameters x ({parts})",
        "hours = PFLOP / (3.6 x TFLOP/s delivered)",
    ]
    if drawn:
        times = f"{counted.total()} evaluations draw {drawn:,} completions"
        lines.insert(1, f"{times} x {prompt + longest:,.0f} tokens x {n:,} parameters x 2 generate")
    everything = plan.steps * tokens + evaluated
    data: dict[str, float] = {"flops": flops, "tokens": everything, "evaluated_tokens": evaluated}
    size = f"{flops / 1e15:,.3g} PFLOP" if flops >= 1e14 else f"{flops / 1e12:,.3g} TFLOP"
    message = f"at most {everything / 1e6:,.3g} M tokens, {size}"
    rate = None if not runs_here or any(Path("/dev").glob("nvidia[0-9]*")) else _cpu_flops()
    if rate is not None:
        seconds = flops / rate
        data |= {"cpu_flops": rate, "cpu_seconds": seconds}
        span = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
        message += f"; {f'{seconds:.0f} s' if seconds < 90 else span} of arithmetic on one core here"
        lines.append(
            f"one core multiplies matrices at {rate / 1e9:,.3g} GFLOP/s (measured now); small models reach far less"
        )
    return CheckFinding("time", Level.OK, message, tuple(lines), data)


def _cpu_flops(side: int = 384, seconds: float = 0.05) -> float | None:
    """FLOPs per CPU-second of a float32 matrix product, in the best of several rounds."""
    try:
        import numpy as np
    except ImportError:
        return None
    a = np.ones((side, side), np.float32)
    a @ a
    best, end = float("inf"), time.process_time() + seconds
    while time.process_time() < end:
        began = time.process_time()
        for _ in range(5):  # the clock is too coarse for one
            a @ a
        best = min(best, (time.process_time() - began) / 5)
    return 2 * side**3 / best if best > 0 else None


def _gib(count: float) -> str:
    return f"{count / GIB:6.3g} GiB" if count >= GIB / 10 else f"{count / (1 << 20):6.3g} MiB"
