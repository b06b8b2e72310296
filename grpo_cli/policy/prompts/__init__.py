"""Turns rows into prompt texts. Nothing here imports torch: `grpo check` renders the same prompts."""
