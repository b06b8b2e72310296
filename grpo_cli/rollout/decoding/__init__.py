"""One decode step: the cache, the attention that reads it, what the running rows hold, and which models it drives."""
