"""`grpo init --from`: a configuration of another trainer as a recipe."""
