"""Whether two read answers say the same."""
