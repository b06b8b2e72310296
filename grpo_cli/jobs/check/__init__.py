"""All that can be known about a recipe before a model is loaded. No torch in here."""
