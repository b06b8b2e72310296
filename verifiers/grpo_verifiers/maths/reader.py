r"""Tokens to a tree, by recursive descent. Nothing is evaluated; what would have to be (sums, integrals, limits) is refused.

Loosest to tightest: list separators, relations, unions, `:`, sums, products (written or implied), powers and marks.
"""

from __future__ import annotations

import re
from fractions import Fraction

from grpo_verifiers.maths.lexer import FUNCTIONS, Token, TooBig, Unreadable
from grpo_verifiers.maths.tree import ONE, Node, add, contains, mul, number, symbols
from grpo_verifiers.maths.units import GENERIC, SCALES, canonical_unit
from grpo_verifiers.maths.words import FRACTION_WORDS, HEDGES, NOT_NOUNS, NUMBER_WORDS, number_of

DEPTH = 60
_END = Token("o", "")
_RELATIONS = {
    "=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "le": "<=", "ge": ">=", "ne": "!=", "approx": "~", "to": "to",
    "=>": "to", "->": "to", "sim": "~", "in": "in", "notin": "notin", "equiv": "=", "subset": "subset", "subseteq": "subset", "propto": "propto",
}  # fmt: skip
_REFUSED = frozenset(
    [
        "sum",
        "prod",
        "int",
        "iint",
        "iiint",
        "oint",
        "lim",
        "det",
        "gcd",
        "lcm",
        "bmod",
        "pmod",
        "mod",
        "partial",
        "nabla",
        "limsup",
        "liminf",
        "sup",
        "forall",
        "exists",
        "neg",
        "angle",
        "perp",
        "parallel",
        "triangle",
        "measuredangle",
        "Re",
        "Im",
        "deg",
        "dim",
        "ker",
        "Pr",
        "hom",
        "operatorname",
        "limits",
        "odot",
        "otimes",
        "oplus",
        "star",
        "dagger",
        "overbrace",
        "underbrace",
        "overset",
        "underset",
        "stackrel",
        "substack",
        "xrightarrow",
        "input",
        "write",
        "include",
        "def",
        "newcommand",
        "url",
    ]
)
_TRIG = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "sinh",
        "cosh",
        "tanh",
        "coth",
        "arcsin",
        "arccos",
        "arctan",
        "arccot",
        "arcsec",
        "arccsc",
    ]
)
_INVERSE = {
    "sin": "arcsin",
    "cos": "arccos",
    "tan": "arctan",
    "cot": "arccot",
    "sec": "arcsec",
    "csc": "arccsc",
}
_CURRENCIES = {
    "$": "dollar",
    "pounds": "gbp",
    "euro": "euro",
    "yen": "yen",
    "rupee": "rupee",
    "cents": "cent",
}
_SETS = {"setR": "R", "setZ": "Z", "setN": "N", "setQ": "Q", "setC": "C", "Reals": "R"}
_CLOSERS = frozenset(
    (")", "]", "}", "rangle", "rfloor", "rceil", "|", "end:matrix", "end:array", "end:cases", "endaligned")
)
_PERCENT_WORDS = frozenset(("percent", "percentage", "pct", "percents"))
_UNIT_STOP = frozenset(("and", "or"))


