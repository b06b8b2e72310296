"""From YAML and `--set` to a checked `Recipe`, with the place of every mistake. No torch in here.

`sections/` the keys, documented where declared; building a `Recipe` checks names, types and ranges.
`checking/` what spans keys: verifier options, TRL's fields, rules between sections. Every mistake is found at once.
`reading/`  the way in and out: `load.load` reads text, lays layers over each other and checks; `dump.to_yaml` writes.
`widening`, `arithmetic` and `schema` stand beside: short forms and methods written out, the sums of a batch, JSON Schema.
Each part imports only what is named before it, reading last.
"""
