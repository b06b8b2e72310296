"""The method as pure functions on tensors: advantages, losses, KL, pruning. No trainer in a signature."""
