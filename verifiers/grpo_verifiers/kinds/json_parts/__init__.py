"""Reading, comparing and checking JSON text for the `json` verifier."""
