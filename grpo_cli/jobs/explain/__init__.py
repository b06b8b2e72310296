"""What `grpo explain` says: verifiers, algorithms, selectors, keys, findings."""
