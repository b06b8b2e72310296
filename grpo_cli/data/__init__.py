"""Rows: where they come from, how columns become prompts and golds, and which of them can be trusted.

sources   a file, the hub or a task, as rows      template   columns to a prompt and a gold
files     JSON lines, parquet and their packings  audit      golds that their own verifier does not accept
overlap   train rows among held-out ones          overlong   prompts beyond the context
"""
