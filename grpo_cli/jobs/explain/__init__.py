"""What `grpo explain` says: verifiers, algorithms, selectors, rows, keys, findings."""
