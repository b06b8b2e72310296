"""Rollout engines: prompts in, sampled token ids with their log-probs out, from the live training weights."""
