"""What one process works on in a step: rows, tokens, micro-batches, and by which code the update runs; and what it
holds between two steps: weights, gradients, optimizer, copies, in bytes.

How this works: a `Work` joins the recipe, the model's sizes, the batch plan and the lengths of texts; its properties
return what one of `world` processes has to do. `trained` and `held` count the bytes that stay. `fit.py` adds to them
what a step needs for a while, `duration.py` turns the work into seconds; nothing here looks at the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from grpo_cli.policy.loading.adapter import saved_rank
from grpo_cli.policy.loading.sizes import ModelSizes, local_sizes
from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD, BatchPlan
from grpo_cli.recipe.sections.course import splits_parameters
from grpo_cli.recipe.sections.recipe import Model, Recipe

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
    """The work of one of `world` processes."""

    recipe: Recipe
    sizes: ModelSizes
    plan: BatchPlan
    lengths: TokenLengths
    world: int = 1

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
        """Whether the update goes through packed rows and captured graphs, which is where it may."""
        trl, launch = self.recipe.train.trl, self.recipe.launch
        asked = (trl.get(name) for name in ("gradient_checkpointing", "torch_compile", "entropy_coef"))
        return self.world == 1 and launch.strategy == "ddp" and not any(asked)

    @property
    def recomputes(self) -> bool:
        """Whether activations are made again instead of kept."""
        return bool(self.recipe.train.trl.get("gradient_checkpointing"))

    def pass_tokens(self, micro: int) -> float:
        """Tokens of one forward and backward pass over `micro` full-length completions."""
        prompt, completion = self.lengths.longest_prompt, self.recipe.sample.max_tokens
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


# Memory between two steps.

ADAM = 4
"""Numbers of a trained parameter: weight, gradient, two moments."""
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
HALF = 2
"""Bytes of a number in half precision."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What is trained of a model: `parameters` of `width` bytes each, beside `frozen` bytes that are not."""

    parameters: int
    width: int
    frozen: int
    rank: int | None
    is_half: bool
    """Whether the weights lie in half precision; else products run in it by an autocast."""

    @property
    def optimized(self) -> int:
        """Bytes of weights, gradients and Adam's moments, those of the frozen weights too."""
        return self.frozen + self.parameters * self.width * ADAM


def adapter_rank(model: Model) -> int | None:
    """The rank of the adapter that is trained; None where all weights are."""
    return model.lora.r if model.lora is not None else saved_rank(model)


def base_width(model: Model) -> float:
    """Bytes of a frozen weight under an adapter."""
    return 0.5 if model.load_in_4bit else WIDTHS["bfloat16" if model.dtype == "auto" else model.dtype]


def trained(model: Model, sizes: ModelSizes) -> Trained:
    """What the recipe trains of its model."""
    rank = adapter_rank(model)
    if rank is None:
        kind = "float32" if model.dtype == "auto" else model.dtype
        return Trained(sizes.parameters, WIDTHS[kind], 0, None, kind != "float32")
    frozen = int(sizes.parameters * base_width(model))
    is_half = model.load_in_4bit or model.dtype != "float32"
    return Trained(sizes.lora_parameters(rank), WIDTHS["float32"], frozen, rank, is_half)


def held(recipe: Recipe, sizes: ModelSizes, world: int) -> dict[str, float]:
    """Bytes that one of `world` processes on a GPU holds between two steps, by what they are."""
    own, strategy = trained(recipe.model, sizes), recipe.launch.strategy
    weights = own.frozen + own.parameters * own.width
    gradients, moments = own.parameters * own.width, 2 * own.parameters * own.width
    splits = splits_parameters(strategy)
    shared, moved = (world if splits else 1), (world if strategy != "ddp" else 1)
    found = {"weights": weights / shared, "gradients": gradients / moved, "optimizer": moments / moved}
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
    return sizes.parameters, ADAM * trained(model, sizes).width, "parameters of a copy"
