"""The peak of a step's memory on a GPU: what is held, the cache, and one forward and backward pass.

What a pass keeps for its gradients is counted layer by layer as the packed update runs (`train/packed`, `rollout/fused/update`),
for blocks of Llama's kind: norms keep their input, projections theirs, attention its own, a gated MLP both of its halves. In
numbers of a token and layer, with width d, query width q, key width k, MLP width f:

    all weights trained   4 d + 2 q + 2 k + 3 f
    adapters              7 d + 3 q + 2 k + 3 f: each projection's own copy of its input, and of frozen weights none

Measured on one H200 (bf16, 32 x 8 x 256, micro-batches of 64 and 16): 13.2 GiB at 135M where this says 13.0, and 41.3 at 7B with
adapters where it says 41.3. What a block of another kind keeps is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_cli.sizing.state import HALF, held, trained
from grpo_cli.sizing.work import Work

GIB = 1 << 30
CACHE_SHARE = 0.6
"""Of the free memory, at most this much becomes cache (`rollout/graph/memory`)."""
KEPT_LOGITS = 3 << 30
"""Bytes of logits up to which the packed update keeps them (`train/packed/head`)."""
STRETCH = (1 << 27) * HALF
"""Bytes of logits it makes at once beyond that."""
PADDED_LOGITS = 2
"""Times that the logits of a padded pass lie in memory: themselves and their gradient."""
OUTSIDE = 0.7 * GIB
"""What the driver takes beside torch: context and kernels."""
KEPT = 0.5
"""Share of a pass that captured graphs and the allocator hold beside all that is counted: reserved by torch were 39.4 GiB at 1.5B
where this says 43.8, 33.4 with uneven lengths (33.5), 16.0 at 135M (17.9), 36.1 at 7B with adapters (40.3)."""
ERROR = 0.15
"""Half the width of the interval said, as a share: predictions against measurement on one H200."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one card by what they are; `pool` is what captured graphs keep beside them."""

    parts: dict[str, float]
    pool: float
    cache_rows: int

    @property
    def peak(self) -> float:
        """All that is held at once. torch counts less, `memory/peak_gib` of a run, where a graph was captured before the optimizer
        had its state: what a graph works in counts while it is captured only."""
        return sum(self.parts.values())

    @property
    def needed(self) -> float:
        """What a card must have, the driver's part too; captured graphs are given up where they do not fit."""
        return self.peak + OUTSIDE

    @property
    def wanted(self) -> float:
        """What it takes with its graphs."""
        return self.needed + self.pool


def memory(work: Work, card_bytes: float, measured: int | None = None) -> Memory:
    """The peak of a step on a card of `card_bytes`; `measured` are the bytes of a pass, where one was made."""
    found = held(work.recipe, work.sizes, work.world)
    free = max(0.0, card_bytes - OUTSIDE - sum(found.values()))
    rows = 0
    if work.recipe.sample.engine_kind.through_trl:
        vllm = work.recipe.sample.vllm
        if vllm.get("mode", "colocate") == "colocate":
            found["vLLM's share"] = card_bytes * float(vllm.get("gpu_memory_utilization", 0.3))
    else:
        rows = work.cache_rows(free * CACHE_SHARE)
        found["cache of a rollout"] = rows * work.row_bytes
    own = pass_bytes(work, work.micro) if measured is None else {"a pass, measured here": float(measured)}
    return Memory(found | own, KEPT * sum(own.values()) if work.is_packed else 0.0, rows)


def pass_bytes(work: Work, micro: int) -> dict[str, float]:
    """Bytes of one forward and backward pass over `micro` full-length completions."""
    sizes, own = work.sizes, trained(work.recipe.model, work.sizes)
    tokens = work.pass_tokens(micro)
    layer = layer_bytes(work, micro) * tokens
    layers = sizes.layers * layer
    if work.recomputes:
        layers = sizes.layers * tokens * sizes.hidden * HALF + layer
    found = {"activations": layers, "logits": logits_bytes(work, micro)}
    if not own.is_half:
        found["weights cast for a pass"] = (sizes.body_parameters + sizes.head_parameters) * HALF
    if own.rank is None:  # of embeddings and head, made whole before they are added to what is there
        found["gradients under way"] = 2 * sizes.head_parameters * own.width
    return found


def layer_bytes(work: Work, micro: int) -> float:
    """What one token leaves of one layer for the backward pass."""
    sizes, own = work.sizes, trained(work.recipe.model, work.sizes)
    d, q, k, f = sizes.hidden, sizes.attention_width, sizes.kv_width, sizes.intermediate
    keys = 1.0
    if work.is_packed:  # a prompt's keys stand beside those of each of its completions
        keys = micro * (work.lengths.longest_prompt + work.recipe.sample.max_tokens) / work.pass_tokens(micro)
    numbers = 2 * q + 2 * k * keys
    numbers += (4 * d + 3 * f) if own.rank is None else (2 * d + (5 * d + q + f) + 2 * f)
    wider = 0 if own.is_half else 2 * d  # the stream between layers is float32, and its norms keep it
    softmax = 4 * sizes.heads
    return (numbers + wider) * HALF + softmax


def logits_bytes(work: Work, micro: int) -> float:
    """What the head takes of one pass."""
    whole: float = micro * work.recipe.sample.max_tokens * work.sizes.vocab * HALF
    if not work.is_packed:
        return whole * PADDED_LOGITS
    whole *= 1.02
    return whole if whole <= KEPT_LOGITS else STRETCH


def micro_that_fits(work: Work, card_bytes: float) -> int | None:
    """The largest micro-batch below the recipe's whose peak the card can hold; None where not even one completion fits."""
    base = memory(work, card_bytes)
    rest = base.needed - sum(pass_bytes(work, work.micro).values())
    sizes = (size for size in range(work.micro - 1, 0, -1) if work.rows % size == 0)
    return next((n for n in sizes if rest + sum(pass_bytes(work, n).values()) <= card_bytes), None)
