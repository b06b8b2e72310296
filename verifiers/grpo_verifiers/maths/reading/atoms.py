"""Atoms: numbers, symbols, calls and number words."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.reading.cursor import END, Cursor
from grpo_verifiers.maths.reading.forms.calls import is_application
from grpo_verifiers.maths.reading.numerals import read_number
from grpo_verifiers.maths.reading.tokens.token import Token, Unreadable
from grpo_verifiers.maths.reading.tree import ONE, Node, add, number
from grpo_verifiers.maths.reading.words import FRACTION_WORDS, NUMBER_WORDS, number_of


def read_atom(cursor: Cursor) -> Node:
    """A number, a symbol, a word or a group."""
    token = cursor.peek()
    kind, value = token.kind, token.value
    if kind == "n":
        cursor.at += 1
        return read_number(cursor, value)
    if kind == "s":
        cursor.at += 1
        if value in ("e", "i", "imath"):
            # `e_1` is a basis vector, not Euler's number with an index
            if value == "e" and cursor.peek().value == "_":
                return ("s", "e")
            return ("c", "e" if value == "e" else "i")
        while cursor.peek().value == "'" and cursor.peek().kind == "o":
            cursor.at += 1
            value += "'"
        if (
            cursor.peek().value == "("
            and cursor.peek().kind == "o"
            and not cursor.peek().spaced
            and _is_call(cursor, value)
        ):
            cursor.at += 1
            return _read_call(cursor, value)
        if (
            value == "E"
            and cursor.peek().value == "["
            and cursor.peek(1).kind == "s"
            and cursor.peek(2).value == "]"
        ):
            cursor.at += 1  # an expectation, E[X]
            return ("f", "E", cursor.grammar.items(cursor, "]"))
        return ("s", value)
    if kind == "o":
        return cursor.grammar.bracketed(cursor, value)
    if kind == "c":
        cursor.at += 1
        return cursor.grammar.command(cursor, value)
    if kind == "w":
        return _read_word(cursor, token)
    raise Unreadable("an expression is missing")


def _read_call(cursor: Cursor, name: str) -> Node:
    """A function value after its opening bracket; `P(A | B)` has two arguments, gamma is a factorial."""
    if name == "P":
        in_set, cursor.in_set = cursor.in_set, 1  # the bar of a condition is no absolute value
        event = cursor.grammar.listing(cursor)
        cursor.in_set = in_set
        if cursor.take("|") or cursor.take("mid"):
            event = ("list", "|", (event, cursor.grammar.listing(cursor)))
        cursor.need(")")
        return ("f", name, tuple(event[2]) if event[0] == "list" else (event,))
    arguments = cursor.grammar.items(cursor, ")")
    # Gamma(n) = (n - 1)!
    if name == "Gamma" and len(arguments) == 1:
        return ("!", add([arguments[0], ("neg", ONE)]))
    return ("f", name, arguments)


def _is_call(cursor: Cursor, name: str) -> bool:
    """Whether a letter before a bracket is a function: `f(x)`, `P(X > 2)`, `V(2)`, `T(n - 1)`, or `T(n) = ...`."""
    if name[0] in "fghFGH" or name == "Gamma" or name.endswith("'"):
        return True
    if is_application(cursor.tokens, cursor.at, name):
        return True
    depth = 0
    for i in range(cursor.at, min(len(cursor.tokens), cursor.at + 40)):
        value = cursor.tokens[i].value
        depth += (value == "(") - (value == ")")
        if depth == 0:
            return i + 1 < len(cursor.tokens) and cursor.tokens[i + 1].value == "="
        if depth == 1 and cursor.tokens[i].value in ("=", "<", ">", "le", "ge", "mid", "|"):
            return name == "P"
    return False


def _read_word(cursor: Cursor, token: Token) -> Node:
    value = token.value
    if value == "$":
        cursor.at += 1
        # it comes before its number: `read_measured` makes a unit of it once the number is read
        cursor.currency = "dollar"
        return cursor.grammar.signed_power(cursor)
    words: list[str] = []
    while cursor.peek().kind == "w" and cursor.peek().value.lower().split("-")[0] in NUMBER_WORDS:
        words.append(cursor.peek().value.lower())
        cursor.at += 1
        if (
            cursor.peek().value == "-"
            and cursor.peek(1).kind == "w"
            and cursor.peek(1).value.lower() in NUMBER_WORDS
        ):
            cursor.at += 1
    if words:
        if len(words) > 1 and words[-1] in FRACTION_WORDS:
            top = number_of(words[:-1])
            if top is not None:
                return number(Fraction(top, FRACTION_WORDS[words[-1]]))
        value_of = number_of(words)
        if value_of is not None:
            return number(value_of)
    low = value.lower()
    if not words and low in ("negative", "minus") and cursor.peek(1) is not END:
        cursor.at += 1
        return ("neg", cursor.grammar.signed_power(cursor))
    if not words and low == "infinity":
        cursor.at += 1
        return ("inf",)
    if not words and low in ("approximately", "about", "roughly", "exactly", "only", "just"):
        cursor.at += 1
        return cursor.grammar.signed_power(cursor)
    raise Unreadable(f"a word: {value[:20]}")
