"""LaTeX or plain text to tokens. Layout, sizes, colours and fonts vanish here; what is invisible takes its argument along.

How this works: `lex` goes through the text once, from the left, by one pattern; macros and runs of letters have
functions of their own. A run of letters becomes a word, a unit, functions joined to their arguments, or a product of
variables. A token is `(kind, value, spaced)`: `n` number, `s` symbol, `w` word, `c` command, `o` one character.
`spaced`: white space came before it. Numbers keep their text, because the digits of a decimal decide how it may be
compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading import vocabulary
from grpo_verifiers.maths.reading.tokens import Token, TooBig, Unreadable
from grpo_verifiers.maths.reading.units import LETTERS, SHORT
from grpo_verifiers.maths.reading.words import SHORT_WORDS, number_of

Match = Callable[[str, int], "re.Match[str] | None"]

_UNITS = frozenset(LETTERS)
PRODUCTS = frozenset(("by", "an", "at", "be", "it", "on", "of", "st", "nd", "is", "in", "as"))
UPRIGHT_UNITS = frozenset("mgsVNJWALK")
_OFTEN_PRODUCTS = frozenset(("mg", "mL", "ms", "pm", "am"))
_ORDINAL = frozenset(("st", "nd", "rd", "th"))
MOST_TOKENS = 3_000
DEPTH = 60


_PREFIXES = {"b": 2, "o": 8, "x": 16}
_WITH_ARGUMENT = (
    vocabulary.TEXT_MACROS | vocabulary.FONT_MACROS | vocabulary.HIDDEN_MACROS | vocabulary.COLOUR_MACROS | {"color"}
)
BASIS_MACROS = frozenset(
    ("hat", "widehat", "vec", "mathbf", "boldsymbol", "bm", "bold", "textbf", "pmb", "overrightarrow")
)
_BASIS = {"i": "basis_i", "j": "basis_j", "k": "basis_k", "imath": "basis_i", "jmath": "basis_j"}


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
        return patterns.AFTER_PRODUCT.match(text, pos) is not None
    following = text[pos:].lstrip()[:1]
    return following != "" and following in "+-=^*/_"


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


def _is_word(run: str) -> bool:
    if len(run) < 2:
        return False
    low = run.lower()
    if len(run) <= 3:
        return low in SHORT_WORDS and (run.islower() or run.istitle() or low in ("dne", "nan", "yes", "no"))
    # no vowel, or the corners of a figure in their order: a product or the name of points
    if not patterns.VOWEL.search(run) or low in ("abcd", "abcde", "wxyz"):
        return False
    return not (
        # `ADCB` is points; a word in capitals is longer or has a letter twice
        run.isupper() and len(run) < 6 and len(set(run)) == len(run) and low not in ("none", "true", "false")
    )


def add_letters(run: str, out: list[Token], spaced: bool, upright: bool) -> None:
    """A run of letters is one word, a function, a unit, or a product of one-letter variables."""
    # `5 min` and `3 sec` are times, `min(a, b)` and `sec x` functions
    if run in vocabulary.FUNCTIONS and not (
        upright and run in ("min", "sec", "mod") and out and (out[-1].kind == "n" or out[-1].value in ("/", "per", "}"))
    ):
        after_number = bool(out) and out[-1].kind == "n"
        if not (run in ("min", "sec") and after_number and spaced):
            out.append(Token("c", vocabulary.SYNONYMS.get(run, run), spaced))
            return
    if run in vocabulary.SPELT_SYMBOLS:
        kind, name = vocabulary.SPELT_SYMBOLS[run]
        out.append(Token(kind, name, spaced))
        return
    previous = out[-1] if out else None
    if len(run) == 1:
        out.append(_letter(run, previous, spaced, upright))
        return
    if upright:
        out.append(Token("w", vocabulary.JOINING.get(run, run), spaced))
        return
    # a unit needs a value right before it
    after_value = previous is not None and (
        previous.kind == "n"
        or previous.kind == "w"
        or previous.value in (")", "}", "pi", "/")
        or (previous.kind == "s" and spaced)
    )
    # behind a word another run of small letters is a word too, whatever its letters
    if (
        previous is not None
        and (previous.kind == "w" and spaced and previous.value != "$")
        and previous.value.lower() not in SHORT_WORDS
        and (len(run) > 2 and run.islower() and run not in vocabulary.FUNCTIONS)
    ):
        out.append(Token("w", run, spaced))
        return
    # milligrams in `5mg`, a weight in `\frac{2mg}{3}`
    if after_value and run in _OFTEN_PRODUCTS:
        out.append(Token("u", run, spaced))
        return
    if (after_value and (run in SHORT or (run in _ORDINAL and not spaced))) or _is_word(run):
        out.append(Token("w", run, spaced))
        return
    # `sinx` and `xcosy` come without spaces; in a longer run such a name is chance
    head = patterns.FUNCTION_HEAD.search(run) if len(run) > 3 else None
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
    if upright and (run == "a" or (run in _UNITS and follows)):
        return Token("w", run, spaced)
    # undecided here: `lex` knows the whole answer and settles it
    if run in "mgshLKNJWV" and spaced and previous is not None and previous.kind == "n":
        return Token("u", run, spaced)
    return Token("s", run, spaced)


def _based(text: str) -> Token | None:
    """An answer that is digits in a base (`1011_2`, `(1F)_{16}`, `0x1F`), as one token; None for others."""
    if text[:1] == "0" and (prefixed := patterns.PREFIXED.fullmatch(text)):
        digits, base = prefixed[2], _PREFIXES.get(prefixed[1])
    elif "_" in text and (match := patterns.BASED.fullmatch(patterns.UPRIGHT_DIGITS.sub(r"\1", text))):
        digits, base = match[1], int(match[2]) if match[2].isdigit() else number_of([match[2]])
    else:
        return None
    if base is None or not 2 <= base <= 36 or len(digits) > 300:
        return None
    # `AB_3` is a point with an index; letters are digits only where the base has so many
    if digits.isalpha() and (len(digits) < 2 or not (base == 16 or (base > 10 and digits.isupper()))):
        return None
    try:
        int(digits.replace(".", ""), base)
    except ValueError:
        return None
    return Token("b", f"{digits.upper()}_{base}")


def matching(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`.

    Raises:
        Unreadable: it is never closed.
    """
    depth = 0
    i, n = start, len(text)
    while i < n:
        mark = text[i]
        # an escaped brace is text, not structure
        if mark == "\\":
            i += 1
        elif mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    raise Unreadable("a brace is never closed")


