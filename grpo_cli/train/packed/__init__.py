"""The update of a CUDA device: rows without padding, each prompt once, and micro-batches replayed as CUDA graphs.

    layout.py      rows -> one long row and where everything stands in it
    attention.py   each sequence of it attends to itself, a completion to its prompt as well
    head.py        log-probs and entropies without (tokens x vocabulary) logits in float32
    score.py       the three together: a packed row through a model
    graphs.py      its forward and backward pass captured, one pair a shape
    prove.py       whether it may be used for a model: the same numbers, shown on the model itself
    source.py      the answer to TRL's calls for log-probs, and how a batch is dealt into micro-batches

Where one of these does not hold the trainer goes TRL's way, and says once why.
"""
