"""A verifier function in a few lines, the one that `grpo explain python` shows: copy it and change it."""


def verify(completion: str, answer: int) -> bool | float:
    """Right where the completion is the number; half the score for one off."""
    if not completion.strip().lstrip("+-").isdecimal():
        return False  # an exception would count as wrong too, and be logged once
    found = int(completion)
    if abs(found - answer) == 1:
        return 0.5
    return found == answer
