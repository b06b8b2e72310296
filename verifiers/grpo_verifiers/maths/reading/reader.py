"""Tokens to a tree, by recursive descent. Nothing is evaluated; what would have to be (sums, integrals, limits) is refused.

How this works: `read` puts a cursor before the tokens and reads a listing. Loosest to tightest: list separators,
relations, unions, `:`, sums, products (written or implied), powers and marks. The tighter ones are in `sums`, `grouping`
and `atoms`. Words before a sign of equality are a label (`Area = 5`); `label_of` returns them.
"""

from __future__ import annotations

import itertools

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading import grouping
from grpo_verifiers.maths.reading.sums import is_plain_union, read_power, read_signed_power, read_sum
from grpo_verifiers.maths.reading.tokens import END, UNIT_STOP, Cursor, Grammar, Token, Unreadable
from grpo_verifiers.maths.reading.tree import (
    REAL,
    REAL_LETTERS,
    SCALARS,
    WHOLE,
    Node,
    contains,
    rename,
    replaced,
    symbols,
)
from grpo_verifiers.maths.reading.units import GENERIC, at_rate, read_unit, singular
from grpo_verifiers.maths.reading.vocabulary import CLOSERS, CURRENCIES, REFUSED, RELATIONS, names
from grpo_verifiers.maths.reading.words import HEDGES

_SAYS_NOTHING = GENERIC | names(
    "a an and are as at by correct equal final for from has have hence here i in is it its my of on our required so "
    "solution that the then there therefore this thus to was we where which with answer result value quantity wanted"
)
_WHOLE_WORDS = frozenset(("integer", "integers"))
_REAL_WORDS = frozenset(("constant", "real", "parameter"))
_RANGE_WORDS = _WHOLE_WORDS | _REAL_WORDS | names("where for with any all every each some arbitrary an a is the number")
_RANGES = (("in", ("all", "Z")), ("in", ("all", "R")))
_NAMED_OPERATIONS = frozenset(("gcd", "lcm", "max", "min", "det", "deg", "dim"))
_LEAST_SHORTENED = 3
_INDEX = Token("o", "_")
_CHOOSING = HEDGES | {"one", "any", "some"}


def label_of(tokens: list[Token]) -> tuple[str, ...]:
    """The words before the first sign of equality or colon that say something, in the singular; none if a value stands before it."""
    words: list[str] = []
    # a name is short; what comes later is a formula with a sign in it
    for at, token in enumerate(tokens[:40]):
        if token.value in ("=", ":", "approx"):
            return tuple(words)
        if token.kind == "w":
            word = token.value.lower()
            if word not in _SAYS_NOTHING:
                words.append(singular(word))
        elif token.value in _NAMED_OPERATIONS:
            words.append(token.value)
        elif token.value == "angle":
            # `\angle BAC` is `\angle CAB`
            corners = "".join(itertools.takewhile(str.isalpha, (t.value for t in tokens[at + 1 : at + 4])))
            words.append(f"angle {min(corners, corners[::-1])}")
        # `x^2 + 1 = 0`, `a, b = 3`: a value or a list, no name
        elif token.kind in ("n", "c") or token.value in (",", ";"):
            return ()
    return ()


