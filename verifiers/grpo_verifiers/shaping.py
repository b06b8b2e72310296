"""Shaping terms: small amounts added to a reward, in [-1, 1], that never make a sample right.

How this works: `build_term` checks the options of a kind and returns a function of one `Shaped` completion, and `shape`
weighs the terms of a recipe. Each term reads one completion only, so it is the same in train, eval and verify. A term
without its input (the count of tokens) is 0.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grpo_verifiers.names import did_you_mean
from grpo_verifiers.verifier import BadOption


@dataclass(frozen=True, slots=True)
class Shaped:
    """The input of shaping terms: the completion, its number of tokens, its token limit, and the outcome."""

    completion: str
    tokens: int | None = None
    max_tokens: int | None = None
    is_right: bool = False


@dataclass(frozen=True)
class OverlongOptions:
    """DAPO's: 0 up to (1 - cache) of the cap, then linear down to -1 at the cap and beyond."""

    cache: float = 0.2
    """Share of the cap over which the penalty grows."""
    max_tokens: int | None = None
    """The cap; default the one the completion was sampled under."""


@dataclass(frozen=True)
class LengthOptions:
    """For right answers only: 1 up to the target, then linear down to 0 at twice the target. Wrong ones get 0."""

    target: int = 256
    """Tokens a right answer should need."""


@dataclass(frozen=True)
class RepetitionOptions:
    """Minus the share of word n-grams that stand in the completion before."""

    n: int = 4
    """Words in a row that count as repeated."""
    free: float = 0.1
    """Share of repeated n-grams that costs nothing; prose has some."""


@dataclass(frozen=True)
class LanguageOptions:
    """Minus the share of letters outside the wanted script (R1's language mixing)."""

    script: str = "LATIN"
    """Unicode script name as in character names: LATIN, CYRILLIC, CJK, HANGUL, ARABIC, GREEK, DEVANAGARI, …"""
    free: float = 0.05
    """Share of other letters that costs nothing: Greek in formulas, names."""


def overlong(options: OverlongOptions, shaped: Shaped) -> float:
    """-1 to 0; 0 where the token count or the cap is not known."""
    cap = options.max_tokens or shaped.max_tokens
    if cap is None or shaped.tokens is None:
        return 0.0
    start = (1 - options.cache) * cap
    if shaped.tokens <= start:
        return 0.0
    return -min(1.0, (shaped.tokens - start) / (cap - start)) if cap > start else -1.0


def length(options: LengthOptions, shaped: Shaped) -> float:
    """0 to 1; 0 for answers that are not right or whose length is not known."""
    if not shaped.is_right or shaped.tokens is None:
        return 0.0
    return max(0.0, min(1.0, 2.0 - shaped.tokens / options.target))


def repetition(options: RepetitionOptions, shaped: Shaped) -> float:
    """-1 to 0."""
    words = shaped.completion.split()
    if len(words) == 1 and len(words[0]) > 64:  # a script without spaces, or a single very long word
        words = list(words[0])
    grams = [tuple(words[i : i + options.n]) for i in range(len(words) - options.n + 1)]
    return -_beyond(1 - len(set(grams)) / len(grams), options.free) if len(grams) > 1 else 0.0


def language(options: LanguageOptions, shaped: Shaped) -> float:
    """-1 to 0; 0 for a completion without letters."""
    letters = filter(str.isalpha, shaped.completion)
    scripts = Counter("LATIN" if c.isascii() else unicodedata.name(c, "?").split()[0] for c in letters)
    total = scripts.total()
    return -_beyond(1 - scripts[options.script.upper()] / total, options.free) if total else 0.0


def _beyond(share: float, free: float) -> float:
    return max(0.0, (share - free) / (1 - free))


@dataclass(frozen=True, slots=True)
class ShapingTerm:
    """One kind of term: its options class and its function."""

    options: type
    function: Callable[[Any, Shaped], float]


TERMS: dict[str, ShapingTerm] = {
    "overlong": ShapingTerm(OverlongOptions, overlong),
    "length": ShapingTerm(LengthOptions, length),
    "repetition": ShapingTerm(RepetitionOptions, repetition),
    "language": ShapingTerm(LanguageOptions, language),
}


def build_term(kind: str, *, only: Literal["right"] | None = None, **options: object) -> Callable[[Shaped], float]:
    """A term with these options; with `only="right"` it is 0 for every answer that is not right.

    Raises:
        BadOption: unknown kind or option, or an invalid value.
    """
    if kind not in TERMS:
        raise BadOption("kind", f"unknown shaping term `{kind}`{did_you_mean(kind, TERMS)}; known: {', '.join(TERMS)}")
    term = TERMS[kind]
    names = {field.name for field in dataclasses.fields(term.options)}
    for name in options:
        if name not in names:
            raise BadOption(name, f"unknown option `{name}` of shaping term `{kind}`{did_you_mean(name, names)}")
    made = term.options(**options)
    for name, value in vars(made).items():
        if name in ("cache", "free") and not (isinstance(value, int | float) and 0 <= value < 1):
            raise BadOption(name, f"`{name}` of `{kind}` must be in [0, 1)")
        is_count = name in ("target", "n", "max_tokens") and value is not None
        if is_count and not (isinstance(value, int) and value >= 1):
            raise BadOption(name, f"`{name}` of `{kind}` must be a whole number from 1")
    return lambda shaped: 0.0 if only and not shaped.is_right else term.function(made, shaped)


def shape(terms: Mapping[str, tuple[float, Callable[[Shaped], float]]], shaped: Shaped) -> dict[str, float]:
    """Weighted terms by name, as `combine` takes them; `terms` holds weight and function."""
    return {name: weight * function(shaped) for name, (weight, function) in terms.items()}
