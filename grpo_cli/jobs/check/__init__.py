"""Everything that can be checked of a recipe before a model is loaded. Nothing here imports torch."""
