"""Whether two read answers mean the same."""
