"""The maths verifier: extraction, reading, and comparison in tiers, the cheapest first.

`extract` finds the text of the answer, `reading` makes a tree of it, `comparing` compares it with the gold, `proving`
decides what is still open. Everything but `proving.symbolic` runs in the caller: no signals, no sympy, any thread.
`symbolic` runs in a process of its own that may be killed at any time.
"""
