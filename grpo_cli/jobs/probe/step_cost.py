"""A training step's parts, measured on this machine: one rollout, one forward and backward pass. No weight is changed."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_cli.errors import SetupError
from grpo_cli.jobs.workplace import Workplace
from grpo_cli.policy.modes import causal_model
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.fused.update import update_patches
from grpo_cli.sizing.duration import StepCost
from grpo_cli.sizing.work import Work
from grpo_cli.train.packed.layout import plan, shape_for
from grpo_cli.train.packed.score import ScoreNumerics, score
from grpo_cli.train.packed.self_check import unfit

TIMES = 2
"""Rollouts and passes; the first of each builds kernels and captures graphs, the last is timed."""


@dataclass(frozen=True)
class Sampled:
    """A rollout: prompts and their completions, in order."""

    prompts: list[list[int]]
    completions: list[list[Completion]]


def why_unmeasured(place: Workplace, work: Work) -> str | None:
    """Why no step can be measured here; None where one can."""
    if place.recipe.environment is not None:
        return "a step of episodes is not measured"
    if not work.is_packed:
        return "only the packed update of one process is measured"
    return unfit(place.policy.model, _numerics(place))


def measure_step(place: Workplace, work: Work) -> StepCost:
    """Seconds of a step's rollout and update, and the bytes of its pass at full length.

    Args:
        place: its policy loaded as for training.
        work: what a step is made of.

    Raises:
        SetupError: memory is short, or the model cannot be packed.
    """
    try:
        sampled, generate = _rollout(place, work)
        place.engine.release()
        _, peak = _passed(place, _full(work, len(sampled.prompts[0])))
        micro = [
            (prompt, completion.token_ids)
            for prompt, group in zip(sampled.prompts, sampled.completions, strict=True)
            for completion in group
        ][: work.micro]
        seconds, _ = _passed(place, micro)
    except torch.OutOfMemoryError as err:
        raise SetupError("a step was tried here, and its memory is not there", hint="see the sum below") from err
    lengths = [len(completion.token_ids) for group in sampled.completions for completion in group]
    return StepCost(generate, seconds * work.rows / work.micro, peak, sum(lengths) / len(lengths))


def _rollout(place: Workplace, work: Work) -> tuple[Sampled, float]:
    rows = place.train.rows
    chosen = random.Random(place.recipe.train.seed).choices(rows, k=max(1, round(work.prompts)))
    prompts = [place.policy.encode(row) for row in chosen]
    requests = [Request(prompt, place.recipe.sample.group) for prompt in prompts]
    settings = SamplingSettings.of(place.recipe.sample, place.recipe.train.seed)
    for _ in range(TIMES):
        began = _now()
        completions = place.engine.generate(requests, settings)
        seconds = _now() - began
    return Sampled(prompts, completions), seconds


def _full(work: Work, prompt: int) -> list[tuple[list[int], list[int]]]:
    """A micro-batch of full-length completions; which tokens does not matter."""
    longest = work.recipe.sample.max_tokens
    ids = [7 + i % 64 for i in range(max(prompt, longest))]
    groups = range(work.micro)
    return [([8 + row // work.recipe.sample.group, *ids[: prompt - 1]], ids[:longest]) for row in groups]


def _passed(place: Workplace, rows: list[tuple[list[int], list[int]]]) -> tuple[float, int | None]:
    """Seconds of a forward and backward pass, and the bytes it takes at most; None on a CPU."""
    policy = place.policy
    base, device, on_cuda = causal_model(policy.model), policy.device, policy.device.type == "cuda"
    laid = plan(*_padded(rows))
    if laid is None:
        raise SetupError("the rows of a step cannot be packed here")
    numerics, shape = _numerics(place), shape_for(laid.need)
    patches = update_patches(policy.model, policy.autocast) if on_cuda else []
    seconds, before = 0.0, 0
    for _ in range(TIMES):
        policy.model.zero_grad(set_to_none=True)
        if on_cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        began = _now()
        with patched(patches), torch.enable_grad():
            logps, _ = score(base, laid.fill(shape, device), numerics)
            torch.autograd.backward(logps.sum())
        seconds = _now() - began
    peak = None
    if on_cuda:  # gradients are counted with what is held
        grads = sum(p.grad.nbytes for p in policy.model.parameters() if p.grad is not None)
        peak = torch.cuda.max_memory_allocated() - before - grads
    policy.model.zero_grad(set_to_none=True)
    return seconds, peak


def _padded(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, int]:
    """[B, S] ids and mask, prompts padded on the left and completions on the right, and the width of the latter."""
    lead, keep = max(len(p) for p, _ in rows), max(len(c) for _, c in rows)
    ids = [[0] * (lead - len(p)) + p + c + [0] * (keep - len(c)) for p, c in rows]
    mask = [[0] * (lead - len(p)) + [1] * (len(p) + len(c)) + [0] * (keep - len(c)) for p, c in rows]
    return torch.tensor(ids), torch.tensor(mask), keep


def _numerics(place: Workplace) -> ScoreNumerics:
    return ScoreNumerics(place.policy.autocast, place.recipe.sample.temperature, False)


def _now() -> float:
    """Seconds, once the device is idle."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
