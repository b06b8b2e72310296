"""Episodes: turns of a model and an environment, on any engine that can seed each sample."""
