"""Running code nobody trusts: lanes (`lane`), what they can see (`view`), what they enforce (`tiers`).

`inside/` is the part that runs in a lane; it is loaded there without this package.
"""
