"""The pages: their commands run, their examples load, their links lead somewhere."""
