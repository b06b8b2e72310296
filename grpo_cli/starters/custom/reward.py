"""The reward of this recipe: a sentence of the wanted length that contains the wanted word."""

import re


def score(completion: str, word: str, count: int) -> float:
    """1 is right; less is wrong but better than nothing. `word` and `count` are columns of the row."""
    words = re.findall(r"[\w'-]+", completion.lower())
    if not words or "\n" in completion.strip():
        return 0.0
    has_word = word.lower() in words
    near = max(0.0, 1.0 - abs(len(words) - count) / count)
    return 1.0 if has_word and len(words) == count else 0.5 * near * (0.5 + 0.5 * has_word)
