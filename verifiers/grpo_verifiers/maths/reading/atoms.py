"""Atoms: numbers, symbols, calls and number words.

How this works: `read_atom` reads the one thing at the cursor. Above it stand numbers as written (decimals, recurring
digits, mixed numbers) and the decision whether a letter before a bracket is a function or a factor: wrongly read as a
factor it would pay `V` for `V(2) - V(1)`.
"""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.reading.tokens import END, Cursor, Token, TooBig, Unreadable
from grpo_verifiers.maths.reading.tree import ONE, Node, add, mul, number
from grpo_verifiers.maths.reading.words import FRACTION_WORDS, NUMBER_WORDS, number_of

_ARGUMENTS = frozenset(("t", "x", "n", "z", "k", "m", "s", "r", "y", "theta", "tau"))
_INDICES = frozenset("ijkmn")
_PLAIN = frozenset(("+", "-", "/", "*", "frac", "{", "}"))
_GREEK = frozenset(("phi", "psi", "Phi", "Psi"))


def read_mixed(cursor: Cursor, whole: Node) -> Node:
    """`1 1/4`: a whole number, a gap and a fraction of whole numbers."""
    top, slash, bottom = cursor.peek(), cursor.peek(1), cursor.peek(2)
    if (
        whole[0] != "n"
        or whole[2] is not None
        or slash.value != "/"
        or bottom.kind != "n"
        or not (top.value + bottom.value).isdigit()
    ):
        raise Unreadable("two numbers side by side")
    cursor.at += 3
    if int(bottom.value) == 0:
        raise Unreadable("a division by zero")
    return number(whole[1] + Fraction(int(top.value), int(bottom.value)))


def read_mixed_fraction(cursor: Cursor, whole: Node) -> Node:
    r"""`1\frac14`, or the product where the fraction is no plain one; the percent or degree sign belongs to all of it."""
    part = cursor.grammar.power(cursor)
    if part[0] in ("pct", "deg"):
        mixed = _mixed_value(cursor, whole, part[1])
        return (part[0], mixed) if mixed is not None else marked(whole, part)
    mixed = _mixed_value(cursor, whole, part)
    return mixed if mixed is not None else mul(whole, part)


def _mixed_value(cursor: Cursor, whole: Node, part: Node) -> Node | None:
    plain = part[0] == "/" and part[1][0] == part[2][0] == "n" and part[1][2] is None and part[2][2] is None
    if whole[2] is None and plain and part[2][1] != 0:
        return number(whole[1] + part[1][1] / part[2][1])
    return None


def read_number(cursor: Cursor, value: str) -> Node:
    """A number literal after its token: decimals with a bar or dots, powers of ten."""
    after = cursor.peek()
    if "." in value:
        whole, _, digits = value.partition(".")
        if after.value in ("overline", "dot") and after.kind == "c" and digits.isdigit() | (digits == ""):
            return _read_bar(cursor, whole, digits)
        if (
            after.value == "("
            and not after.spaced
            and cursor.peek(1).kind == "n"
            and cursor.peek(1).value.isdigit()
            and cursor.peek(2).value == ")"
        ):
            block = cursor.peek(1).value
            cursor.at += 3
            return recurring(whole, digits, block)
    if "e" in value or "E" in value:
        mantissa, _, exponent = value.lower().partition("e")
        # left as a power: digits by the thousand would be written out for nothing
        if abs(int(exponent)) > 4000:
            return mul(read_number(cursor, mantissa), ("^", number(10), number(int(exponent))))
        digits = mantissa + "0" if mantissa.endswith(".") else mantissa
        # no places: written in powers of ten it does not show to how many decimals it was rounded
        return ("n", Fraction(digits) * Fraction(10) ** int(exponent), None)
    if "." in value:
        digits = value.partition(".")[2]
        return ("n", Fraction(value if digits else value[:-1]), len(digits) if digits else None)
    return ("n", Fraction(int(value)), None)


def _read_bar(cursor: Cursor, whole: str, digits: str) -> Node:
    """`0.1\\overline{6}` and `0.\\dot{3}`, also dots over the first and last digit of the period."""
    block = ""
    name = cursor.peek().value
    while cursor.peek().value == name and cursor.peek().kind == "c":
        cursor.at += 1
        braced = cursor.take("{")
        if cursor.peek().kind != "n" or not cursor.peek().value.isdigit():
            raise Unreadable("a bar over no digits")
        block += cursor.peek().value
        cursor.at += 1
        if braced:
            cursor.need("}")
        if name == "dot" and cursor.peek().kind == "n" and cursor.peek(1).value == "dot":
            block += cursor.peek().value
            cursor.at += 1
    if not block:
        raise Unreadable("a bar over no digits")
    if cursor.peek().value == "ldots":
        cursor.at += 1
    return recurring(whole, digits, block)


