"""One decode step: the cache, the attention that reads it, the state of the running rows, and a check of supported
models."""
