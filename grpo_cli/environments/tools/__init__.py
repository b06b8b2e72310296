"""Tools that a model calls in the turns of an episode: their schemas, the calls it writes, and what they answer."""
