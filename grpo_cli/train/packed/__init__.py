"""The update of a CUDA device: rows without padding, each prompt once, and micro-batches replayed as CUDA graphs.

    layout.py      rows -> one long row and where everything stands in it
    attention.py   each sequence of it attends to itself, a completion to its prompt as well
    score.py       a packed row through a model; log-probs and entropies without (tokens x vocabulary) logits in float32
    kernels.py     the Triton kernels of attention.py and score.py, and their calls
    graphs.py      its forward and backward pass captured, one pair a shape, and which shapes are worth a capture
    self_check.py  whether it may be used for a model: the same numbers, shown on the model itself
    source.py      the answer to TRL's calls for log-probs, and which rows share a micro-batch

If the packed update cannot be used, the trainer uses TRL's own pass and shows the reason once.
"""
