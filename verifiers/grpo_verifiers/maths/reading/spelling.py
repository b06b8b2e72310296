"""Text to text, before the lexer: glyphs to LaTeX, thousands marks out of numbers.

How this works: `respell` rewrites what models type in Unicode into the commands that the lexer reads; `rewrite` turns
whole answers in another notation into one that the grammar has. All are linear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from grpo_verifiers.maths import patterns

Spellings = Sequence[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]]

_NOTATIONS: Spellings = (
    ("quad", patterns.GLUED, r"\\\1 "),
    ("quad", patterns.APART, ", "),
    ("^", patterns.POWER_FIRST, r"_\2^\1"),  # `x^2_1` is the square of x_1, as TeX sets it
    ("mathbb", patterns.QUOTIENT_RING, r"\\mathbb{Z}_{\1}"),
    ("{array}", patterns.ARRAY, r"\\begin{cases}\1\\end{cases}"),
)
"""What a text must hold to be looked through, what is looked for, and how the lexer takes it."""


def respelt(text: str, spellings: Spellings) -> str:
    """The text with each of these in the other spelling."""
    for mark, pattern, spelling in spellings:
        if mark in text:  # cheaper than the search, which most answers do not need
            text = pattern.sub(spelling, text)
    return text


def rewrite(text: str) -> str:
    """The text in notations that the lexer takes; unchanged where none of the others is met."""
    text = respelt(text, _NOTATIONS)
    return _with_prose_upright(text) if "$" in text else text


def _with_prose_upright(text: str) -> str:
    """`$n$ is odd` with its words in a text macro, so that no word of it is read as variables."""
    if "\\$" in text or text.count("$") % 2 or "$$" in text:
        return text
    parts = text.split("$")
    outside = parts[0::2]
    if not any(patterns.PROSE.search(part) for part in outside):
        return text
    # commands outside of the dollars: the text is one formula with stray dollars
    if any("\\" in part or "{" in part or "}" in part for part in outside):
        return text
    return "".join(part if i % 2 else f"\\text{{{part}}}" if part.strip() else part for i, part in enumerate(parts))


_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿˣⁱ", "0123456789+-()nxi", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₓᵢ", "0123456789+-()nxi", strict=True))
_FRACTIONS = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5), "⅘": (4, 5),
    "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8), "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
_GREEK_NAMES = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu",
    "nu", "xi", "pi", "rho", "sigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma",
    "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "phi", "epsilon", "theta",
    "mu",
]  # fmt: skip
_GREEK = dict(zip("αβγδεζηθικλμνξπρσςτυφχψωΓΔΘΛΞΠΣΦΨΩϕϵϑµ", _GREEK_NAMES, strict=True))
_GLYPHS: dict[str, str] = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "‒": "-", "﹣": "-", "－": "-", "×": "\\times ", "✕": "\\times ", "⨯": "\\times ",
    "·": "\\cdot ", "⋅": "\\cdot ", "∙": "\\cdot ", "•": "\\cdot ", "∗": "*", "÷": "\\div ", "∕": "/", "⁄": "/", "∶": ":",
    "√": "\\sqrt ", "∛": "\\sqrt[3]", "∜": "\\sqrt[4]", "∞": "\\infty ", "±": "\\pm ", "∓": "\\mp ",
    "≤": "\\le ", "≥": "\\ge ", "⩽": "\\le ", "⩾": "\\ge ", "≦": "\\le ", "≧": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "≅": "\\cong ",
    "≡": "\\equiv ", "∪": "\\cup ", "∩": "\\cap ", "∖": "\\setminus ", "∈": "\\in ", "∉": "\\notin ", "∅": "\\emptyset ", "⌀": "\\emptyset ",
    "ø": "\\emptyset ", "Ø": "\\emptyset ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℚ": "\\mathbb{Q}", "ℕ": "\\mathbb{N}", "ℂ": "\\mathbb{C}",
    "°": "^\\circ ", "˚": "^\\circ ", "º": "^\\circ ", "∘": "^\\circ ", "℃": "^\\circ C", "′": "'", "’": "'", "‘": "'", "″": "''",
    "…": "\\ldots ", "⋯": "\\ldots ", "→": "\\to ", "⇒": "\\Rightarrow ", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ",
    "⟨": "\\langle ", "⟩": "\\rangle ", "∣": "|", "∥": "\\|", "∠": "\\angle ", "△": "\\triangle ", "∧": "\\land ", "∨": "\\lor ", "¬": "\\neg ",
    "∫": "\\int ", "∑": "\\sum ", "∏": "\\prod ", "∀": "\\forall ", "∃": "\\exists ", "£": "\\pounds ", "€": "\\euro ", "¥": "\\yen ",
    "₹": "\\rupee ", "¢": "\\cents ", "，": ",", "；": ";", "：": ":", "（": "(", "）": ")", "、": ",", "。": ".", "％": "\\%", "‰": "\\permil ",
    "\u2062": "*", "\u2061": "", "\u2064": "+",
    "一": "1", "二": "2", "三": "3", "四": "4", "五": "5", "六": "6", "七": "7", "八": "8", "九": "9", "十": "10", "零": "0",
}  # fmt: skip
_INVISIBLE = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, 0xFEFF, 0xAD, *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20)]
)
_SPACES = {0xA0: " ", 0x202F: "\\,", 0x2009: "\\,", 0x200A: "\\,", 0x2002: " ", 0x2003: " ", 0x3000: " "}
_TABLE: dict[int, str | None] = {
    **{ord(k): v for k, v in _GLYPHS.items()},
    **{ord(k): f"\\{v} " for k, v in _GREEK.items()},
    **_INVISIBLE,
    **_SPACES,
}
_SUP_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_SUB_RUN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_FRACTION = re.compile(f"[{''.join(_FRACTIONS)}]")


def _mixed(match: re.Match[str]) -> str:
    top, bottom = _FRACTIONS[match.group()]
    return f"\\frac{{{top}}}{{{bottom}}}"


def respell(text: str) -> str:
    """The same text with Unicode mathematics written in LaTeX; control characters are dropped."""
    if text.isascii():
        return patterns.CONTROL.sub("", text) if patterns.CONTROL.search(text) else text
    text = _FRACTION.sub(_mixed, text)
    text = _SUP_RUN.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m.group()) + "}", text)
    text = _SUB_RUN.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m.group()) + "}", text)
    text = patterns.OVERLINED.sub(lambda m: "\\overline{" + re.sub("[\u0305\u0304]", "", m.group()) + "}", text)
    text = patterns.DOTTED.sub(r"\\dot{\1}", text)
    text = text.replace("根号下", "√").replace("根号", "√").translate(_TABLE)
    if not text.isascii():
        # last of all: it makes a plain 2 of a raised one, so that `x²` would be `x2`
        text = unicodedata.normalize("NFKC", text).translate(_TABLE)
    return text