def _argument(text: str, at: int) -> tuple[str, int]:
    """The braced argument (or the single token) after a macro, and where it ends."""
    n = len(text)
    while at < n and text[at] in " \t\n*":
        at += 1
    if at < n and text[at] == "{":
        end = matching(text, at)
        return text[at + 1 : end], end + 1
    if at < n and text[at] == "[":
        # an optional argument is a setting, not part of the value
        end = text.find("]", at)
        if end > 0:
            return _argument(text, end + 1)
    match = patterns.SHORT_ARGUMENT.match(text, at)
    return (match.group(), match.end()) if match else ("", n)


def lex(text: str, commas: bool = True) -> list[Token]:
    """Tokens of an answer.

    Raises:
        Unreadable: unbalanced braces, an unknown environment.
        TooBig: more than the limits allow.
    """
    if based := _based(text):
        return [based]
    tokens: list[Token] = []
    if "\\\\" in text and "begin" not in text:
        text = patterns.ESCAPED.sub(r"\\\1", text)
    _lex(text, tokens, False, 0, (patterns.LEX if commas else patterns.LEX_PARTED).match)
    if "max" in text or "min" in text:
        for at, token in enumerate(tokens[:-1]):
            beside = (tokens[at + 1], *tokens[max(at - 1, 0) : at])
            if token.value in ("max", "min") and (beside[0].value in ("=", ":") or any(t.kind == "w" for t in beside)):
                tokens[at] = Token("w", f"{token.value}imum", token.spaced)
    # `5 m` by itself is five metres; within a longer formula the same letter is a variable
    if any(token.kind == "u" for token in tokens):
        kinds = [t.kind for t in tokens if t.value not in "+-{}"]
        alone = kinds == ["n", "u"]
        # `8 m/s`, `9.8 m/s^2`
        if kinds[:4] in (["n", "u", "o", "s"], ["n", "u", "o", "u"]) and kinds[4:] in ([], ["o", "n"]):
            at = next(i for i, token in enumerate(tokens) if token.kind == "u")
            alone = tokens[at + 1].value == "/" and tokens[at + 2].value in _UNITS
            tokens[at + 2] = tokens[at + 2]._replace(kind="w") if alone else tokens[at + 2]
        if not alone:
            tokens = [
                Token("s", letter, t.spaced) if t.kind == "u" else t
                for t in tokens
                for letter in (t.value if t.kind == "u" else " ")
            ]
    return tokens


