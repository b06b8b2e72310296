"""Is a letter before a bracket a function or a factor? Wrongly read as a factor it would pay `V` for `V(2) - V(1)`.

What is only perhaps a product is read as a value of a function: such an answer is right if it is written as the gold is.
"""

from __future__ import annotations

from grpo_verifiers.maths.reading.tokens.token import Token

_ARGUMENTS = frozenset(("t", "x", "n", "z", "k", "m", "s", "r", "y", "theta", "tau"))
_INDICES = frozenset("ijkmn")
_PLAIN = frozenset(("+", "-", "/", "*", "frac", "{", "}"))
_GREEK = frozenset(("phi", "psi", "Phi", "Psi"))


def is_application(tokens: list[Token], at: int, name: str) -> bool:
    """Whether the letter `name` before the opening bracket at `at` is applied to what is in the brackets."""
    end = _closing(tokens, at)
    inner = tokens[at + 1 : end]
    # several arguments in one bracket are read as a point: nothing multiplies by a letter there
    if not inner or any(t.value in (",", ";") for t in inner):
        return False
    last = inner[-1]
    if last.kind == "n" and (len(inner) == 1 or (len(inner) == 2 and inner[0].value in "+-")):
        is_growth = "." in last.value and end + 1 < len(tokens) and tokens[end + 1].value == "^"
        return not is_growth  # P(1.05)^n grows, P(2)^n does not
    if len(inner) == 1 and last.kind == "s":
        is_event = name[0].isupper() and last.value[0].isupper()  # E(X), P(A)
        return (last.value in _ARGUMENTS or is_event) and last.value != name
    if not name[0].isupper() and name not in _GREEK:
        return False
    symbols = {t.value for t in inner if t.kind == "s"}
    # `T(n - 1)`: letters that count, and nothing else
    if symbols and symbols <= _INDICES and all(t.kind in "ns" or t.value in _PLAIN for t in inner):
        return True
    return _has_several_arguments(tokens, name)


def _has_several_arguments(tokens: list[Token], name: str) -> bool:
    """Whether the letter stands only before brackets, and not before the same ones."""
    arguments: set[tuple[str, ...]] = set()
    for i, token in enumerate(tokens):
        if token.kind != "s" or token.value != name:
            continue
        if i + 1 >= len(tokens) or tokens[i + 1].value != "(":
            return False
        arguments.add(tuple(t.value for t in tokens[i + 1 : _closing(tokens, i + 1)]))
    return len(arguments) > 1


def _closing(tokens: list[Token], at: int) -> int:
    depth = 0
    # an argument is short, and this is asked of every letter before a bracket
    for i in range(at, min(len(tokens), at + 60)):
        depth += (tokens[i].value == "(") - (tokens[i].value == ")")
        if depth == 0:
            return i
    return at
