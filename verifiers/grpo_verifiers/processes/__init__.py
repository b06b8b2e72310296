"""The pool of killable worker processes in which foreign code runs."""
