"""The kinds of verifiers that a recipe may name: those of `grpo_verifiers`, and the one that needs torch."""

from __future__ import annotations

from grpo_verifiers.registry import KINDS, kind_class, register

__all__ = ["KINDS", "kind_class"]

# lives with the trainer; an entry point names it too, which a source tree has only once installed
register("reward_model", "grpo_cli.reward.reward_model:RewardModelVerifier")
