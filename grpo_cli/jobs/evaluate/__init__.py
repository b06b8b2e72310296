"""Held-out measurement: `grpo eval`, and the evaluations during training."""
