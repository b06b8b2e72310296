"""What one process works on in a step: rows, tokens, micro-batches, and by which code the update runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from grpo_cli.policy.loading.sizes import ModelSizes
from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD, BatchPlan
from grpo_cli.recipe.sections.recipe import Recipe

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
