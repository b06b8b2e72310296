"""The maths verifier: extraction, reading, and comparison in tiers from cheap to dear.

Everything here but `child` and `symbolic` runs in the caller: no signals, no sympy, any thread.
`child` is a process of its own that may be killed at any time; it answers what the cheap tiers leave open.
"""
