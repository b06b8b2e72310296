"""Verifiable-reward fine-tuning of language models from the command line."""

from grpo_verifiers.registry import register

__version__ = "0.1.0"

# needs torch, so it lives with the trainer; an entry point names it too, which a source tree has only once installed
register("reward_model", "grpo_cli.reward.reward_model:RewardModelVerifier")
