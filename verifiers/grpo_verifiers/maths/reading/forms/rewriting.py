"""Spellings that stand for something the grammar knows: angles in minutes, prefixes of bases, prose round formulas."""

from __future__ import annotations

import re
from fractions import Fraction

_GLUED = re.compile(r"\\(q?quad)(?=[a-zA-Z])")
_APART = re.compile(r"(?<=[\w})])(?<!quad)\s*+(?:\\q?quad\s*+)++(?=[a-zA-Z](?:_\{?\w{1,9}\}?)?\s*+=)")
_PREFIXED = re.compile(r"0([box])([0-9A-Fa-f]{1,300})")
_BASES = {"b": 2, "o": 8, "x": 16}
_ANGLE = re.compile(
    r"(-?)(\d{1,4})\s*+(?:\^\s*+\{?\s*+)?\\circ\s*+\}?\s*+(\d{1,2}(?:\.\d{1,9})?)\s*+'(?:\s*+(\d{1,2}(?:\.\d{1,9})?)\s*+(?:''|\")?)?"
)
_QUOTIENT_RING = re.compile(
    r"\(?\\mathbb\s*+\{?\s*+Z\s*+\}?\s*+/\s*+\{?\s*+(\d{1,9})\s*+\\mathbb\s*+\{?\s*+Z\s*+\}?\s*+\}?\)?"
)
_SCRIPT = r"(\{[^{}]{1,80}\}|\\[a-zA-Z]+|[0-9A-Za-z])"
_POWER_FIRST = re.compile(rf"\^\s*+{_SCRIPT}\s*+_\s*+{_SCRIPT}")
_ARRAY = re.compile(
    r"(?:\\left\s*+|(?<!\s)\s++)?\\\{\s*+\\begin\s*+\{array\}\s*+(?:\{[^{}]*+\})?((?:(?!\\begin\b).)*?)"
    r"\\end\s*+\{array\}\s*+\\right\s*+\.?",
    re.S,
)
_PROSE = re.compile(r"[A-Za-z]{2,}")


def rewrite(text: str) -> str:
    """The text in spellings that the lexer takes; unchanged where none of the forms is met."""
    if "quad" in text:
        text = _APART.sub(", ", _GLUED.sub(r"\\\1 ", text))
    # `0x1F`, `0b101`: before the lexer, for which these are products with 0
    if text[:1] == "0":
        match = _PREFIXED.fullmatch(text)
        if match is not None:
            return _in_base(match, text)
    if "circ" in text and "'" in text:
        match = _ANGLE.fullmatch(text)
        if match is not None:
            return _in_degrees(match, text)
    if "_" in text and "^" in text:
        # `x^2_1` is the square of x_1, as TeX sets it
        text = _POWER_FIRST.sub(r"_\2^\1", text)
    if "mathbb" in text and "Z" in text:
        text = _QUOTIENT_RING.sub(r"\\mathbb{Z}_{\1}", text)
    if "{array}" in text and "\\right" in text:
        text = _ARRAY.sub(r"\\begin{cases}\1\\end{cases}", text)
    if "$" in text:
        text = _with_prose_upright(text)
    return text


def _in_base(match: re.Match[str], text: str) -> str:
    base = _BASES[match[1]]
    try:
        int(match[2], base)
    except ValueError:
        return text
    return f"{match[2].upper()}_{{{base}}}"


def _in_degrees(match: re.Match[str], text: str) -> str:
    """`60°42'` as 607/10 degrees; sixty minutes and more are no angle in this notation."""
    minutes, seconds = Fraction(match[3]), Fraction(match[4] or 0)
    if minutes >= 60 or seconds >= 60:
        return text
    value = int(match[2]) + minutes / 60 + seconds / 3600
    return f"{match[1]}\\frac{{{value.numerator}}}{{{value.denominator}}}^\\circ"


def _with_prose_upright(text: str) -> str:
    """`$n$ is odd` with its words in a text macro, so that no word of it is read as variables."""
    if "\\$" in text or text.count("$") % 2 or "$$" in text:
        return text
    parts = text.split("$")
    outside = parts[0::2]
    if not any(_PROSE.search(part) for part in outside):
        return text
    # commands outside of the dollars: the text is one formula with stray dollars
    if any("\\" in part or "{" in part or "}" in part for part in outside):
        return text
    return "".join(
        part if i % 2 else f"\\text{{{part}}}" if part.strip() else part for i, part in enumerate(parts)
    )
