r"""Escapes of double-quoted YAML that eat TeX: `"\boxed"` is a backspace and `oxed`, `"\text"` a tab and `ext`.

Escapes by number (`\x08`, `\u2028`) are meant as they stand. A line break, a tab and a carriage return are too, unless a
command of TeX begins with their letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.tokens import ScalarToken

CODES = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
"""Characters by the letter that YAML escapes them with."""
_LETTERS = {char: letter for letter, char in CODES.items()}
_COMMANDS = frozenset(
    """
    nabla natural ne nearrow neg negthickspace neq newline newcommand nexists ngeq ngtr nleq nless nmid nolimits nonumber
    normalsize not notag notin nparallel nrightarrow nleftarrow nsim ncong nprec nsucc nsubseteq nsupseteq nu nwarrow
    tag tan tanh tau tbinom text textbf textcolor textit textnormal textrm textsc textsf textstyle texttt textup tfrac
    theta therefore thickspace thinspace tilde times tiny to top triangle triangleleft triangleq triangleright
    rangle rbrace rbrack rceil ref rfloor rho right rightarrow rightharpoonup rightleftharpoons rm root rule rvert
    """.split()  # noqa: SIM905 - a table of names reads better than 70 lines of quotes
)
"""Commands of TeX that begin with the letter of a tab, a line break or a carriage return."""
_PAIR = re.compile(r"\\(.)", re.S)
_WORD = re.compile(r"[A-Za-z]{0,20}")
HINT = "use single quotes, or two backslashes"


@dataclass(frozen=True, slots=True)
class EatenCommand:
    """An escape that took the first letter of a command: where it starts, how long the command is, and what is said."""

    at: int
    width: int
    message: str
    code: int


def eaten_commands(raw: str) -> Iterator[EatenCommand]:
    """Those in a double-quoted scalar as it is written; places count from its first character."""
    for pair in _PAIR.finditer(raw):
        if (found := _eaten(pair[1], raw, pair.end())) is not None:
            command, code = found
            rest = f" and `{command[2:]}`" if command[2:] else ""
            message = f"`{command}` in double quotes is U+{code:04X}{rest}: {HINT}; `{_number(code)}` if it is meant"
            yield EatenCommand(pair.start(), len(command), message, code)


def eaten_by_shell(text: str) -> str:
    """What is wrong with a text of the command line whose escapes the shell has read; empty where nothing is."""
    for at, char in enumerate(text):
        if char in _LETTERS and (found := _eaten(_LETTERS[char], text, at + 1)) is not None:
            return f"it holds U+{found[1]:04X} where `{found[0]}` was meant: write {found[0]} in plain single quotes"
    return ""


def _eaten(letter: str, text: str, after: int) -> tuple[str, int] | None:
    """The command that began with this letter, and the character that was made of it."""
    if letter not in CODES:
        return None
    match = _WORD.match(text, after)
    word = letter + (match[0] if match else "")
    if letter in "ntr" and word not in _COMMANDS:
        return None
    return f"\\{word}", ord(CODES[letter])


def spelled_out(text: str) -> str:
    """YAML in which such an escape stands by its number, so that it is read back as what it is."""
    places = []
    for token in YAML(typ="safe", pure=True).scan(text):
        if isinstance(token, ScalarToken) and token.style == '"':
            start = token.start_mark.index
            places += [(start + one.at, one.code) for one in eaten_commands(text[start : token.end_mark.index])]
    for at, code in reversed(places):
        text = text[:at] + _number(code) + text[at + 2 :]
    return text


def _number(code: int) -> str:
    return f"\\x{code:02X}" if code < 256 else f"\\u{code:04X}"
