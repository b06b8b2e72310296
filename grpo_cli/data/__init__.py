"""Rows: where they come from, how columns become prompts and golds, and which of them can be trusted.

sources   a file, the hub or a task, as records   template   columns to a prompt and a gold
files     JSON lines, parquet and their packings  audit      golds that their own verifier does not accept, held-out rows
rows      records to rows; those that fit         suspects   rows to read
"""
