"""The side of a test program that nobody trusts: the solution, answering."""
