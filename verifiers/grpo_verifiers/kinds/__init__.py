"""One file a kind of verifier."""
