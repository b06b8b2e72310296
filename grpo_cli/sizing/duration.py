"""Seconds of a step on a card: its decode steps, and the arithmetic of its update.

A decode step reads weights and cache at the card's bandwidth, multiplies, and waits for its launches; fitted to one H100's rollouts
at 135M (64 to 1,024 samples: 0.28 0.35 0.44 0.60 0.94 s, where this gives 0.29 0.33 0.42 0.63 1.05). The update reaches a share of
the card's products that grows with the width of the model; both points are one H200's. See `docs/benchmarks/speed.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from grpo_cli.recipe.arithmetic import evaluations
from grpo_cli.sizing.cards import Gpu
from grpo_cli.sizing.work import HALF, Work, trained

LAUNCH = 28e-6
"""Fixed seconds of a layer in a decode step."""
READS = 0.75
"""Share of the bandwidth that a decode step reaches."""
DECODES = 0.6
"""Share of the peak FLOP/s that a decode step reaches."""
PASSES = 12
"""Times that sampling reads or writes the logits of a row, in float32."""
SHARES = ((576, 0.25), (1536, 0.52))
"""Width of a model -> share of the card's bfloat16 products while it is busy, measured at 135M and at 1.5B."""
ADAPTED, ADAPTED_LAUNCH = 1.35, 150e-6
"""Under adapters: time of the update over that of its arithmetic, and seconds of a layer in a decode step; both from one
measured step at 7B (8.33 s)."""
FIXED = 0.13
"""Seconds of a step in which the GPU is idle: decoding to text, judging, preparing tensors, launches of the
optimizer."""
WIDER = 1.15
"""Update of float32 weights under an autocast over one in bfloat16; 0.92 against 0.81 s at 135M."""
START = 60.0
"""Seconds until the first step: loading, self-checks."""
CAPTURES = 4.0
"""Seconds that graphs of a few lengths take, once a run: 0.7 to 1.4 s each on one H200, whatever the model."""
MEASURED = ("H100", "H200")
ERROR, UNMEASURED_ERROR = 0.3, 0.6
"""Half the width of the interval given, as a share: on cards that the shares were measured on, and on others."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """What was measured of a step on this machine: seconds of its rollout, and of one forward and backward pass over all of its
    rows; bytes that a pass of a full-length micro-batch takes in addition to gradients; tokens of a completion in the mean."""

    generate: float
    update: float
    pass_bytes: int | None
    completion: float


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of a step, and of the whole run with its evaluations."""

    generate: float
    update: float
    other: float
    run: float
    error: float

    @property
    def step(self) -> float:
        """All of a step."""
        return self.generate + self.update + self.other


def duration(work: Work, card: Gpu, cache_rows: int, held_out: int = 0, cost: StepCost | None = None) -> Duration:
    """Seconds of a step on `card` with so many rows of cache, and of the run with `held_out` rows to evaluate; by what was
    measured on such a card, where it was."""
    generate, update = generate_seconds(work, card, cache_rows), update_seconds(work, card)
    if cost is not None:
        generate, update = cost.generate, cost.update * work.learned * update_passes(work)
    evaluating = sum(
        times * generate_seconds(work, card, cache_rows, rows)
        for rows, times in evaluations(work.recipe, work.plan.steps, held_out).items()
    )
    step = generate + update + FIXED
    captures = CAPTURES if work.is_packed else 0.0
    run = START + captures + work.plan.steps * step + evaluating
    error = ERROR if card.name in MEASURED or cost is not None else UNMEASURED_ERROR
    return Duration(generate, update, FIXED, run, error)


def generate_seconds(work: Work, card: Gpu, cache_rows: int, rows: float | None = None) -> float:
    """Seconds of a rollout: prompts once, then tokens until the longest completion ends."""
    rows = work.rows if rows is None else rows
    if rows == 0:
        return 0.0
    lengths, at_once = work.lengths, min(rows, max(1, cache_rows) if cache_rows else rows)
    rounds = rows / at_once
    busy = at_once * lengths.completion / lengths.longest  # rows that end are removed or refilled
    steps = lengths.longest + (rounds - 1) * lengths.completion
    prompts = rows / work.recipe.sample.group * lengths.prompt
    prefill = 2 * work.sizes.body_parameters * prompts / (card.tflops * 1e12 * DECODES)
    sizes = work.sizes
    read = card.bandwidth * 1e12 * READS
    weights = sizes.body_parameters + sizes.head_parameters
    columns = work.lengths.prompt + work.lengths.completion / 2
    products = 2 * weights * busy / (card.tflops * 1e12 * DECODES)
    cache = busy * columns * sizes.kv_values_token * HALF / read
    sampling = busy * sizes.vocab * 4 * PASSES / read
    launch = LAUNCH if trained(work.recipe.model, sizes).rank is None else ADAPTED_LAUNCH
    return prefill + steps * (launch * sizes.layers + max(weights * HALF / read, products) + cache + sampling)


def update_seconds(work: Work, card: Gpu) -> float:
    """Seconds of a step's passes: forward and backward, and those of old log-probs and of the reference where they are made."""
    own = trained(work.recipe.model, work.sizes)
    rate = card.tflops * 1e12 * share(work.sizes.hidden)
    slower = (1.0 if own.is_half else WIDER) * (1.0 if own.rank is None else ADAPTED)
    sizes, lengths = work.sizes, work.lengths
    rows = work.rows * work.learned
    prompts = work.prompts if work.is_packed else rows
    tokens = prompts * lengths.prompt + rows * lengths.completion
    row = lengths.prompt + lengths.completion
    attention = 4 * sizes.layers * sizes.attention_width * rows * row * row / 2
    return (
        update_passes(work)
        * _forwards(work)
        * slower
        * (2 * sizes.body_parameters * tokens + 2 * sizes.head_parameters * rows * lengths.completion + attention)
        / rate
    )


def update_passes(work: Work) -> float:
    """Everything a step computes with gradients or without, in forward and backward passes over its rows."""
    train = work.recipe.train
    alone = (1 if train.updates > 1 else 0) + (1 if train.kl.beta > 0 else 0)
    critic = 2.0 if train.critic is not None and not train.critic.share else 1.0
    return critic * (train.inner_epochs + alone / _forwards(work))


def _forwards(work: Work) -> float:
    """A forward and backward pass in forward passes; frozen weights have no gradient of their own."""
    backward = 2.0 if trained(work.recipe.model, work.sizes).rank is None else 1.05
    return 1 + backward + (1 if work.recomputes else 0)


def share(width: int) -> float:
    """Share of a card's products that an update of a model of this width reaches: between the points by its logarithm."""
    (low, least), (high, most) = SHARES
    if width <= low:
        return least * width / low
    return min(most, least + (most - least) * log(width / low) / log(high / low))
