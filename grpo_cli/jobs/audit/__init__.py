"""Audits of a run's reward (`grpo audit verifier`) and of its rows (`grpo audit data`)."""