def labels_differ(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """Whether each of two labels has a word that the other has not, shortened or in full (`max`, `maximum`)."""
    return _has_more(gold, answer) and _has_more(answer, gold)


def _has_more(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    def is_same(a: str, b: str) -> bool:
        short, long = sorted((a, b), key=len)
        return a == b or (len(short) >= _LEAST_SHORTENED and long.startswith(short))

    return not all(any(is_same(a, b) for b in other) for a in one)


def _separator(cursor: Cursor) -> str:
    """Consume list separators; what joined: `` (nothing), `,`, `and` or `or`."""
    joined = ""
    while True:
        token = cursor.peek()
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
        cursor.at += 1


def read_listing(cursor: Cursor) -> Node:
    """Items parted by separators; a single item is itself."""
    _separator(cursor)
    if cursor.peek().value in ("either", "both") and cursor.peek().kind == "w":
        cursor.at += 1
    starts = [cursor.at]
    items = [read_relation(cursor)]
    joiner = ","
    while True:
        _skip_qualifier(cursor)
        joined = _separator(cursor)
        if not joined:
            break
        if joined in ("or", "and"):
            joiner = joined if joiner in (",", joined) else "or"
        token = cursor.peek()
        if token is END and joined in ("or", "and"):
            # `3 or`: what was cut off may be the answer
            raise Unreadable(f"nothing after `{joined}`")
        # a separator before the end is layout
        if token is END or (token.value in CLOSERS and not (token.value == "|" and not cursor.bars)):
            break
        starts.append(cursor.at)
        items.append(read_relation(cursor))
    if len(items) > 1:
        items = _without_ranges(_named_by_words(items, cursor.tokens, [*starts, cursor.at]))
    return items[0] if len(items) == 1 else ("list", joiner, tuple(items))


def _at_qualifier(cursor: Cursor) -> bool:
    word = cursor.peek().value
    return word == "forall" or (word == "for" and cursor.peek(1).value in ("all", "every", "any", "each"))


def _skip_qualifier(cursor: Cursor) -> None:
    """`for all x in R` after an item does not change its value."""
    if not _at_qualifier(cursor):
        return
    depth = 0
    while cursor.peek() is not END:
        token = cursor.peek()
        depth += (token.value in ("(", "{", "[")) - (token.value in (")", "}", "]"))
        if depth < 0 or token.value == "newline" or (depth == 0 and token.value in ("and", "or")):
            return
        cursor.at += 1


def read_relation(cursor: Cursor) -> Node:
    """An item: an expression, a chain of relations, with its unit."""
    # `= 5` gives the value of what the question named
    while cursor.peek().value in ("=", "approx", "therefore"):
        cursor.at += 1
    at = -1
    while cursor.at != at:  # `\angle ABC = \angle ACB = 10`
        at = cursor.at
        _skip_label(cursor)
    if cursor.peek().value == "&":
        cursor.at += 1
    first = read_measured(cursor)
    links: list[tuple[str, Node]] = []
    while True:
        # in aligned rows a relation that starts a row goes on from the row before
        ahead = 0
        while cursor.peek(ahead).value in ("&", "newline"):
            ahead += 1
        if ahead and cursor.peek(ahead).value in RELATIONS and cursor.peek(ahead).kind in ("o", "c"):
            cursor.at += ahead
        token = cursor.peek()
        op = RELATIONS.get(token.value)
        if op is None or token.kind == "s" or (token.kind == "w"):
            break
        cursor.at += 1
        if op in ("subset", "propto"):
            # nothing compares these, and their sides alone would mean something else
            raise Unreadable(f"a relation `{op}`")
        # aligned rows repeat the sign at a line break: `= & = 5`
        while cursor.peek().value in ("&", "=", "approx"):
            cursor.at += 1
        links.append((op, read_measured(cursor)))
    # no answer compares Euler's number with others: between two bounds the letter is a variable
    if len(links) == 2 and links[0][1] == ("c", "e") and all(op[0] in "<>" for op, _ in links):
        links[0] = (links[0][0], ("s", "e"))
    return ("rel", first, tuple(links)) if links else first


def _skip_label(cursor: Cursor) -> None:
    """`Area = 5` and `Answer: 5`: words before the sign name the value and go."""
    first = cursor.peek()
    if first.value in CURRENCIES or (first.value in ("-", "{") and first.kind == "o"):
        return
    depth, is_words, is_operation = 0, first.kind == "w", False
    # labels are short: without a bound a long list would be scanned to its end from every item
    for i in range(cursor.at, min(len(cursor.tokens), cursor.at + 40)):
        token = cursor.tokens[i]
        value = token.value
        depth += (value in ("(", "{", "[")) - (value in (")", "}", "]"))
        if depth < 0 or (
            depth == 0
            and (value in (",", ";", "le", "ge", "<", ">", "in", "or", "and") or (token.kind == "o" and value == "&"))
        ):
            return
        if depth == 0 and ((value in ("=", ":") and token.kind == "o") or value == "approx"):
            # `one of these: 3` chooses, it does not name
            is_plain = is_words and not any(t.value.lower() in _CHOOSING for t in cursor.tokens[cursor.at : i])
            if (is_plain and i < cursor.at + 14) or (is_operation and value != ":"):
                cursor.at = i + 1
            return
        # `\lim ... = 5`: the operation is the question, what stands behind its sign the answer
        is_operation = is_operation or (
            token.kind == "c"
            and (
                (value in REFUSED and value != "neg")
                or (value in ("max", "min") and cursor.tokens[i + 1 : i + 2] == [_INDEX])
            )
        )
        is_words = is_words and (
            token.kind in ("w", "s")
            or value in ("(", ")", "{", "}", "^", "_", "'")
            or (token.kind == "n" and cursor.tokens[i - 1].value in ("_", "{", "^", "("))
        )


def read_measured(cursor: Cursor) -> Node:
    """An expression with a currency before it or a unit after it."""
    cursor.currency = None
    node = _read_sets(cursor)
    token = cursor.peek()
    if (
        token.kind == "u"
        or (token.kind == "w" and token.value not in UNIT_STOP and not _at_qualifier(cursor))
        or at_rate(cursor)
    ):
        node = read_unit(cursor, node)
    elif token.kind == "c" and token.value in CURRENCIES:
        cursor.at += 1
        cursor.currency = CURRENCIES[token.value]
    if cursor.currency:
        if node[0] == "unit":
            node = node[1] if node[2] in ("", cursor.currency) else ("unit", node[1], f"{cursor.currency} {node[2]}")
        node = node if node[0] == "unit" else ("unit", node, cursor.currency)
        cursor.currency = None
    # the sign belongs inside: what is compared with a percentage is what stands under its mark
    if node[0] == "neg" and node[1][0] == "pct":
        node = ("pct", ("neg", node[1][1]))
    # an angle by itself is a quantity in degrees; under a function the mark stays a factor of pi / 180
    if node[0] == "deg":
        node = ("unit", node[1], "degree")
    elif node[0] == "neg" and node[1][0] == "deg":
        node = ("unit", ("neg", node[1][1]), "degree")
    return node


def _read_sets(cursor: Cursor) -> Node:
    """Expressions joined by union, intersection or difference."""
    left = _read_ratio(cursor)
    while True:
        token = cursor.peek()
        joins = token.value in ("cup", "cap", "setminus", "over", "choose") and token.kind != "w"
        if not joins and not is_plain_union(cursor):
            return left
        op = "cup" if token.value == "U" else token.value
        cursor.at += 1
        right = _read_ratio(cursor)
        if op == "over":
            left = ("/", left, right)
        elif op == "choose":
            left = ("binom", left, right)
        else:
            left = ("minus" if op == "setminus" else op, left, right)


def _read_ratio(cursor: Cursor) -> Node:
    """`3:4`, or a time of day."""
    start = cursor.at
    first = read_sum(cursor)
    if cursor.in_set or not (cursor.peek().value == ":" or (cursor.peek().value == "to" and cursor.peek().kind == "w")):
        return first
    items = [first]
    while cursor.take(":") or cursor.take("to"):
        items.append(read_sum(cursor))
    texts = [t.value for t in cursor.tokens[start : cursor.at]]
    # two digits below 60 make a time of day, which still compares as a ratio where the other side is one
    if patterns.TIME_OF_DAY.fullmatch("".join(texts)):
        return ("clock", tuple(int(t) for t in texts[::2]))
    return ("ratio", tuple(items))


_GRAMMAR = Grammar(
    listing=read_listing,
    relation=read_relation,
    measured=read_measured,
    sets=_read_sets,
    signed_power=read_signed_power,
    power=read_power,
    command=grouping.read_command,
    bracketed=grouping.read_bracketed,
    items=grouping.read_items,
    round=grouping.read_round,
    set=grouping.read_set,
    rows=grouping.read_rows,
)


def _named_by_words(items: list[Node], tokens: list[Token], starts: list[int]) -> list[Node]:
    """`Alice: 3, Bob: 4` as values with these names, where words part two items or more."""
    labels = [label_of(tokens[start:end]) for start, end in itertools.pairwise(starts)]
    if len(set(labels) - {()}) < 2:
        return items
    found = []
    for item, words in zip(items, map(" ".join, labels), strict=True):
        if words and item[0] != "rel":
            item = ("rel", ("s", words), (("=", item),))
        elif words and item[1][0] == "s":
            item = ("rel", ("s", f"{words} {item[1][1]}"), item[2])
        found.append(item)
    return found


def _without_ranges(items: list[Node]) -> list[Node]:
    """`x = k pi, k in Z` without its last part: the range of a whole number that occurs before."""
    if len(items) < 2:
        return items
    first = items[0]
    # `x \ne 0, 1`: the sign counts for every value
    if (
        first[0] == "rel"
        and first[1][0] == "s"
        and len(first[2]) == 1
        and first[2][0][0] == "!="
        and all(item[0] in SCALARS for item in items[1:])
    ):
        return [first, *(("rel", first[1], (("!=", item),)) for item in items[1:])]
    last = items[-1]
    if last[0] != "rel" or len(last[2]) != 1 or last[2][0] not in _RANGES or last[1][0] not in ("s", "c"):
        return items
    whole = last[2][0] == _RANGES[0]
    if not whole and last[1][1] not in REAL_LETTERS:
        return items
    # the `i` of `i in Z` counts: it is no imaginary unit there
    if last[1] == ("c", "i"):
        items = [replaced(item, ("c", "i"), ("s", "i")) for item in items]
    name = items[-1][1][1]
    if all(name in symbols(item) for item in items[:-1]):
        # one name for every spelling of the parameter: `k`, `n` and `m` mean the same
        return [rename(item, {name: WHOLE if whole else REAL}) for item in items[:-1]]
    return items


def _with_range(tokens: list[Token]) -> list[Token]:
    """`x = k pi` with `k in Z` behind a comma, however it was said: `(k in Z)`, `where k is an integer`, `for any constant c`."""
    last = tokens[-1]
    if last.value == ")" and any(token.value in ("in", "ge", ">") for token in tokens):
        opened = next((at for at in range(len(tokens) - 4, 0, -1) if tokens[at].value == "("), 0)
        # `P(X > 2)` is a call
        is_call = tokens[opened - 1].kind == "s" and (tokens[opened - 1].value in "PE" or not tokens[opened].spaced)
        allowed = ("in",) if is_call else ("in", "ge", ">")
        if opened and tokens[opened + 1].kind == "s" and tokens[opened + 2].value in allowed:
            return [*tokens[:opened], Token("o", ","), *tokens[opened + 1 : -1]]
    if last.kind not in ("w", "s"):
        return tokens
    start = len(tokens)
    words: set[str] = set()
    names_said: list[Token] = []
    while start and (
        tokens[start - 1].kind == "w"
        or (
            tokens[start - 1].kind == "s"
            and start > 1
            and (tokens[start - 2].kind == "w" or tokens[start - 2].value == ",")
        )
    ):
        start -= 1
        token = tokens[start]
        if token.kind == "s":
            names_said.append(token)
        elif token.value.lower() in _RANGE_WORDS:
            words.add(token.value.lower())
        else:
            return tokens
    is_whole = bool(words & _WHOLE_WORDS)
    if (
        len(names_said) != 1
        or not start
        or not (is_whole or (words & _REAL_WORDS and names_said[0].value in REAL_LETTERS))
    ):
        return tokens
    kept = tokens[: start - (tokens[start - 1].value == ",")]
    return [*kept, Token("o", ","), *names_said, Token("c", "in"), Token("c", "setZ" if is_whole else "setR")]


def read(tokens: list[Token]) -> Node:
    """The tree of a token list.

    Raises:
        Unreadable: it is not mathematics this reader knows.
    """
    if not tokens:
        raise Unreadable("nothing to read")
    cursor = Cursor(list(_with_range(tokens)), _GRAMMAR)
    node = read_listing(cursor)
    if cursor.at < len(cursor.tokens):
        # an answer that was read halfway would be compared by that half
        raise Unreadable(f"left over: {cursor.peek().value[:20]}")
    # `1 + ... + n` leaves out terms; in a list the members around it show which. A tree is searched only where its tokens have one
    is_elided = any(token.value == "ldots" for token in tokens) and contains(node, {"dots"})
    if is_elided and node[0] not in ("list", "set", "tuple"):
        raise Unreadable("an ellipsis in a formula")
    return node
