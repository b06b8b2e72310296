"""What an answer calls its value: `Area = 5`, `maximum at x = 4`. The reader drops such words; two that differ are no one answer."""

from __future__ import annotations

from grpo_verifiers.maths.reading.tokens.token import Token
from grpo_verifiers.maths.reading.units import GENERIC, singular
from grpo_verifiers.maths.reading.vocabulary import names

_SAYS_NOTHING = GENERIC | names(
    """
    a an and are as at by correct equal final for from has have hence here i in is it its my of on our required so solution that
    the then there therefore this thus to was we where which with answer result value quantity wanted
    """
)
_LEAST_SHORTENED = 3


def label_of(tokens: list[Token]) -> tuple[str, ...]:
    """The words before the first sign of equality or colon that say something, in the singular; none if a value stands before it."""
    words: list[str] = []
    # a name is short; what comes later is a formula with a sign in it
    for token in tokens[:40]:
        if token.kind == "o" and token.value in ("=", ":"):
            return tuple(words)
        if token.kind == "w":
            word = token.value.lower()
            if word not in _SAYS_NOTHING:
                words.append(singular(word))
        # `x^2 + 1 = 0`, `a, b = 3`: a value or a list, no name
        elif token.kind in ("n", "c") or token.value in (",", ";"):
            return ()
    return ()


def labels_differ(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """Whether each of two labels has a word that the other has not, shortened or in full (`max`, `maximum`)."""
    return _has_more(gold, answer) and _has_more(answer, gold)


def _has_more(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return not all(any(_is_same(a, b) for b in other) for a in one)


def _is_same(a: str, b: str) -> bool:
    short, long = sorted((a, b), key=len)
    return a == b or (len(short) >= _LEAST_SHORTENED and long.startswith(short))
