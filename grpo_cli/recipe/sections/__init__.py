"""The keys of a recipe: one class a section, documented where declared."""
