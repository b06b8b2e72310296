"""Tools that a model calls in the turns of an episode: their schemas, parsing of the model's calls, and their
results."""
