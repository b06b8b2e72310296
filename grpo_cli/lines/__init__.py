"""Reading lines, whoever wrote them: rows of data, samples to verify, records of a run.

numbered   lines with their numbers and a cap, whole lines of a file that grows     packed   plain, gzip and zstd
"""
