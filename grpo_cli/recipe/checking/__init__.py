"""Mistakes in a recipe, all at once, each with its place and a hint."""
