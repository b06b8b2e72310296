"""From text to a tree of values: lexer, units, words, answers."""
