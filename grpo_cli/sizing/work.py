"""What one process works on in a step: rows, tokens, micro-batches, and by which code the update runs; and what it
holds in bytes: between two steps weights, gradients, optimizer and copies, during a pass what its gradients need.

How this works: a `Work` joins the recipe, the model's sizes, the batch plan, the lengths of texts and the card; its properties
return what one of `world` processes has to do. `trained` and `held` count the bytes that stay, `pass_bytes` those of a forward and
backward pass. `fit.py` adds them up, `duration.py` turns the work into seconds; nothing here looks at the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from grpo_cli.policy.loading.adapter import saved_rank
from grpo_cli.policy.loading.sizes import ModelSizes, local_sizes
from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD, BatchPlan
from grpo_cli.recipe.sections.course import keeps_whole, splits_parameters
from grpo_cli.recipe.sections.recipe import Model, Recipe
from grpo_cli.sizing.cards import Gpu

MOST_ROWS = 1024
"""Completions that decode at once on a GPU (`rollout/make`)."""
COLUMNS = 64
"""Columns of the cache come in multiples of this."""
SLACK = 1.02
"""Mean size of a captured pass over what its rows need: shapes come in steps of a 32nd."""


@dataclass(frozen=True, slots=True)
class TokenLengths:
    """Tokens: of prompts in the mean and at most, of completions in the mean and at most."""

    prompt: float
    longest_prompt: int
    completion: float
    longest: int


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one of `world` processes, each with a card of the kind."""

    recipe: Recipe
    sizes: ModelSizes
    plan: BatchPlan
    lengths: TokenLengths
    card: Gpu
    world: int = 1

    def with_sample(self, **keys: Any) -> Work:
        """The same with other values in the section `sample`."""
        sample = self.recipe.sample.model_copy(update=keys)
        return replace(self, recipe=self.recipe.model_copy(update={"sample": sample}))

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return max(1, self.plan.completions_step // self.world)

    @property
    def prompts(self) -> float:
        """Prompts of a step."""
        return self.rows / self.recipe.sample.group

    @property
    def micro(self) -> int:
        """Completions of a forward and backward pass."""
        if self.recipe.sample.micro_batch is not None:
            return min(self.recipe.sample.micro_batch, self.rows)
        total = max(1, self.rows // self.recipe.train.mini_batches)
        most = max(1, GPU_TOKENS_A_FORWARD // (self.lengths.longest_prompt + self.recipe.sample.max_tokens))
        return max(size for size in range(1, total + 1) if total % size == 0 and size <= most)

    @property
    def learned(self) -> float:
        """Share of the completions that the update goes through."""
        prune = self.recipe.train.prune
        return 1.0 if prune is None else min(1.0, prune.keep / self.recipe.sample.group)

    @property
    def is_packed(self) -> bool:
        """Whether the update goes through packed rows, which is where it may."""
        trl, launch = self.recipe.train.trl, self.recipe.launch
        asked = (trl.get(name) for name in ("gradient_checkpointing_kwargs", "torch_compile", "entropy_coef"))
        has_kernels = self.card.half == "bfloat16"  # torch's attention over rows of differing length wants such a card
        return keeps_whole(launch.strategy) and has_kernels and not any(asked)

    @property
    def is_alone(self) -> bool:
        """Whether a micro-batch is one row, which the packed update lays as one sequence and gives torch's plain attention."""
        return self.is_packed and self.micro == 1

    @property
    def is_captured(self) -> bool:
        """Whether the packed update runs as captured graphs, where memory allows; what waits in the host's memory, or is long, does not."""
        is_long = self.is_alone and self.pass_tokens > LONG
        return self.is_packed and self.recipe.train.offload == "no" and not is_long

    @property
    def pass_tokens(self) -> float:
        """Tokens of one forward and backward pass over a micro-batch of full-length completions."""
        prompt, completion, micro = self.lengths.longest_prompt, self.recipe.sample.max_tokens, self.micro
        if not self.is_packed:
            return micro * (prompt + completion)
        prompts = ceil(micro / self.recipe.sample.group)
        return (prompts * prompt + micro * (completion - 1)) * (1.0 if self.is_alone else SLACK)

    @property
    def logits_bytes(self) -> int:
        """Bytes of a micro-batch's logits in half precision."""
        return self.micro * self.recipe.sample.max_tokens * self.sizes.vocab * HALF

    def keeps_logits(self, activations: float) -> bool:
        """Whether the packed update keeps a micro-batch's logits beside so many bytes of activations, or makes them again."""
        train, size = self.recipe.train, self.logits_bytes
        if size <= KEPT_LOGITS or not self.is_alone or not train.recomputes == train.offload == "no":
            return size <= KEPT_LOGITS
        there = sum(held(self).values()) + AT_HEAD * activations
        return KEPT_SHARE * size <= self.card.memory * GIB - OUTSIDE - there

    def cache_rows(self, free: float) -> int:
        """Rows of cache in `free` bytes; completions beyond them wait their turn."""
        return max(1, min(self.rows, MOST_ROWS, int(free // self.row_bytes)))

    @property
    def row_bytes(self) -> int:
        """Bytes of cache of one completion at its longest, in half precision."""
        columns = self.lengths.longest_prompt + self.recipe.sample.max_tokens - 1
        return -(-columns // COLUMNS) * COLUMNS * self.sizes.kv_values_token * 2


LONG = 8192
"""Tokens of a row alone from which on the update runs without a graph (`train/packed/source`)."""
KEPT_LOGITS, KEPT_SHARE = 3 << 30, 4
"""Bytes of logits up to which the packed update keeps them, and the part of what is free up to which it does of a row alone
(`train/packed/score`); it makes larger ones again in stretches."""
AT_HEAD = 0.9
"""Share of a pass's activations that lie there when its logits are made: what the backward pass works in comes later."""
GIB = 1 << 30
OUTSIDE = 0.7 * GIB
"""What the driver takes in addition to torch: context and kernels."""

# Memory between two steps.

ADAM = 4
"""Numbers of a trained parameter: weight, gradient, two moments."""
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
OFFERED_IN_4BIT = "-bnb-4bit"
"""How the names of models end whose files hold such weights already."""
HALF = 2
"""Bytes of a number in half precision."""
NF4 = 0.5 + (1 + 4 / 256) / 64
"""Bytes of a weight in NF4 with double quantisation: a scale of one byte for 64 of them, and of four for 256 scales."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What is trained of a model: `parameters` of `width` bytes each, beside `frozen` bytes that are not."""

    parameters: int
    width: int
    frozen: int
    rank: int | None
    is_half: bool
    """Whether the weights lie in half precision; else products run in it by an autocast."""
    moments: int
    """Bytes of what the optimizer keeps of it."""

    @property
    def optimized(self) -> int:
        """Bytes of weights, gradients and the optimizer's moments, those of the frozen weights too."""
        return self.frozen + 2 * self.parameters * self.width + self.moments


def adapter_rank(model: Model) -> int | None:
    """The rank of the adapter that is trained; None where all weights are."""
    return model.lora.r if model.lora is not None else saved_rank(model)


def in_4bit(model: Model) -> bool:
    """Whether the frozen weights lie in 4 bits: the recipe asks for it, or the model is offered so."""
    return model.load_in_4bit or model.path.endswith(OFFERED_IN_4BIT)


def trained(recipe: Recipe, sizes: ModelSizes) -> Trained:
    """What the recipe trains of its model."""
    model, rank, half = recipe.model, adapter_rank(recipe.model), HALF * sizes.parameters
    count, width, frozen = sizes.parameters, WIDTHS["float32" if model.dtype == "auto" else model.dtype], 0
    if rank is not None:
        count, width, frozen = sizes.lora_parameters(rank), WIDTHS["float32"], half * (1 + (model.dtype == "float32"))
        if in_4bit(model):  # embeddings and head are not quantised
            frozen = int(sizes.body_parameters * NF4 + HALF * (sizes.parameters - sizes.body_parameters))
    is_half = width == HALF if rank is None else frozen <= half
    moments = 2 * count * width
    if "8bit" in str(recipe.train.trl.get("optim", "")):  # transformers leaves the moments of embeddings in 32 bits
        whole = sizes.head_parameters if rank is None else 0
        moments = 2 * (count - whole) + 8 * whole
    return Trained(count, width, frozen, rank, is_half, moments)


def held(work: Work) -> dict[str, float]:
    """Bytes that one process on a GPU holds between two steps, by what they are."""
    recipe, sizes, strategy = work.recipe, work.sizes, work.recipe.launch.strategy
    own = trained(recipe, sizes)
    weights, gradients = own.frozen + own.parameters * own.width, own.parameters * own.width
    splits = splits_parameters(strategy)
    shared, summed = (work.world if splits else 1), (1 if keeps_whole(strategy) else work.world)
    moved = 1 if strategy == "ddp" else work.world
    found = {"weights": weights / shared, "gradients": gradients / summed, "optimizer": own.moments / moved}
    if splits:
        found["whole copy that generates"] = sizes.parameters * HALF
    elif not own.is_half:
        matrices = sizes.body_parameters + sizes.head_parameters
        found["half-precision copies that generate"] = matrices * HALF
    if recipe.train.kl.beta > 0:
        found["reference"] = own.parameters * own.width / shared
    if recipe.train.critic is not None:
        counted = critic_parameters(recipe, sizes)
        found["critic"] = counted[0] * counted[1] if counted is not None else 0.0
    return found


def critic_parameters(recipe: Recipe, sizes: ModelSizes) -> tuple[int, int, str] | None:
    """Parameters of a critic, bytes of each with gradient and moments, and what they are; None where that is not known here."""
    critic, model = recipe.train.critic, recipe.model
    assert critic is not None
    width = ADAM * WIDTHS["float32"]
    if critic.share:
        return sizes.hidden + 1, width, "head"
    named = critic.model(model)
    if named is not None:
        other = local_sizes(named)
        return None if other is None else (other.parameters, width, f"parameters of `{named.path}`")
    rank = adapter_rank(model)
    if rank is not None:
        return sizes.lora_parameters(rank), width, "parameters of a second adapter"
    return sizes.parameters, ADAM * trained(recipe, sizes).width, "parameters of a copy"


# Memory of a forward and backward pass.
#
# What a pass keeps for its gradients is counted layer by layer as the packed update runs (`train/packed`,
# `rollout/fused/update`), for blocks of Llama's kind: norms keep their input, projections theirs, attention its own, a gated MLP both of
# its halves. In numbers of a token and layer, with width d, query width q, key width k, MLP width f:
#
#     all weights trained   4 d + 2 q + 2 k + 3 f
#     adapters              7 d + 3 q + 2 k + 3 f: each projection's own copy of its input, and of frozen weights none
#     recompute: selective  d + q: a layer's input and attention's output; one layer and half of it again while it is made anew
#     recompute: full       d, and the same
#
# Measured on one H200 (bf16, 32 x 8 x 256, micro-batches of 64 and 32, no cache): 13.6 and 36.0 GiB reserved by torch at 135M and 1.5B
# where this gives 13.7 and 37.1; long rows in `docs/benchmarks/memory.md`. What a block of another kind keeps is not known here.

STRETCH = (1 << 27) * HALF
"""Bytes of logits that the packed update makes at once where it does not keep them (`train/packed/score`)."""
AGAIN = 1.5
"""Layers that lie in memory in full while one is made again: it, and the gradients of its widest parts."""
NEAR = 2
"""Layers whose activations are on the card at once where the others wait in the host's memory."""
PADDED_LOGITS = 2
"""Times that the logits of a padded pass lie in memory: themselves and their gradient."""


def pass_bytes(work: Work) -> dict[str, float]:
    """Bytes of one forward and backward pass over a micro-batch of full-length completions."""
    sizes, own, train = work.sizes, trained(work.recipe, work.sizes), work.recipe.train
    tokens, layer, states = work.pass_tokens, layer_bytes(work), HALF if own.is_half else 2 * HALF
    kept = layer if train.recomputes == "no" else states * sizes.hidden
    if train.recomputes == "selective":
        kept += HALF * sizes.attention_width + 4 * sizes.heads
    found = {"activations": tokens * kept * (sizes.layers if train.offload == "no" else min(NEAR, sizes.layers))}
    logits = float(work.logits_bytes)
    if not work.is_packed:
        logits *= PADDED_LOGITS
    elif not work.keeps_logits(sum(found.values())):
        logits = 2 * STRETCH + 2 * HALF * work.micro * work.recipe.sample.max_tokens * sizes.hidden
    if train.recomputes == "no":
        found["logits"] = logits
    else:  # the head's backward pass is over when the first layer is made again
        found["logits, or a layer made again"] = max(logits, tokens * AGAIN * layer)
    if not own.is_half:
        found["weights cast for a pass"] = (sizes.body_parameters + sizes.head_parameters) * HALF
    if own.rank is None:  # of embeddings and head, made whole before they are added to what is there
        found["gradients under way"] = 2 * sizes.head_parameters * own.width
    if in_4bit(work.recipe.model):  # one matrix, in the forward pass and in the backward pass
        found["weights unpacked"] = 2 * sizes.hidden * sizes.intermediate * HALF
    return found


def layer_bytes(work: Work) -> float:
    """What one token leaves of one layer for the backward pass."""
    sizes, own = work.sizes, trained(work.recipe, work.sizes)
    d, q, k, f = sizes.hidden, sizes.attention_width, sizes.kv_width, sizes.intermediate
    keys = 1.0
    if work.is_packed:  # a prompt's keys stand next to those of each of its completions
        keys = work.micro * (work.lengths.longest_prompt + work.recipe.sample.max_tokens) / work.pass_tokens
    numbers = 2 * q + 2 * k * keys
    numbers += (4 * d + 3 * f) if own.rank is None else (2 * d + (5 * d + q + f) + 2 * f)
    wider = 0 if own.is_half else 2 * d  # the stream between layers is float32, and its norms keep it
    softmax = 4 * sizes.heads
    return (numbers + wider) * HALF + softmax