def read_repeating(cursor: Cursor, node: Node, text: str) -> Node:
    """`0.333...`: digits that repeat at least twice before the dots."""
    whole, _, digits = text.partition(".")
    # the shortest period that came twice
    for period in range(1, len(digits) // 2 + 1):
        block = digits[-period:]
        repeats = 1
        while digits[: len(digits) - period * repeats].endswith(block):
            repeats += 1
        if repeats >= 2:
            head = digits[: len(digits) - period * repeats]
            return recurring(whole, head, block)
    return node


def recurring(whole: str, head: str, block: str) -> Node:
    """The exact value of whole.head(block)(block)..."""
    if len(head) + len(block) > 300:
        raise TooBig("too many digits")
    shift = 10 ** len(head)
    # 0.h(b) = h / 10^len(h) + b / (10^len(h) (10^len(b) - 1))
    value = Fraction(int(whole or "0") * shift + int(head or "0"), shift) + Fraction(
        int(block), shift * (10 ** len(block) - 1)
    )
    return number(value)


def marked(left: Node, right: Node) -> Node:
    """A product whose last factor carries a percent or degree sign: the sign belongs to all of it."""
    if left[0] == "deg" and right[0] == "n":
        # `30^\circ 15` has lost its mark of minutes
        raise Unreadable("a factor behind degrees")
    if right[0] in ("pct", "deg"):
        return (right[0], mul(left, right[1]))
    return mul(left, right)


# Is a letter before a bracket a function or a factor? What is only perhaps a product is read as a value of a function:
# such an answer is right if it is written as the gold is.


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
    # whether the letter stands only before brackets, and not before the same ones
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
            # a function value after its opening bracket; `P(A | B)` has two arguments, gamma is a factorial
            if value == "P":
                in_set, cursor.in_set = cursor.in_set, 1  # the bar of a condition is no absolute value
                event = cursor.grammar.listing(cursor)
                cursor.in_set = in_set
                if cursor.take("|") or cursor.take("mid"):
                    event = ("list", "|", (event, cursor.grammar.listing(cursor)))
                cursor.need(")")
                return ("f", value, tuple(event[2]) if event[0] == "list" else (event,))
            arguments = cursor.grammar.items(cursor, ")")
            if value == "C" and len(arguments) == 2:
                return ("binom", *arguments)
            # Gamma(n) = (n - 1)!
            if value == "Gamma" and len(arguments) == 1:
                return ("!", add([arguments[0], ("neg", ONE)]))
            return ("f", value, arguments)
        if value == "E" and cursor.peek().value == "[" and cursor.peek(1).kind == "s" and cursor.peek(2).value == "]":
            cursor.at += 1  # an expectation, E[X]
            return ("f", "E", cursor.grammar.items(cursor, "]"))
        return ("s", value)
    if kind == "b":
        cursor.at += 1
        digits, _, base = value.partition("_")
        return ("base", digits, int(base))
    if kind == "o" and value in ("_", "^"):
        return _counted(cursor)
    if kind == "o":
        return cursor.grammar.bracketed(cursor, value)
    if kind == "c":
        cursor.at += 1
        return cursor.grammar.command(cursor, value)
    if kind == "w":
        return _read_word(cursor, token)
    raise Unreadable("an expression is missing")


def _counted(cursor: Cursor) -> Node:
    """`_5C_2` and `_5P_2`: combinations and permutations in the notation of school books.

    Raises:
        Unreadable: something else stands behind the index.
    """
    cursor.at += 1
    n, how = read_atom(cursor), cursor.peek().value
    if how not in ("C", "P") or cursor.peek(1).value != "_":
        raise Unreadable("an index without its letter")
    cursor.at += 2
    k = read_atom(cursor)
    return ("binom", n, k) if how == "C" else ("/", ("!", n), ("!", add([n, ("neg", k)])))


def _is_call(cursor: Cursor, name: str) -> bool:
    """Whether a letter before a bracket is a function: `f(x)`, `P(X > 2)`, `V(2)`, `T(n - 1)`, or `T(n) = ...`."""
    if name[0] in "fghFGH" or name == "Gamma" or name.endswith("'"):
        return True
    if is_application(cursor.tokens, cursor.at, name):
        return True
    inside = cursor.tokens[cursor.at + 1 : cursor.at + 5]
    if name == "C" and "".join(t.kind for t in inside).replace("s", "n") == "nono" and inside[1].value == ",":
        return True  # C(5, 2), C(n, k)
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
        if cursor.peek().value == "-" and cursor.peek(1).kind == "w" and cursor.peek(1).value.lower() in NUMBER_WORDS:
            cursor.at += 1
    if words:
        if len(words) > 1 and words[-1] in FRACTION_WORDS:
            top = number_of(words[:-1])
            if top is not None:
                return number(Fraction(top, FRACTION_WORDS[words[-1]]))
        if words == ["half"]:
            while cursor.peek().value in ("a", "an", "of"):
                cursor.at += 1
            return number(Fraction(1, 2))
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
    if not words and low in ("constant", "const"):  # of integration, behind a plus
        cursor.at += 1
        return ("s", "C")
    if not words and low in ("approximately", "about", "roughly", "exactly", "only", "just"):
        cursor.at += 1
        return cursor.grammar.signed_power(cursor)
    raise Unreadable(f"a word: {value[:20]}")
