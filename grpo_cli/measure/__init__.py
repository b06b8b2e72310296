"""A policy measured on rows by the judge that trains it: `evaluation` samples and counts, `probe` and `gate` forecast a run. Training uses these as `grpo eval` and `grpo probe` do."""
