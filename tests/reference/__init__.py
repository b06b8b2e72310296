"""A second, slow way to every number of an update: one answer at a time, in float64, from the papers' formulas.

Nothing here is imported by the tool, and nothing here imports what it checks: `formulas` and `policy` know lists of
floats and a plain model, `drive` runs the real trainer and looks on, `compare` puts the two side by side.
"""