def _lex(text: str, out: list[Token], upright: bool, depth: int, match_at: Match) -> None:
    if depth > DEPTH:
        raise TooBig("nested too deep")
    pos, n, spaced = 0, len(text), False
    while pos < n:
        # asked as it grows: a hostile text must not be read to its end first
        if len(out) > MOST_TOKENS:
            raise TooBig("too many tokens")
        match = match_at(text, pos)
        if match is None:
            raise Unreadable("a character that cannot be read")
        kind = match.lastgroup
        value = match.group()
        if kind == "half" and not (
            upright or (out and out[-1].kind == "n" and ("." in value or any(t.value == ":" for t in out)))
        ):
            kind, match = "word", patterns.LEXER_WORD.match(text, pos) or match
            value = match.group()
        pos = match.end()
        if kind == "space":
            spaced = True
            continue
        if kind == "num":
            out.append(Token("n", value, spaced))
        elif kind == "group":
            # a comma before decimals is a point, and points part groups before it; else the marks go
            continental = match["continental"] and value.replace(".", "").replace(",", ".")
            comma = match["comma"] and value.replace("{,}", ".")
            out.append(Token("n", continental or comma or patterns.MARKS.sub("", value), spaced))
        elif kind == "half":
            out.append(Token("w", f"{value[0].lower()}m", True))
        elif kind == "word":
            if value in "xX" and out and out[-1].kind == "n" and patterns.POWER_OF_TEN.match(text, pos):
                out.append(Token("o", "*", spaced))
            elif (
                # `by` is a word or two variables: what stands around it decides
                len(value) == 2
                and not upright
                and value.lower() in PRODUCTS
                and not value.isupper()
                and is_product(text, pos, out, spaced)
            ):
                out.extend((Token("s", value[0], spaced), Token("s", value[1])))
            else:
                add_letters(value, out, spaced, upright)
        elif kind == "foreign":
            out.extend(Token("w", word, spaced) for word in vocabulary.words_of(value))
        elif kind == "op":
            # a dollar within an answer only switches modes
            if value in "$":
                spaced = True
                continue
            value = value.strip("{}") if len(value) == 3 else value  # `3{:}45`
            is_dots = value[0] == "." and len(value) > 2
            out.append(Token("c", "ldots", spaced) if is_dots else Token("o", value, spaced))
        elif kind == "cmd":
            pos = _command(text, pos, value[1:], out, spaced, depth, match_at)
        elif kind == "side":
            continue
        elif kind == "esc":
            is_space, pos = _escaped(text, pos, value[1], out, spaced)
            if is_space:
                spaced = True
                continue
        elif kind == "env":
            pos = _environment(text, pos, match["which"], match["envname"], out)
        else:
            raise Unreadable("a character that cannot be read")
        spaced = False


def _command(text: str, pos: int, name: str, out: list[Token], spaced: bool, depth: int, match_at: Match) -> int:
    """A macro; returns where to read on."""
    if name in _WITH_ARGUMENT:
        pos = _macro(text, pos, name, out, spaced, depth, match_at)
    elif name in vocabulary.GREEK:
        out.append(Token("s", name, spaced))
    elif name in vocabulary.VARIANTS:
        name = vocabulary.VARIANTS[name]
        out.append(Token("c" if name == "pi" else "s", name, spaced))
    elif name == "mathbb" or name == "Bbb":
        argument, pos = _argument(text, pos)
        letter = argument.strip()
        # `\mathbb{P}` and `\mathbb{E}` are letters dressed up, not sets of numbers
        is_set = len(letter) != 1 or letter in "RZNQC"
        out.append(Token("c", "set" + letter, spaced) if is_set else Token("s", letter, spaced))
    elif name == "not":
        rest = patterns.NEGATED.match(text, pos)
        if rest is None:
            # a stroke that were dropped in silence would turn the answer round
            raise Unreadable("a negation")
        pos = rest.end()
        out.append(Token("c", "ne" if "=" in rest.group() else "notin", spaced))
    else:
        name = vocabulary.SYNONYMS.get(name, name)
        out.append(Token("o" if len(name) == 1 and name not in "{}" else "c", name, spaced))
    return pos


def _escaped(text: str, pos: int, mark: str, out: list[Token], spaced: bool) -> tuple[bool, int]:
    """A backslash before a mark: whether it is only space, and where to read on."""
    if mark in "{}":
        out.append(Token("c", mark, spaced))
    elif mark == "$":
        # an escaped dollar is money, a bare one is not
        out.append(Token("w", "$", spaced))
    elif mark == "\\":
        # `\\[2pt]`: the space that a line break asks for is layout
        row = patterns.ROW_SPACE.match(text, pos)
        pos = row.end() if row else pos
        out.append(Token("c", "newline", spaced))
    elif mark == "|":
        out.extend((Token("o", "|", spaced), Token("o", "|")))
    elif mark in "%_&#":
        out.append(Token("o", mark, spaced))
    else:
        return True, pos
    return False, pos


