"""Multiple choice: does an answer name the gold's option, and no other?"""

from __future__ import annotations

import re

from grpo_verifiers.maths.reading.answers import plain

_WORD = r"(?:(?:the\s++)?(?:correct\s++|right\s++)?(?:answer|option|choice)\s*+(?:is)?\s*+:?\s*+)?"
_ALONE = re.compile(rf"\A{_WORD}[(\[]?\s*+([A-Ja-j])\s*+[)\].:]*", re.I)
_WITH_TEXT = re.compile(rf"\A{_WORD}(?:[(\[]\s*+([A-J])\s*+[)\]]\s*+:?|([A-J])\s*+[).:])\s*+(\S.*)", re.S)
_IS_RIGHT = re.compile(
    r"\A[(\[]?\s*+([A-J])(?:\s*+[)\]])?\s++is\s++(?:the\s++)?(?:correct|right)(?:\s++(?:answer|option|choice))?\.?"
)
_OTHER = re.compile(
    r"[(\[]\s*[A-J]\s*[)\]]|^\s*(?:or|and|,|/|;|&|to|-)\s*[(\[]?[A-J]\b|^[A-J][).:]|\bor\b|\b(?:not|wrong|incorrect)\b"
)
_LETTERS = re.compile(
    r"\A[(\[{]?\s*+[A-J]\s*+[)\]}]?(?:\s*+(?:,\s*+and|,|;|and|&)\s*+[(\[]?\s*+[A-J]\s*+[)\]}]?)+"
)


def option_of(text: str) -> str:
    """The one option letter (upper case) this answer names, or ``."""
    bold = re.fullmatch(
        r"\A\s*+\\(?:textbf|mathbf|text|mathrm)\s*+\{\s*+\(?\s*+([A-J])\s*+\)?\s*+[.:]?\s*+\}(?:\s|\\[ ,;:!]|~|\\q?quad|:)++(\S.*)",
        text,
        re.S,
    )
    # `(A) 3 or (B) 4` names two: what follows a letter must not name another one, or deny it
    if bold is not None and not _OTHER.search(plain(bold[2])):
        return bold[1]
    read = plain(text)
    match = _ALONE.fullmatch(read) or _IS_RIGHT.fullmatch(read)
    if match is not None:
        return match[1].upper()
    match = _WITH_TEXT.fullmatch(read)
    if match is not None and not _OTHER.search(match[3]):
        return match[1] or match[2]
    return ""


_GOLD_OPTION = re.compile(
    r"\A\s*+(?:\\(?:textbf|mathbf|text|mathrm)\s*+\{\s*+)?\(\s*+([A-J])\s*+\)\s*+(\})?(?:\s|\\[ ,;:!]|~|\\q?quad|:)*+(?(2)|(?:(?<!\})\}(?=.))?)(?:\s|~|\\ )*+(\S.*)",
    re.S,
)


def option_and_text(gold: str) -> tuple[str, str]:
    """Letter and text of a gold that gives both (`(B) 12`), or two empty strings."""
    match = _GOLD_OPTION.fullmatch(gold)
    return (match[1], match[3]) if match else ("", "")


def options_of(text: str) -> str:
    """Several option letters, sorted, or ``: `B, D` and `D and B` are `BD`; run together they keep their order."""
    read = plain(text)
    # run together they may be a sequence, which keeps its order
    if re.fullmatch(r"\(?[A-J]{2,8}\)?", read):
        return read.strip("()")
    if _LETTERS.fullmatch(read):
        return "".join(sorted(set(re.findall(r"[A-J]", read.replace("and", "")))))
    return ""
