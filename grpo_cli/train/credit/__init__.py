"""What the samples of a batch are worth: the recipe's method asked of groups, and credit for single turns of episodes."""
