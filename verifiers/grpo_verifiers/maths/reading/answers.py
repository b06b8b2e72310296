"""From the text of an answer to something that can be compared: a tree, words, or nothing but its tokens.

How this works: `read_answer` tidies the text, takes the short way for plain numbers, else cuts the text into tokens,
tries the forms that the grammar lacks (`forms`, quantities in two units), and last the grammar (`reader`). What cannot be
read keeps its words, its tokens and the reason.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from typing import NamedTuple

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading import forms
from grpo_verifiers.maths.reading.lexer import canonical, lex
from grpo_verifiers.maths.reading.reader import label_of, read
from grpo_verifiers.maths.reading.spelling import Spellings, respell, respelt, rewrite
from grpo_verifiers.maths.reading.tokens import Token, Unreadable
from grpo_verifiers.maths.reading.tree import Node, number
from grpo_verifiers.maths.reading.units import read_compound
from grpo_verifiers.maths.reading.vocabulary import names
from grpo_verifiers.maths.reading.words import HEDGES, PLACEHOLDERS, number_of, plain_words


class Answer(NamedTuple):
    """`tree` if it could be read as mathematics; `words` if it is (or may be) words; `tokens` its layout-free text."""

    text: str
    tokens: str
    tree: Node | None = None
    words: str = ""
    as_list: Node | None = None
    fault: str = ""
    capitals: str = ""
    """Two capitals or more and nothing else: a sequence, whose order counts."""
    label: tuple[str, ...] = ()
    """Words that named the value and are not in the tree."""
    parts: tuple[Answer, ...] = ()
    """The answers to the parts of a question, in their order, where they are labelled."""


MOST_DIGITS = 4_000
"""Of a whole answer: Python refuses to read whole numbers of more than 4,300."""
_OUTER = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"), ('"', '"'))
_COINS = {"R": "rupees", "I": "rupees", "E": "euros", "G": "gbp", "U": "dollars"}
NOT_STATED = HEDGES | names("wrong incorrect false other one some first not never next previous")
_PHRASE_TREES: dict[str, Node] = {
    "infinity": ("inf",), "positive infinity": ("inf",), "negative infinity": ("neg", ("inf",)),
    "minus infinity": ("neg", ("inf",)), "infinitely many": ("inf",), "all real": ("all", "R"),
    "no solution": ("set", ()), "positive real": ("all", "R+"), "positive real number": ("all", "R+"),
    "negative real number": ("all", "R-"), "nonnegative real": ("all", "R+0"),
    "nonnegative real number": ("all", "R+0"), "non negative real number": ("all", "R+0"), "integer": ("all", "Z"),
}  # fmt: skip


def tidy(text: str) -> str:
    """Outer dollars, stops and line breaks dropped, Unicode rewritten."""
    text = respell(text).strip()
    if "\\prime" in text:
        text = patterns.PRIMES.sub(lambda m: "'" * m[1].count("prime"), text)
    if "dollar" in text and "\\" in text:
        text = patterns.DOLLAR_MACRO.sub(r"\\$", text)
    # bold in dollars in bold: a few rounds, however many layers a hostile text has
    for _ in range(6):
        before = text
        if text.endswith(("\\,", "\\;", "\\:", "\\!", "\\ ")):
            text = text[:-2]
        elif not text.endswith("..."):
            text = text.rstrip(" \t\n.,;:")
        text = text.lstrip(" \t\n,;:")
        text = text.rstrip("\\")
        for left, right in _OUTER:
            if text.startswith(left) and text.endswith(right) and len(text) > len(left) + len(right):
                inner = text[len(left) : -len(right)]
                # `$a$ and $b$` begins and ends with a dollar and is not one formula
                if left[-1] not in inner.replace("\\$", "") or (
                    len(left) == 2 and left not in inner and right not in inner
                ):
                    text = inner.strip()
        if text[:1] in ("{", "\\"):
            text = _undressed(text)
        if text == before:
            break
    # behind a word it is an exclamation mark, behind a value a factorial
    if "!" in text and patterns.EXCLAIMED.search(text):
        text = text.rstrip("!")
    return text


def _undressed(text: str) -> str:
    """The text without a style before all of it and without braces around all of it, plain or bold: none of them is shown as a mark."""
    text = patterns.STYLE.sub("", text)
    opened = patterns.BRACED.match(text)
    if opened is None or text[-1] != "}":
        return text
    depth = 0
    for mark in patterns.BRACE.finditer(text, opened.end() - 1):
        depth += (mark.group() == "{") - (mark.group() == "}")
        if depth == 0:
            inner = text[opened.end() : mark.start()].strip()
            # bold letters may name a vector
            is_whole = mark.end() == len(text) and inner and not (opened[1] and inner.isalpha())
            return inner if is_whole else text
    return text


def plain(text: str) -> str:
    """Text macros and dollars removed, spaces narrowed: what a person would read."""
    for _ in range(4):
        if "\\" not in text:
            break
        text = patterns.MACRO.sub("{", text)
        text = patterns.LAYOUT.sub(" ", text)
    text = (
        text.replace("\\$", "")
        .replace("$", "")
        .replace("\\%", "%")
        .replace("{", "")
        .replace("}", "")
        .replace("\\", " ")
    )
    return patterns.BLANKS.sub(" ", text).strip()


def _plain_number(text: str) -> Answer | None:
    """A whole number, a decimal or a fraction of whole numbers, which most answers are: what the readers below make of it."""
    match = patterns.PLAIN.fullmatch(text)
    if match is None:
        return None
    sign, whole, digits, top, bottom = match.groups()
    tree: Node
    if whole is not None:
        shown = whole if digits is None else f"{whole}.{digits}"
        tree = number(int(whole)) if digits is None else ("n", Fraction(shown), len(digits))
    else:
        shown = " ".join(("frac", *(part if len(part) == 1 else f"{{ {part} }}" for part in (top, bottom))))
        tree = ("/", number(int(top)), number(int(bottom)))
    return Answer(text.strip(), f"- {shown}", ("neg", tree)) if sign else Answer(text.strip(), shown, tree)


def read_answer(text: str) -> Answer:
    """Everything that can be known about an answer without its gold. Never raises."""
    # counted before anything reads them: `int` refuses longer numbers, and takes time with the square of the digits
    if len(text) > MOST_DIGITS and sum(map(str.isdigit, text)) > MOST_DIGITS:
        return Answer(text, text, fault="too many digits")
    plain_number = _plain_number(text)
    return _read(text) if plain_number is None else plain_number


def _read(text: str) -> Answer:
    dressed = rewrite(tidy(text))
    kind = patterns.KIND_WORD.match(dressed) if dressed[:1] == "\\" else None
    called = tuple(patterns.KIND_CALLED.findall(kind.group().lower())) if kind is not None else ()
    clean = _undress(dressed)
    # doubled brackets around all of it are no tuple of a tuple
    if clean.startswith("(("):
        wrapped = patterns.WRAPPED.fullmatch(clean)
        if wrapped and len(wrapped[1]) == len(wrapped[3]):
            clean = f"({wrapped[2]})"
    if "(" in clean:
        clean = patterns.ASIDE.sub("", clean).strip() or clean
    brackets = "(" in clean or "[" in clean or "{" in clean
    try:
        # a comma parts coordinates where brackets stand around it, and may mark thousands elsewhere
        tokens = lex(clean, commas=not _splits(clean) if brackets else True)
    except (Unreadable, RecursionError) as err:
        return Answer(clean, clean, None, plain(clean), None, str(err))
    shown = canonical(tokens)
    words = _words(clean, tokens)
    parts = _parts(clean)
    # labelled parts are answers of their own: `match` compares them one by one
    if parts:
        return Answer(clean, shown, None, words or plain(clean), parts=parts)
    tree, fault = _tree(tokens)
    form = _form(clean, tokens, words, tree)
    tree = tree if form is None else form
    # `1,234` is a number or a list of two: both readings are kept, and the gold's shape picks one
    as_list = None
    if tree is not None and "," in clean and patterns.PLAIN_THOUSANDS.search(clean) is not None:
        with suppress(Unreadable, RecursionError):
            as_list = read(lex(clean, commas=False))
    phrase = _PHRASE_TREES.get(plain_words(words)) if words else None
    if phrase is not None:
        tree = phrase
    label = label_of(tokens) if (words or "\\angle" in clean) and tree is not None and tree[0] != "list" else ()
    return Answer(clean, shown, tree, words, as_list, fault, forms.capitals_of(clean), label or called)


def _parts(clean: str) -> tuple[Answer, ...]:
    """The answers behind `(a)`, `(b)` and so on; none if one of them has no value that can be compared."""
    texts = forms.split_parts(clean) if ")" in clean and clean[:1] in "(\\abi12pP" else None
    if texts is None:
        return ()
    read_parts = tuple(map(read_answer, texts))
    # a part that was not read must not leave the verdict to the others
    return read_parts if all(part.tree is not None or part.words for part in read_parts) else ()


def _said_twice(match: re.Match[str]) -> str:
    """`12` for `12 (twelve)`, if the words name the number."""
    return match[1] if number_of(match[2].lower().split()) == int(match[1]) else match.group()


def _unit_quotient(match: re.Match[str]) -> str:
    top, n, bottom, m = match.groups()
    return f"\\text{{ {top}{'^' + n if n else ''}/{bottom}{'^' + m if m else ''}}}"


def _stated(match: re.Match[str]) -> str:
    """Nothing for `The number of ways is` before its value; what follows in the same macro stays text."""
    if NOT_STATED & set(match[1].lower().split()):
        return match.group()
    return "" if match[2] else "\\text{"


_DRESSES: Spellings = (
    ("{\\", patterns.UNIT_FRACTION, _unit_quotient),
    (
        "\\text",
        patterns.EXCEPT,
        r"\\mathbb{R}\\setminus\\{\1\\}",
    ),  # `all reals except 2` is a difference of sets in words
    ("\\text", patterns.CONDITION, ","),
    ("\\mu", patterns.MICRO, r"\\text{ u\1}"),
    ("circ", patterns.CELSIUS, r"\\text{ celsius}"),
    ("Omega", patterns.OHMS, r"\\text{ ohm}"),
    ("", patterns.MONEY, lambda m: f"{m[1]}{m[3]}\\text{{ {_COINS[m[2][0]]}}}"),
    ("\\", patterns.SENTENCE, _stated),
    ("\\", patterns.KIND_WORD, ""),
    ("", patterns.WORD_SENTENCE, r"\1"),
    ("nswer", patterns.STATED, ""),
    ("(", patterns.IN_WORDS, _said_twice),
)
"""What only dresses an answer: units, money and sentences, in the spellings that the lexer takes."""


def _undress(clean: str) -> str:
    """The answer without what only dresses it."""
    clean = respelt(clean, _DRESSES)
    if "\\" in clean:
        clean = patterns.DECORATION.sub("", patterns.ARROW.sub("", clean)).strip() or clean
        clean = patterns.BRACKETED_UNIT.sub(r"\\text{ \1\2}", clean)
    if ("since" in clean or "because" in clean) and (reason := patterns.REASON.search(clean)):
        head = clean[: reason.start()].rstrip(" ,;\\")
        clean = head + "}" * (head.count("{") - head.count("}")) if head else clean
    return clean


def _form(clean: str, tokens: list[Token], words: str, tree: Node | None) -> Node | None:
    """What the grammar does not know: residue classes, quantities in two units, ranges in words."""
    if "mod" in clean and any(t.value in forms.MARKS for t in tokens):
        return forms.read_residues(tokens)
    if words:
        said = plain(clean)
        for reader in (read_compound, forms.read_date, forms.read_chance):
            if found := reader(said):
                return found
        return forms.read_range(clean, words)
    return forms.read_date("".join(t.value for t in tokens)) if len(tokens) == 5 and not tokens[1].spaced else None


def _splits(text: str) -> bool:
    """Whether plain commas inside brackets part coordinates."""
    depth = 0
    for mark in text.replace("\\{", "(").replace("\\}", ")"):
        depth += (mark in "([") - (mark in ")]")
        if mark == "," and depth > 0:
            return True
    return False


def _tree(tokens: list[Token]) -> tuple[Node | None, str]:
    try:
        # `> 12` has no left side, which the grammar asks for
        half = forms.read_half(tokens)
        return read(tokens) if half is None else half, ""
    except Unreadable as err:
        return None, str(err)
    except RecursionError:
        return None, "nested too deep"


def _words(text: str, tokens: list[Token]) -> str:
    # a unit of one letter does not make a text
    if any(t.kind == "w" and len(t.value) > 1 and t.value != "$" for t in tokens):
        return plain(text)
    letters = patterns.TEXT_LAYOUT.sub("", text)
    return plain(text) if letters.isalpha() and len(letters) > 1 else ""


def shown(answer: Answer) -> str:
    """What was read, for people: a tree as `kind(parts)`, parts by their order, else the words, or the text with the reason."""
    if answer.parts:
        return "parts(" + ", ".join(map(shown, answer.parts)) + ")"
    if answer.tree is None:
        return f"words({answer.words})" if answer.words else f"unread({answer.text}: {answer.fault})"

    def drawn(node: object) -> str:
        if not isinstance(node, tuple):
            return "-" if node is None else str(node)
        if node and node[0] in ("n", "s", "c"):
            return str(node[1])
        kind, rest = (node[0], node[1:]) if node and isinstance(node[0], str) else ("", node)
        if kind in ("+", "*", "/", "^"):
            return "(" + f" {kind} ".join(map(drawn, rest)) + ")"
        if kind in ("tuple", "list", "set"):
            left, right = rest[:2] if kind == "tuple" else "[]" if kind == "list" else "{}"
            return left + drawn(rest[-1]) + right
        if kind == "rel":
            return " ".join([drawn(rest[0]), *(f"{op} {drawn(part)}" for op, part in rest[1])])
        return f"{kind}({', '.join(map(drawn, rest))})" if kind else ", ".join(map(drawn, node))

    return drawn(answer.tree)


def is_hedge(words: str) -> bool:
    """Whether an answer in words leaves itself a way out."""
    return any(word in HEDGES for word in patterns.SMALL_WORDS.findall(words.lower()))


def is_placeholder(words: str) -> bool:
    """Whether it is a template's text."""
    return plain_words(words) in PLACEHOLDERS or words.lower().strip() in PLACEHOLDERS
