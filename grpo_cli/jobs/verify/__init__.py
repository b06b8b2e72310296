"""`grpo verify`: any file of completions scored by the code that trains, in one pass and bounded memory.

    formats.py  any file, gzip, zstd or stdin as lines        scorer.py  lines in, scored lines out (one process)
    fields.py   where a line keeps completion and answer      flow.py    many scorers at once, input order kept
    job.py      one run: input, output, exit code             tally.py   groups counted as they pass

Note that a line that cannot be read is no sample. It is in no mean and no group; it is reported with its number and
makes the exit code 3.
"""
