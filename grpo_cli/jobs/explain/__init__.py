"""`grpo explain`: verifiers, algorithms, selectors, rows, keys, findings."""
