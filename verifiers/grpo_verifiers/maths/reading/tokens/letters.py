"""Runs of letters: a word, a unit, functions glued to their arguments, or a product of variables."""

from __future__ import annotations

import re

from grpo_verifiers.maths.reading.forms.foreign import JOINING
from grpo_verifiers.maths.reading.tokens.token import Token
from grpo_verifiers.maths.reading.units import LETTERS, SHORT
from grpo_verifiers.maths.reading.vocabulary import FUNCTIONS, SPELT_SYMBOLS, SYNONYMS
from grpo_verifiers.maths.reading.words import SHORT_WORDS

_UNITS = frozenset(LETTERS)
PRODUCTS = frozenset(("by", "an", "at", "be", "it", "on", "of", "st", "nd", "is", "in", "as"))
_AFTER_PRODUCT = re.compile(r"(?:(?<!\s)\s++)?(?:[-+=^*/_)}]|\\cdot|$)")


def is_product(text: str, pos: int, out: list[Token], spaced: bool) -> bool:
    """Whether a word of two letters is two variables: `by` in `ax+by`, not in `5 by 3`."""
    if out:
        last = out[-1]
        # behind a word, or apart from a value, it is a word as well: `5 by 3`
        if last.kind == "w" or (last.kind == "n" and spaced) or (last.kind == "s" and spaced):
            return False
        # `3rd`, `n^{th}`
        if text[pos - 2 : pos] in _ORDINAL and (last.kind == "n" or last.value in ("^", "{", ")")):
            return False
        return _AFTER_PRODUCT.match(text, pos) is not None
    following = text[pos:].lstrip()[:1]
    return following != "" and following in "+-=^*/_"


UPRIGHT_UNITS = frozenset("mgsVNJWAL")


def may_be_unit(out: list[Token]) -> bool:
    """Whether a unit may come next: after a number or another unit."""
    if not out:
        return False
    last = out[-1]
    return (
        last.kind in ("n", "w")
        or last.value in (")", "}", "pi")
        or (last.value == "/" and any(t.kind == "w" for t in out))
    )


_VOWEL = re.compile(r"[aeiouyAEIOUY]")
_ORDINAL = frozenset(("st", "nd", "rd", "th"))


def _is_word(run: str) -> bool:
    if len(run) < 2:
        return False
    low = run.lower()
    if len(run) <= 3:
        return low in SHORT_WORDS and (run.islower() or run.istitle() or low in ("dne", "nan", "yes", "no"))
    # no vowel, or the corners of a figure in their order: a product or the name of points
    if not _VOWEL.search(run) or low in ("abcd", "abcde", "wxyz"):
        return False
    return not (
        # `ADCB` is points; a word in capitals is longer or has a letter twice
        run.isupper() and len(run) < 6 and len(set(run)) == len(run) and low not in ("none", "true", "false")
    )


_FUNCTION_HEAD = re.compile("(" + "|".join(sorted(FUNCTIONS - {"st"}, key=len, reverse=True)) + "|pi)")


def add_letters(run: str, out: list[Token], spaced: bool, upright: bool) -> None:
    """A run of letters is one word, a function, a unit, or a product of one-letter variables."""
    # `5 min` and `3 sec` are times, `min(a, b)` and `sec x` functions
    if run in FUNCTIONS and not (
        upright
        and run in ("min", "sec", "mod")
        and out
        and (out[-1].kind == "n" or out[-1].value in ("/", "per", "}"))
    ):
        after_number = bool(out) and out[-1].kind == "n"
        if not (run in ("min", "sec") and after_number and spaced):
            out.append(Token("c", SYNONYMS.get(run, run), spaced))
            return
    if run in SPELT_SYMBOLS:
        kind, name = SPELT_SYMBOLS[run]
        out.append(Token(kind, name, spaced))
        return
    previous = out[-1] if out else None
    if len(run) == 1:
        out.append(_letter(run, previous, spaced, upright))
        return
    if upright:
        out.append(Token("w", JOINING.get(run, run), spaced))
        return
    # a unit needs a value right before it
    after_value = previous is not None and (
        previous.kind == "n"
        or previous.kind == "w"
        or previous.value in (")", "}", "pi", "/")
        or (previous.kind == "s" and spaced)
    )
    # behind a word another run of small letters is a word too, whatever its letters
    follows_word = (
        previous is not None and previous.kind == "w" and spaced and previous.value.lower() not in SHORT_WORDS
    )
    if (
        follows_word
        and len(run) > 2
        and run.islower()
        and run not in FUNCTIONS
        and previous is not None
        and previous.value != "$"
    ):
        out.append(Token("w", run, spaced))
        return
    if (after_value and (run in SHORT or (run in _ORDINAL and not spaced))) or _is_word(run):
        out.append(Token("w", run, spaced))
        return
    # `sinx` and `xcosy` come without spaces; in a longer run such a name is chance
    head = _FUNCTION_HEAD.search(run) if len(run) > 3 else None
    if head is not None and len(run) <= 12:
        if head.start():
            add_letters(run[: head.start()], out, spaced, upright)
        add_letters(head.group(), out, spaced and not head.start(), upright)
        if head.end() < len(run):
            add_letters(run[head.end() :], out, False, upright)
        return
    # all else is a product of variables
    for i, letter in enumerate(run):
        out.append(Token("s", letter, spaced and i == 0))


def _letter(run: str, previous: Token | None, spaced: bool, upright: bool) -> Token:
    """A letter that stands alone: a unit or a word behind a number, else a variable."""
    follows = previous is not None and (
        previous.kind == "n"
        or previous.value in (")", "}", "/", "pi")
        or previous.value in SHORT
        or previous.value in _UNITS
    )
    if upright and run in _UNITS and follows:
        return Token("w", run, spaced)
    # undecided here: `lex` knows the whole answer and settles it
    if run in "mgshL" and spaced and previous is not None and previous.kind == "n":
        return Token("u", run, spaced)
    if upright and run == "a":
        return Token("w", run, spaced)
    return Token("s", run, spaced)
