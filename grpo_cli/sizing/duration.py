"""Seconds of a step on a card: its decode steps, and the arithmetic of its update.

A decode step reads weights and cache at the card's bandwidth, multiplies, and waits for its launches; fitted to one H100's rollouts
at 135M (64 to 1,024 samples: 0.28 0.35 0.44 0.60 0.94 s, where this gives 0.29 0.33 0.42 0.63 1.05). Rows that find no room in the
cache wait for a next round. The update's matrix products reach a share of the card's that grows with the width of the model (both
points are one H200's), its attention a share of its own. See `docs/benchmarks/speed.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

from grpo_cli.recipe.arithmetic import evaluations
from grpo_cli.sizing.work import HALF, NF4, Work, in_4bit, pass_bytes, trained

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
ATTENDS, ATTENDS_ALONE = (0.28, 0.32), (0.44, 0.57)
"""Shares of the card's products that attention reaches with heads of 64 and of more: FlashAttention 2 on one H200, and cuDNN there, which
rows alone take (`docs/benchmarks/memory.md`); on cards of other kinds the first is a guess, and taken for both."""
ATTENTION_PASSES = 3.5
"""Forward passes that attention's forward and backward come to: its backward makes the scores again."""
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


def duration(work: Work, cache_rows: int, held_out: int = 0, cost: StepCost | None = None) -> Duration:
    """Seconds of a step with so many rows of cache, and of the run with `held_out` rows to evaluate; by what was measured on such a
    card, where it was."""
    generate, update = generate_seconds(work, cache_rows), update_seconds(work)
    if cost is not None:
        generate, update = cost.generate, cost.update * work.learned * update_passes(work)
    evaluating = sum(
        times * generate_seconds(work, cache_rows, rows)
        for rows, times in evaluations(work.recipe, work.plan.steps, held_out).items()
    )
    step = generate + update + FIXED
    captures = CAPTURES if work.is_captured else 0.0
    run = START + captures + work.plan.steps * step + evaluating
    error = ERROR if work.card.name in MEASURED or cost is not None else UNMEASURED_ERROR
    return Duration(generate, update, FIXED, run, error)


def generate_seconds(work: Work, cache_rows: int, rows: float | None = None) -> float:
    """Seconds of a rollout: prompts once, then tokens until the longest completion of the last round ends."""
    rows = work.rows if rows is None else rows
    if rows == 0:
        return 0.0
    lengths, sizes, card = work.lengths, work.sizes, work.card
    steps = lengths.longest + (ceil(rows / (cache_rows or rows)) - 1) * lengths.completion
    busy = rows * lengths.completion / steps  # rows that end are closed or refilled
    multiplies = card.tflops * 1e12 * DECODES
    prefill = 2 * sizes.body_parameters * rows / work.recipe.sample.group * lengths.prompt / multiplies
    read = card.bandwidth * 1e12 * READS
    products = 2 * (sizes.body_parameters + sizes.head_parameters) * busy / multiplies
    weights = (sizes.body_parameters + sizes.head_parameters) * HALF / read
    # of 4 bits they are written in half precision first
    unpacking = sizes.body_parameters * (NF4 + HALF) / read if in_4bit(work.recipe.model) else 0.0
    cache = busy * (lengths.prompt + lengths.completion / 2) * sizes.kv_values_token * HALF / read
    sampling = busy * sizes.vocab * 4 * PASSES / read
    launch = LAUNCH if trained(work.recipe, sizes).rank is None else ADAPTED_LAUNCH
    return prefill + steps * (launch * sizes.layers + unpacking + max(weights, products) + cache + sampling)


def update_seconds(work: Work) -> float:
    """Seconds of a step's passes: forward and backward, and those of old log-probs and of the reference where they are made."""
    own, sizes, lengths = trained(work.recipe, work.sizes), work.sizes, work.lengths
    rows = work.rows * work.learned
    prompts = work.prompts if work.is_packed else rows
    tokens = prompts * lengths.prompt + rows * lengths.completion
    again = not work.keeps_logits(pass_bytes(work)["activations"])
    head = 2 * sizes.head_parameters * rows * lengths.completion * (_forwards(own.rank, "no") + again)
    recompute = work.recipe.train.recomputes
    body = 2 * sizes.body_parameters * tokens * _forwards(own.rank, recompute)
    attention = 2 * sizes.layers * sizes.attention_width * rows * (lengths.prompt + lengths.completion) ** 2
    attention *= ATTENTION_PASSES + (recompute == "full")
    slower = (1.0 if own.is_half else WIDER) * (1.0 if own.rank is None else ADAPTED)
    peak = work.card.tflops * 1e12
    attends = (ATTENDS_ALONE if work.is_alone and work.card.name in MEASURED else ATTENDS)[sizes.head_dim > 64]
    found = slower * (body + head) / (peak * share(sizes.hidden)) + attention / (peak * attends)
    if in_4bit(work.recipe.model):  # each pass unpacks the matrices again
        unpacked = rows / work.micro * (2 + (recompute != "no")) * sizes.body_parameters * (NF4 + 2 * HALF)
        found += unpacked / (work.card.bandwidth * 1e12 * READS)
    return update_passes(work) * found


def update_passes(work: Work) -> float:
    """Everything a step computes with gradients or without, in forward and backward passes over its rows."""
    train = work.recipe.train
    alone = (1 if train.updates > 1 else 0) + (1 if train.kl.beta > 0 else 0)
    critic = 2.0 if train.critic is not None and not train.critic.share else 1.0
    rank = trained(work.recipe, work.sizes).rank
    return critic * (train.inner_epochs + alone / _forwards(rank, train.recomputes))


def _forwards(rank: int | None, recompute: str) -> float:
    """A forward and backward pass in forward passes; frozen weights have no gradient of their own."""
    return 1 + (2.0 if rank is None else 1.05) + (recompute != "no")


def share(width: int) -> float:
    """Share of a card's products that an update of a model of this width reaches: between the points by its logarithm."""
    (low, least), (high, most) = SHARES
    if width <= low:
        return least * width / low
    return min(most, least + (most - least) * log(width / low) / log(high / low))
