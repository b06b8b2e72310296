"""What one process works on in a step: rows, tokens, micro-batches, and by which code the update runs; and what it
holds between two steps: weights, gradients, optimizer, copies, in bytes.

How this works: a `Work` joins the recipe, the model's sizes, the batch plan, the lengths of texts and the card; its properties
return what one of `world` processes has to do. `trained` and `held` count the bytes that stay. `fit.py` adds to them
what a step needs for a while, `duration.py` turns the work into seconds; nothing here looks at the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from grpo_cli.policy.loading.adapter import saved_rank
from grpo_cli.policy.loading.sizes import ModelSizes, local_sizes
from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD, BatchPlan
from grpo_cli.recipe.sections.course import splits_parameters
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
        return self.world == 1 and launch.strategy == "ddp" and has_kernels and not any(asked)

    @property
    def is_alone(self) -> bool:
        """Whether a micro-batch is one row, which the packed update lays as one sequence and gives torch's plain attention."""
        return self.is_packed and self.micro == 1

    @property
    def is_captured(self) -> bool:
        """Whether the packed update runs as captured graphs, where memory allows; what is made again, waits elsewhere or is long does
        not."""
        train = self.recipe.train
        is_long = self.is_alone and self.pass_tokens > LONG
        return self.is_packed and train.recomputes == train.offload == "no" and not is_long

    @property
    def pass_tokens(self) -> float:
        """Tokens of one forward and backward pass over a micro-batch of full-length completions."""
        prompt, completion, micro = self.lengths.longest_prompt, self.recipe.sample.max_tokens, self.micro
        if not self.is_packed:
            return micro * (prompt + completion)
        prompts = ceil(micro / self.recipe.sample.group)
        return (prompts * prompt + micro * (completion - 1)) * SLACK

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
KEPT_LOGITS = 3 << 30
"""Bytes of logits up to which the packed update keeps them (`train/packed/score`); it makes larger ones again in stretches."""

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
    shared, moved = (work.world if splits else 1), (work.world if strategy != "ddp" else 1)
    found = {"weights": weights / shared, "gradients": gradients / moved, "optimizer": own.moments / moved}
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
