"""Audits of what a run rests on: here the reward (`grpo audit verifier`)."""
