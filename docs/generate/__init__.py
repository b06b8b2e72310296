"""Writes docs/reference/ and docs/llms.txt from the program: `python -m docs.generate`, or `make docs`."""
