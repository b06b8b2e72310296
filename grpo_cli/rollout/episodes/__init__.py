"""Episodes: a model and an environment in turn, on any engine whose samples have seeds of their own."""
