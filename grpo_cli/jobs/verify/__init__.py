"""`grpo verify`: any file of completions scored by the code that trains, in one pass and bounded memory.

    plan.py    which verifiers, from flags or a recipe        scorer.py  lines in, scored lines out (one process)
    lines.py   FILE, gzip, zstd or stdin as numbered lines    flow.py    many scorers at once, input order kept
    fields.py  where a line keeps its completion and answer   tally.py   groups counted as they pass

What a reader would get wrong: a line that cannot be read is no sample. It is in no mean and no group; it is reported
with its number and makes the exit code 3.
"""