class Reader:
    """One pass over a token list."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.in_set = 0
        self.currency: str | None = None

    # tokens

    def peek(self, ahead: int = 0) -> Token:
        i = self.at + ahead
        return self.tokens[i] if i < len(self.tokens) else _END

    def take(self, value: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].value == value:
            self.at += 1
            return True
        return False

    def need(self, value: str) -> None:
        if not self.take(value):
            raise Unreadable(f"`{value}` is missing")

    # lists and relations

    def answer(self) -> Node:
        """The whole token list as one node.

        Raises:
            Unreadable: it is not one.
        """
        node = self.listing()
        if self.at < len(self.tokens):
            raise Unreadable(f"left over: {self.peek().value[:20]}")
        return node

    def _separator(self) -> str:
        """Consume list separators; what joined: `` (nothing), `,`, `and` or `or`."""
        joined = ""
        while True:
            token = self.peek()
            value = token.value
            if token.kind == "o" and value in (",", ";", "&"):
                joined = joined or ","
            elif value in ("and", "or") and token.kind in ("w", "c"):
                joined = value
            elif value == "newline":
                joined = joined or ","
            elif value in ("beginaligned", "endaligned"):
                joined = joined or " "
            else:
                return joined
            self.at += 1

    def listing(self) -> Node:
        """Items parted by separators; a single item is itself."""
        self._separator()
        if self.peek().value in ("either", "both") and self.peek().kind == "w":
            self.at += 1
        items = [self.relation()]
        joiner = ","
        while True:
            self._skip_qualifier()
            joined = self._separator()
            if not joined:
                break
            if joined in ("or", "and"):
                joiner = joined if joiner in (",", joined) else "or"
            token = self.peek()
            if token is _END or (token.value in _CLOSERS and not (token.value == "|" and not self.bars)):
                break
            items.append(self.relation())
        items = _without_ranges(items)
        return items[0] if len(items) == 1 else ("list", joiner, tuple(items))

    def _at_qualifier(self) -> bool:
        word = self.peek().value
        return word == "forall" or (word == "for" and self.peek(1).value in ("all", "every", "any", "each"))

    def _skip_qualifier(self) -> None:
        """`for all x in R` after an item says nothing about its value."""
        word = self.peek().value
        if not (
            word == "forall" or (word == "for" and self.peek(1).value in ("all", "every", "any", "each"))
        ):
            return
        depth = 0
        while self.peek() is not _END:
            token = self.peek()
            depth += (token.value in ("(", "{", "[")) - (token.value in (")", "}", "]"))
            if depth < 0 or token.value == "newline" or (depth == 0 and token.value in ("and", "or")):
                return
            self.at += 1

    def relation(self) -> Node:
        """An item: an expression, a chain of relations, with its unit."""
        while self.peek().value in ("=", "approx", "therefore"):
            self.at += 1
        self._skip_label()
        if self.peek().value == "&":
            self.at += 1
        first = self._measured()
        links: list[tuple[str, Node]] = []
        while True:
            self._join_rows()
            token = self.peek()
            op = _RELATIONS.get(token.value)
            if op is None or token.kind == "s" or (token.kind == "w"):
                break
            self.at += 1
            if op in ("subset", "propto"):
                raise Unreadable(f"a relation `{op}`")
            while self.peek().value in ("&", "=", "approx"):
                self.at += 1
            links.append((op, self._measured()))
        return ("rel", first, tuple(links)) if links else first

    def _join_rows(self) -> None:
        """In aligned rows a relation that starts a row goes on from the row before."""
        ahead = 0
        while self.peek(ahead).value in ("&", "newline"):
            ahead += 1
        if ahead and self.peek(ahead).value in _RELATIONS and self.peek(ahead).kind in ("o", "c"):
            self.at += ahead

    def _skip_label(self) -> None:
        """`Area = 5` and `Answer: 5`: words before the sign name the value and go."""
        first = self.peek()
        if (
            first.kind == "n"
            or first.value in _CURRENCIES
            or (first.value in ("-", "{") and first.kind == "o")
        ):
            return
        depth, is_words, is_operation = 0, first.kind == "w", False
        for i in range(self.at, min(len(self.tokens), self.at + 40)):
            token = self.tokens[i]
            value = token.value
            depth += (value in ("(", "{", "[")) - (value in (")", "}", "]"))
            if depth < 0 or (
                depth == 0
                and (
                    value in (",", ";", "approx", "le", "ge", "<", ">", "in", "or", "and")
                    or (token.kind == "o" and value == "&")
                )
            ):
                return
            if depth == 0 and value in ("=", ":") and token.kind == "o":
                is_plain = is_words and not any(t.value.lower() in HEDGES for t in self.tokens[self.at : i])
                if (is_plain and i < self.at + 14) or (is_operation and value == "="):
                    self.at = i + 1
                return
            is_operation = is_operation or (token.kind == "c" and value in _REFUSED and value != "neg")
            is_words = is_words and (
                token.kind in ("w", "s")
                or value in ("(", ")", "{", "}", "^", "_", "'")
                or (token.kind == "n" and self.tokens[i - 1].value in ("_", "{", "^", "("))
            )

    def _measured(self) -> Node:
        """An expression with a currency before it or a unit after it."""
        self.currency = None
        node = self.sets()
        token = self.peek()
        if token.kind == "u" or (
            token.kind == "w" and token.value not in _UNIT_STOP and not self._at_qualifier()
        ):
            node = self._unit(node)
        elif token.kind == "c" and token.value in _CURRENCIES:
            self.at += 1
            self.currency = _CURRENCIES[token.value]
        if self.currency:
            if node[0] == "unit":
                node = (
                    node[1]
                    if node[2] in ("", self.currency)
                    else ("unit", node[1], f"{self.currency} {node[2]}")
                )
            node = node if node[0] == "unit" else ("unit", node, self.currency)
            self.currency = None
        if node[0] == "deg":
            node = ("unit", node[1], "degree")
        elif node[0] == "neg" and node[1][0] == "deg":
            node = ("unit", ("neg", node[1][1]), "degree")
        return node

    def _unit(self, node: Node) -> Node:
        words: list[str] = []
        while True:
            token = self.peek()
            value = token.value
            if token.kind in ("w", "u"):
                low = value.lower()
                if value in _UNIT_STOP:
                    break
                if low in HEDGES or low in NOT_NOUNS or (low in ("squared", "cubed") and not words):
                    raise Unreadable("a hedge")
                self.at += 1
                if value == "$":
                    words.append("dollar")
                    continue
                if low in _PERCENT_WORDS or (low == "per" and self.peek().value.lower() == "cent"):
                    self.at += low == "per"
                    node = ("pct", node)
                elif low in SCALES and not words:
                    node = mul(node, number(SCALES[low]))
                elif (
                    low in FRACTION_WORDS
                    and (low.endswith("s") or low == "half")
                    and not words
                    and node[0] == "n"
                ):
                    node = ("/", node, number(FRACTION_WORDS[low]))
                elif low in ("st", "nd", "rd", "th") and not token.spaced and not words:
                    continue
                else:
                    words.append(value)
            elif value == "^" and words:
                self.at += 1
                words.append("^" + self._unit_power())
            elif value in ("/", "*", "-", ".") and words and self.peek(1).kind in ("w", "u", "s"):
                self.at += 1
                if value == "/":
                    words.append("/")
            elif token.kind == "s" and words and words[-1] == "/" and value in "smhLg":
                self.at += 1
                words.append(value)
            elif value == "." and self.peek(1) is _END:
                self.at += 1
            else:
                break
        name = canonical_unit(tuple(words))
        if not words or (not name and all(w.lower() in GENERIC for w in words)):
            return node
        return ("unit", node, name) if name else node

    def _unit_power(self) -> str:
        braced = self.take("{")
        sign = "-" if self.take("-") else ""
        token = self.peek()
        if token.kind != "n":
            raise Unreadable("a power of a unit")
        self.at += 1
        if braced:
            self.need("}")
        return sign + token.value

    # sets, ratios, sums

    def sets(self) -> Node:
        left = self.ratio()
        while self.peek().value in ("cup", "cap", "setminus", "over", "choose") or self._is_plain_union():
            op = "cup" if self.peek().value == "U" else self.peek().value
            self.at += 1
            right = self.ratio()
            if op == "over":
                left = ("/", left, right)
            elif op == "choose":
                left = ("binom", left, right)
            else:
                left = ("minus" if op == "setminus" else op, left, right)
        return left

    def _is_plain_union(self) -> bool:
        """`(1, 2) U (3, 4)`."""
        token = self.peek()
        return (
            token.value == "U"
            and token.kind in ("s", "w")
            and self.tokens[self.at - 1].value in (")", "]", "}")
            and self.peek(1).value in ("(", "[", "{")
        )

    def ratio(self) -> Node:
        start = self.at
        first = self.sum()
        if self.in_set or not (
            self.peek().value == ":" or (self.peek().value == "to" and self.peek().kind == "w")
        ):
            return first
        items = [first]
        while self.take(":") or self.take("to"):
            items.append(self.sum())
        texts = [t.value for t in self.tokens[start : self.at]]
        if re.fullmatch(r"\d{1,2}:[0-5]\d(:[0-5]\d)?", "".join(texts)):
            return ("clock", tuple(int(t) for t in texts[::2]))
        return ("ratio", tuple(items))

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH:
            raise TooBig("nested too deep")
        terms: list[Node] = []
        sign = "+"
        token = self.peek()
        if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
            self.at += 1
            sign = token.value
        while True:
            while self.peek().value in ("+", "-") and self.peek().kind == "o":
                if self.peek().value == "-":
                    sign = {"+": "-", "-": "+", "pm": "mp", "mp": "pm"}[sign]
                self.at += 1
            term = self.product()
            terms.append(term if sign == "+" else ("neg", term) if sign == "-" else (sign, term))
            token = self.peek()
            if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
                following = self.peek(1)
                if following is _END or following.value in (",", ";"):
                    raise Unreadable("an operator without its right side")
                self.at += 1
                sign = token.value
            else:
                break
        self.depth -= 1
        return add(terms)

    def product(self) -> Node:
        left = self.power()
        while True:
            token = self.peek()
            value = token.value
            if token.kind == "o" and value == "*":
                self.at += 1
                left = mul(left, self.signed_power())
            elif token.kind == "o" and value == "/":
                self.at += 1
                if self.peek().kind == "w" and self.peek().value not in NUMBER_WORDS:
                    self.at -= 1
                    return left
                left = ("/", left, self.signed_power())
            elif self._starts_factor(token):
                if token.kind == "n":
                    before = self.tokens[self.at - 1]
                    if before.kind == "n":
                        left = self._mixed(left)
                        continue
                    if before.value == "}" and token.spaced is False and left[0] == "n":
                        raise Unreadable("two numbers side by side")
                elif token.value == "frac" and left[0] == "n" and self.tokens[self.at - 1].kind == "n":
                    left = self._mixed_frac(left)
                    continue
                left = _marked(left, self.power())
            else:
                return left

    def signed_power(self) -> Node:
        if self.peek().value == "-" and self.peek().kind == "o":
            self.at += 1
            return ("neg", self.signed_power())
        if self.peek().value == "+" and self.peek().kind == "o":
            self.at += 1
        return self.power()

    def _starts_factor(self, token: Token) -> bool:
        kind, value = token.kind, token.value
        if kind == "n":
            return True
        if kind == "s":
            return not self._is_plain_union()
        if kind == "o":
            if value == "|":
                return self.bars == 0 and not self.in_set
            if value == "[":
                return not self.in_set and self.peek(1).value not in ("", ",", "cup", "cap", ")", "}", "U")
            return value in ("(", "{")
        if kind == "c":
            return (
                value
                in (
                    "pi",
                    "frac",
                    "sqrt",
                    "binom",
                    "lfloor",
                    "lceil",
                    "overline",
                    "begin:matrix",
                    "begin:array",
                    "root",
                )
                or value in FUNCTIONS
            )
        return False

    def _mixed(self, whole: Node) -> Node:
        """`1 1/4`: a whole number, a gap and a fraction of whole numbers."""
        top, slash, bottom = self.peek(), self.peek(1), self.peek(2)
        if (
            whole[0] != "n"
            or whole[2] is not None
            or slash.value != "/"
            or bottom.kind != "n"
            or not (top.value + bottom.value).isdigit()
        ):
            raise Unreadable("two numbers side by side")
        self.at += 3
        if int(bottom.value) == 0:
            raise Unreadable("a division by zero")
        return number(whole[1] + Fraction(int(top.value), int(bottom.value)))

    def _mixed_frac(self, whole: Node) -> Node:
        part = self.power()
        if part[0] in ("pct", "deg"):
            mixed = self._mixed_value(whole, part[1])
            return (part[0], mixed) if mixed is not None else _marked(whole, part)
        mixed = self._mixed_value(whole, part)
        return mixed if mixed is not None else mul(whole, part)

    def _mixed_value(self, whole: Node, part: Node) -> Node | None:
        plain = (
            part[0] == "/" and part[1][0] == part[2][0] == "n" and part[1][2] is None and part[2][2] is None
        )
        if whole[2] is None and plain and part[2][1] != 0:
            return number(whole[1] + part[1][1] / part[2][1])
        return None

    # powers and atoms

    def power(self) -> Node:
        node = self.atom()
        while True:
            token = self.peek()
            value = token.value
            if token.kind == "o" and value in ("^", "**"):
                self.at += 1
                node = self._raised(node)
            elif token.kind == "o" and value == "!":
                self.at += 1
                double = self.peek().value == "!" and self.peek().kind == "o"
                self.at += double
                node = ("!!" if double else "!", node)
            elif token.kind == "o" and value == "'" and node[0] == "s":
                self.at += 1
                node = ("s", node[1] + "'")
            elif token.kind == "o" and value == "'" and node[0] == "n" and not self.currency:
                self.at += 1
                self.currency = "in" if self.take("'") else "ft"
            elif token.kind == "o" and value == "'" and node[0] == "f":
                raise Unreadable("a derivative")
            elif token.kind == "o" and value == "%":
                self.at += 1
                node = ("pct", node)
            elif value == "circ" and token.kind == "c":
                self.at += 1
                node = self._degrees(node)
            elif value == "_" and token.kind == "o":
                node = self._subscript(node)
            elif value in ("ldots",) and node[0] == "n" and node[2]:
                self.at += 1
                node = self._repeating(node, self.tokens[self.at - 2].value)
            else:
                return node

    def _degrees(self, node: Node) -> Node:
        after = self.peek()
        if after.value in ("C", "F", "K", "Celsius", "celsius", "Fahrenheit") and self.peek(1).value in (
            "",
            ",",
            ".",
            "}",
        ):
            self.at += 1
            self.currency = "celsius" if after.value[0] in "Cc" else "fahrenheit"
            return node
        return ("deg", node)

    def _raised(self, node: Node) -> Node:
        braced = self.peek().value == "{" and self.peek().kind == "o"
        inner = self.peek(1) if braced else self.peek()
        after = self.peek(2) if braced else self.peek(1)
        if (inner.value == "circ" and inner.kind == "c") or (
            inner.value == "o" and node[0] == "n" and (not braced or after.value == "}")
        ):
            self.at += 3 if braced else 1
            return self._degrees(node)
        if inner.value == "'":
            count = 0
            self.at += braced
            while self.take("'"):
                count += 1
            if braced:
                self.need("}")
            if node[0] == "n" and count < 3 and not self.currency:
                self.currency = "in" if count == 2 else "ft"
                return node
            if node[0] != "s":
                raise Unreadable("a prime")
            return ("s", node[1] + "'" * count)
        if inner.kind == "w" and inner.value in ("st", "nd", "rd", "th"):
            self.at += 3 if braced else 1
            return node
        if node[0] == "all" and inner.value in ("+", "*", "-"):
            self.at += 3 if braced else 1
            return ("all", node[1] + inner.value)
        if node[0] == "all" and inner.kind == "n":
            self.at += 3 if braced else 1
            return ("all", node[1] + inner.value)
        if (
            node[0] == "matrix"
            and inner.value in ("T", "top", "intercal", "t")
            and (not braced or after.value == "}")
        ):
            self.at += 3 if braced else 1
            return ("matrix", tuple(zip(*node[1], strict=True)))
        exponent = self._script()
        return ("^", node, exponent)

    def _script(self) -> Node:
        """An exponent: braces, a signed number, or one atom."""
        token = self.peek()
        if token.kind == "o" and token.value == "-":
            self.at += 1
            return ("neg", self._script())
        if token.kind == "o" and token.value == "+":
            self.at += 1
            return self._script()
        node = self.atom()
        if self.peek().value == "^" and self.peek().kind == "o":
            self.at += 1
            return ("^", node, self._script())
        if self.peek().value == "!" and self.peek().kind == "o" and token.value != "{":
            return node
        return node

    def _subscript(self, node: Node) -> Node:
        start = self.at + 1
        self.at += 1
        if self.take("{"):
            depth = 1
            while depth:
                token = self.peek()
                if token is _END:
                    raise Unreadable("a brace is never closed")
                depth += (token.value == "{" and token.kind == "o") - (
                    token.value == "}" and token.kind == "o"
                )
                self.at += 1
            inside = self.tokens[start + 1 : self.at - 1]
        else:
            if self.peek() is _END:
                raise Unreadable("an empty subscript")
            inside = [self.peek()]
            self.at += 1
        label = "".join(t.value for t in inside)
        if node[0] == "s":
            return ("s", f"{node[1]}_{label}")
        if node[0] == "all":
            return (
                "all",
                node[1]
                + {">0": "+", "<0": "-", "+": "+", "ge0": "+0", ">=0": "+0", "-": "-"}.get(label, label),
            )
        if node[0] == "n" and node[2] is None:
            base = (
                number_of([label.lower()])
                if label.isalpha()
                else int(label)
                if label.isdigit() and len(label) < 4
                else None
            )
            if base is not None and 2 <= base <= 36:
                text = str(node[1].numerator)
                return ("base", text, base)
        raise Unreadable("a subscript")

    def _repeating(self, node: Node, text: str) -> Node:
        """`0.333...`: digits that repeat at least twice before the dots."""
        whole, _, digits = text.partition(".")
        for period in range(1, len(digits) // 2 + 1):
            block = digits[-period:]
            repeats = 1
            while digits[: len(digits) - period * repeats].endswith(block):
                repeats += 1
            if repeats >= 2:
                head = digits[: len(digits) - period * repeats]
                return recurring(whole, head, block)
        return node

    def atom(self) -> Node:
        token = self.peek()
        kind, value = token.kind, token.value
        if kind == "n":
            self.at += 1
            return self._number(value)
        if kind == "s":
            self.at += 1
            if value in ("e", "i", "imath"):
                if value == "e" and self.peek().value == "_":
                    return ("s", "e")
                return ("c", "e" if value == "e" else "i")
            while self.peek().value == "'" and self.peek().kind == "o":
                self.at += 1
                value += "'"
            if (
                self.peek().value == "("
                and self.peek().kind == "o"
                and not self.peek().spaced
                and self._is_call(value)
            ):
                self.at += 1
                arguments = self._items(")")
                return ("f", value, arguments)
            return ("s", value)
        if kind == "o":
            return self._bracketed(value)
        if kind == "c":
            self.at += 1
            return self._command(value)
        if kind == "w":
            return self._word(token)
        raise Unreadable("an expression is missing")

    def _is_call(self, name: str) -> bool:
        """Whether a letter before a bracket is a function: `f(x)`, `P(X > 2)`, or `T(n) = ...`."""
        if name[0] in "fghFGH":
            return True
        depth = 0
        for i in range(self.at, min(len(self.tokens), self.at + 40)):
            value = self.tokens[i].value
            depth += (value == "(") - (value == ")")
            if depth == 0:
                return i + 1 < len(self.tokens) and self.tokens[i + 1].value == "="
            if depth == 1 and self.tokens[i].value in ("=", "<", ">", "le", "ge", "mid", "|"):
                return name == "P"
        return False

    def _word(self, token: Token) -> Node:
        value = token.value
        if value == "$":
            self.at += 1
            self.currency = "dollar"
            return self.signed_power()
        words: list[str] = []
        while self.peek().kind == "w" and self.peek().value.lower().split("-")[0] in NUMBER_WORDS:
            words.append(self.peek().value.lower())
            self.at += 1
            if (
                self.peek().value == "-"
                and self.peek(1).kind == "w"
                and self.peek(1).value.lower() in NUMBER_WORDS
            ):
                self.at += 1
        if words:
            if len(words) > 1 and words[-1] in FRACTION_WORDS:
                top = number_of(words[:-1])
                if top is not None:
                    return number(Fraction(top, FRACTION_WORDS[words[-1]]))
            value_of = number_of(words)
            if value_of is not None:
                return number(value_of)
        low = value.lower()
        if not words and low in ("negative", "minus") and self.peek(1) is not _END:
            self.at += 1
            return ("neg", self.signed_power())
        if not words and low == "infinity":
            self.at += 1
            return ("inf",)
        if not words and low in ("approximately", "about", "roughly", "exactly", "only", "just"):
            self.at += 1
            return self.signed_power()
        raise Unreadable(f"a word: {value[:20]}")

    def _number(self, value: str) -> Node:
        after = self.peek()
        if (value[0] != "." and "." in value) or value[0] == ".":
            whole, _, digits = value.partition(".")
            if after.value in ("overline", "dot") and after.kind == "c" and digits.isdigit() | (digits == ""):
                return self._bar(whole, digits)
            if (
                after.value == "("
                and not after.spaced
                and self.peek(1).kind == "n"
                and self.peek(1).value.isdigit()
                and self.peek(2).value == ")"
            ):
                block = self.peek(1).value
                self.at += 3
                return recurring(whole, digits, block)
        if "e" in value or "E" in value:
            mantissa, _, exponent = value.lower().partition("e")
            if abs(int(exponent)) > 4000:
                return mul(self._number(mantissa), ("^", number(10), number(int(exponent))))
            scaled = Fraction(mantissa + "0" if mantissa.endswith(".") else mantissa) * Fraction(10) ** int(
                exponent
            )
            return ("n", scaled, None)
        if "." in value:
            digits = value.partition(".")[2]
            return ("n", Fraction(value if digits else value[:-1]), len(digits) if digits else None)
        return ("n", Fraction(int(value)), None)

    def _bar(self, whole: str, digits: str) -> Node:
        """`0.1\\overline{6}` and `0.\\dot{3}`, also dots over the first and last digit of the period."""
        block = ""
        name = self.peek().value
        while self.peek().value == name and self.peek().kind == "c":
            self.at += 1
            braced = self.take("{")
            if self.peek().kind != "n" or not self.peek().value.isdigit():
                raise Unreadable("a bar over no digits")
            block += self.peek().value
            self.at += 1
            if braced:
                self.need("}")
            if name == "dot" and self.peek().kind == "n" and self.peek(1).value == "dot":
                block += self.peek().value
                self.at += 1
        if not block:
            raise Unreadable("a bar over no digits")
        if self.peek().value == "ldots":
            self.at += 1
        return recurring(whole, digits, block)

    def _items(self, closer: str) -> tuple[Node, ...]:
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, 0
        node = self.listing()
        self.need(closer)
        self.bars, self.in_set = bars, in_set
        return tuple(node[2]) if node[0] == "list" else (node,)

    def _bracketed(self, value: str) -> Node:
        if value == "{":
            self.at += 1
            if self.take("}"):
                return self.atom() if self._starts_factor(self.peek()) else self._lost()
            bars, self.bars = self.bars, 0
            currency = self.currency
            node = self.listing()
            self.currency = currency or self.currency
            self.need("}")
            self.bars = bars
            return node
        if value in ("(", "["):
            self.at += 1
            return self._round(value)
        if value == "]":
            self.at += 1
            return self._round("]")
        if value == "|":
            self.at += 1
            self.bars += 1
            inner = self.sum()
            self.need("|")
            self.bars -= 1
            return ("f", "abs", (inner,))
        if value == "-":
            self.at += 1
            return ("neg", self.power())
        raise Unreadable(f"unexpected `{value}`")

    def _lost(self) -> Node:
        raise Unreadable("an expression is missing")

    def _round(self, opener: str) -> Node:
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, 0
        currency = self.currency
        if self.peek().value in (")", "]"):
            raise Unreadable("empty brackets")
        node = self.listing()
        self.bars, self.in_set, self.currency = bars, in_set, currency
        closer = self.peek().value
        if closer not in (")", "]", "[") or (closer == "[" and opener not in "]["):
            raise Unreadable("brackets do not match")
        self.at += 1
        if node[0] == "list":
            items = tuple(node[2])
            return ("tuple", opener, closer, items)
        if opener == "[" and closer == "]" and node[0] in ("tuple", "list"):
            return ("tuple", "[", "]", (node,))
        if (opener, closer) not in (("(", ")"), ("[", "]")):
            raise Unreadable("brackets do not match")
        return node

    def _command(self, name: str) -> Node:
        if name == "pi":
            return ("c", "pi")
        if name == "frac":
            top = self._short_argument()
            return ("/", top, self._short_argument())
        if name == "sqrt":
            return self._root()
        if name == "cbrt":
            return ("root", self._call_argument(), number(3))
        if name == "infty":
            return ("inf",)
        if name == "{":
            return self._set()
        if name in _SETS:
            return ("all", _SETS[name])
        if name == "emptyset":
            return ("set", ())
        if name == "binom":
            top = self._short_argument()
            return ("binom", top, self._short_argument())
        if name in ("lfloor", "lceil"):
            inner = self.sum()
            self.need("r" + name[1:])
            return ("f", "floor" if name == "lfloor" else "ceil", (inner,))
        if name == "langle":
            return ("tuple", "<", ">", self._items("rangle"))
        if name in _CURRENCIES:
            self.currency = _CURRENCIES[name]
            return self.signed_power()
        if name == "overline":
            inner = self._short_argument()
            if inner[0] in ("n", "+", "/", "^", "root"):
                raise Unreadable("a bar over a formula")
            return ("s", inner[1] + " bar") if inner[0] == "s" and inner[1].islower() else inner
        if name == "cis":
            angle = self._call_argument()
            return ("+", ("f", "cos", (angle,)), mul(("c", "i"), ("f", "sin", (angle,))))
        if name == "ldots":
            return ("dots",)
        if name in ("begin:matrix", "begin:array"):
            return ("matrix", self._rows("end:" + name[6:]))
        if name == "begin:cases":
            return ("cases", self._rows("end:cases"))
        if name in ("max", "min") and self.peek().value in ("(", "{"):
            closer = ")" if self.peek().value == "(" else "}"
            self.at += 1
            arguments = self._items(closer)
            if any(symbols(a) for a in arguments):
                return ("f", name, tuple(sorted(arguments, key=repr)))
            raise Unreadable("an operation that is not carried out")
        if name in _TRIG or name in ("ln", "log", "lg", "exp", "abs", "floor", "ceil", "sgn"):
            return self._function(name)
        raise Unreadable(
            f"a command `{name[:20]}`"
            if name not in _REFUSED
            else f"an operation that is not carried out: `{name}`"
        )

    def _short_argument(self) -> Node:
        r"""Argument of `\frac`: braces, or one digit of a longer number (`\frac12`)."""
        token = self.peek()
        if token.kind == "n" and len(token.value) > 1 and token.value.isdigit():
            self.tokens[self.at] = Token("n", token.value[1:])
            return number(int(token.value[0]))
        if token.value == "{" and token.kind == "o":
            bars, self.bars = self.bars, 0
            in_set, self.in_set = self.in_set, 0
            self.at += 1
            node = self._measured()
            self.need("}")
            self.bars, self.in_set = bars, in_set
            if node[0] in ("unit", "pct"):
                node = node[1] if node[0] == "unit" else ("/", node[1], number(100))
            return node
        if token.kind == "o" and token.value == "-":
            self.at += 1
            return ("neg", self._short_argument())
        return self.atom()

    def _root(self) -> Node:
        index = number(2)
        if self.peek().value == "[" and self.peek().kind == "o":
            self.at += 1
            index = self.sum()
            self.need("]")
        token = self.peek()
        if token.value == "(" and token.kind == "o":
            self.at += 1
            inner = self._round("(")
            return ("root", inner, index)
        return ("root", self.atom(), index)

    def _function(self, name: str) -> Node:
        power: Node | None = None
        base: Node | None = None
        while self.peek().value in ("^", "_") and self.peek().kind == "o":
            if self.peek().value == "^":
                self.at += 1
                power = self._script()
            else:
                self.at += 1
                base = self._short_argument() if self.peek().kind != "n" else self.atom()
        argument = self._call_argument()
        if power is not None and power == ("neg", ONE):
            if name in _INVERSE:
                name, power = _INVERSE[name], None
            else:
                raise Unreadable("an inverse function")
        if name in ("ln", "log", "lg"):
            node: Node = (
                "log",
                ("c", "e") if name == "ln" else number(10) if name == "lg" else base,
                argument,
            )
        elif name == "exp":
            node = ("^", ("c", "e"), argument)
        else:
            node = ("f", name, (argument,))
        return ("^", node, power) if power is not None else node

    def _call_argument(self) -> Node:
        token = self.peek()
        if token.value == "(" and token.kind == "o":
            self.at += 1
            return self._round("(")
        if token.value == "{" and token.kind == "o":
            return self.atom()
        if token.value == "-" and token.kind == "o":
            self.at += 1
            return ("neg", self._call_argument())
        node = self.power()
        while True:
            token = self.peek()
            if not self._starts_factor(token) or (
                token.kind == "c" and token.value in FUNCTIONS and token.value != "sqrt"
            ):
                return node
            if token.value in ("(", "[", "|"):
                return node
            node = mul(node, self.power())

    def _set(self) -> Node:
        if self.take("}"):
            return ("set", ())
        mark = self._builder_mark()
        if mark:
            return self._builder(mark)
        in_set, self.in_set = self.in_set, 1
        bars, self.bars = self.bars, 0
        node = self.listing()
        self.need("}")
        self.in_set, self.bars = in_set, bars
        return ("set", tuple(node[2]) if node[0] == "list" else (node,))

    def _builder_mark(self) -> int:
        """Where the bar of a set builder stands, counted from here; 0 if this is no set builder."""
        depth = 0
        for i in range(self.at, min(len(self.tokens), self.at + 40)):
            token = self.tokens[i]
            depth += (token.value in ("(", "{")) - (token.value in (")", "}"))
            if depth < 0:
                return 0
            if depth == 0 and token.value in ("mid", ":"):
                return i - self.at
            if (
                depth == 0
                and token.value == "|"
                and i > self.at
                and self.tokens[i - 1].value not in ("+", "-", "*", ",", "=")
            ):
                return i - self.at
        return 0

    def _builder(self, mark: int) -> Node:
        if self.peek().kind != "s":
            raise Unreadable("a set builder")
        name = self.peek().value
        domain: Node | None = None
        if mark > 1:
            self.at += 1
            if not self.take("in"):
                raise Unreadable("a set builder")
            in_set, self.in_set = self.in_set, 1
            domain = self.sets()
            self.in_set = in_set
        else:
            self.at += 1
        self.at += 1
        node = self.listing()
        self.need("}")
        return ("builder", name, domain, node)

    def _rows(self, closer: str) -> tuple[tuple[Node, ...], ...]:
        rows: list[tuple[Node, ...]] = []
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, 0
        cells: list[Node] = []
        while True:
            if self.take(closer):
                break
            if self.take("newline"):
                if cells:
                    rows.append(tuple(cells))
                cells = []
                continue
            if self.peek() is _END:
                raise Unreadable("a matrix is never closed")
            if self.peek().value == "hline":
                self.at += 1
                continue
            if self.take("&") or self.take(","):
                continue
            if self.peek().kind == "w" and self.peek().value.lower() in (
                "if",
                "for",
                "when",
                "where",
                "otherwise",
                "else",
            ):
                word = self.peek().value.lower()
                self.at += 1
                if word in ("otherwise", "else"):
                    cells.append(("s", "otherwise"))
                continue
            cells.append(self.relation())
        if cells:
            rows.append(tuple(cells))
        self.bars, self.in_set = bars, in_set
        if not rows or sum(map(len, rows)) > 100:
            raise Unreadable("an empty or oversized matrix")
        if closer != "end:cases" and len({len(row) for row in rows}) != 1:
            raise Unreadable("a ragged matrix")
        return tuple(rows)


def _without_ranges(items: list[Node]) -> list[Node]:
    """`x = k pi, k in Z` without its last part: the range of a whole number that occurs before."""
    if len(items) < 2:
        return items
    last = items[-1]
    is_range = (
        last[0] == "rel"
        and last[1][0] == "s"
        and len(last[2]) == 1
        and last[2][0][0] == "in"
        and last[2][0][1][0] == "all"
    )
    if (
        is_range
        and last[2][0][1][1] in ("Z", "N")
        and all(last[1][1] in symbols(item) for item in items[:-1])
    ):
        return items[:-1]
    return items


def _marked(left: Node, right: Node) -> Node:
    """A product whose last factor carries a percent or degree sign: the sign belongs to all of it."""
    if right[0] in ("pct", "deg"):
        return (right[0], mul(left, right[1]))
    return mul(left, right)


def recurring(whole: str, head: str, block: str) -> Node:
    """The exact value of whole.head(block)(block)..."""
    if len(head) + len(block) > 300:
        raise TooBig("too many digits")
    shift = 10 ** len(head)
    value = Fraction(int(whole or "0") * shift + int(head or "0"), shift) + Fraction(
        int(block), shift * (10 ** len(block) - 1)
    )
    return number(value)


def read(tokens: list[Token]) -> Node:
    """The tree of a token list.

    Raises:
        Unreadable: it is not mathematics this reader knows.
    """
    if not tokens:
        raise Unreadable("nothing to read")
    node = Reader(list(tokens)).answer()
    if contains(node, {"dots"}) and node[0] not in ("list", "set", "tuple"):
        raise Unreadable("an ellipsis in a formula")
    return node