def _environment(text: str, pos: int, which: str, name: str, out: list[Token]) -> int:
    if name in vocabulary.ALIGNED_ENVIRONMENTS:
        if which == "begin" and name == "alignedat":
            return _argument(text, pos)[1]
        out.append(Token("c", which + "aligned"))
        return pos
    if name not in vocabulary.MATRIX_ENVIRONMENTS and name != "cases" and name != "dcases" and name != "rcases":
        raise Unreadable(f"an environment {name[:20]}")
    if which == "begin" and name == "array":
        # the columns of `{c|c}` are layout
        option = patterns.COLUMNS.match(text, pos)
        pos = option.end() if option else pos
    # a determinant would have to be computed: no reader knows `begin:det`, so that it is refused and not compared
    # by cells
    kind = {"vmatrix": "det", "Vmatrix": "det", "array": "array"}.get(name, "matrix")
    if name.endswith("cases"):
        kind = "cases"
    out.append(Token("c", f"{which}:{kind}"))
    return pos


def _macro(text: str, pos: int, name: str, out: list[Token], spaced: bool, depth: int, match_at: Match) -> int:
    """A macro that dresses, hides or names its argument."""
    if name == "color":
        return _argument(text, pos)[1]
    if name in vocabulary.COLOUR_MACROS:
        _, pos = _argument(text, pos)
        if name == "fcolorbox":
            _, pos = _argument(text, pos)
    argument, pos = _argument(text, pos)
    if name in vocabulary.HIDDEN_MACROS:
        return pos
    bare = argument.strip()
    # the spaces in its macro distinguish the joining word from a variable
    if (
        bare in vocabulary.LETTER_JOINING
        and argument == f" {bare} "
        and name in vocabulary.TEXT_MACROS
        and text[pos:].strip()
    ):
        out.append(Token("w", vocabulary.LETTER_JOINING[bare], True))
        return pos
    # `3\text{E}8`: an upright letter right between a number and digits is a power of ten
    if (
        bare in ("e", "E")
        and out
        and out[-1].kind == "n"
        and "e" not in out[-1].value.lower()
        and (power := patterns.TEN.match(text, pos))
    ):
        out[-1] = out[-1]._replace(value=f"{out[-1].value}e{power[1]}{power[2]}")
        return power.end()
    # space before the macro is space before its first token: it distinguishes `5 m` from `5m`
    if spaced or argument[:1].isspace():
        argument = " " + argument.lstrip()
    if name in BASIS_MACROS and bare.lstrip("\\") in _BASIS:
        out.append(Token("s", _BASIS[bare.lstrip("\\")], spaced))
        return pos
    if name in vocabulary.TEXT_MACROS and not bare:
        return pos
    if name == "operatorname" and bare not in vocabulary.FUNCTIONS and bare.isalpha() and len(bare) > 1:
        out.append(Token("w", bare, spaced))
    elif (
        name in ("textbf", "textit")
        or name in vocabulary.TEXT_MACROS
        or (name in ("mathrm", "mathbf", "operatorname") and len(bare) > 1)
    ):
        _lex(argument, out, True, depth + 1, match_at)
    # an upright `m` behind a number is metres, elsewhere a letter set upright
    elif name == "mathrm" and bare in UPRIGHT_UNITS and may_be_unit(out):
        out.append(Token("w", bare, spaced))
    elif len(bare) > 1 and name not in ("boxed", "fbox", "framebox", "underline"):
        # what is dressed together stays together: `\mathit{ab}^2` squares both
        out.append(Token("o", "{"))
        _lex(argument, out, False, depth + 1, match_at)
        out.append(Token("o", "}"))
    else:
        _lex(argument, out, False, depth + 1, match_at)
    return pos


def canonical(tokens: list[Token]) -> str:
    """One string for a token list, the same for every layout of one answer."""
    values: list[str] = []
    for token in tokens:
        # braces around one character or macro change nothing: `x^{2}` is `x^2`, but `\frac12 5` is no `\frac{12}{5}`
        if (
            token.value == "}"
            and token.kind == "o"
            and len(values) > 1
            and values[-2] == "{"
            and not values[-1][1:].isdigit()
        ):
            values[-2:] = values[-1:]
        else:
            values.append("\\{" if token.value == "{" and token.kind == "c" else token.value)
    return " ".join(values)
