"""Continuous batching in this process, with CUDA graphs where there is a GPU."""
