"""The reward of this recipe: letters of a word in the order of the alphabet."""


def score(completion: str, in_order: str) -> float:
    """The share of letters that stand in their place; 1 is right. `in_order` is a column of the row."""
    said = completion.strip()
    hits = sum(a == b for a, b in zip(said, in_order, strict=False))
    return hits / max(len(said), len(in_order))
