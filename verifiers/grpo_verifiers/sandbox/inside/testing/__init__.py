"""The trusted side of a test program: prepares it, runs it, and stands between it and the solution."""
