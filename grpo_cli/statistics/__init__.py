"""Numbers over groups and steps: pass@k, intervals, forecasts. Pure, no torch."""
