"""Every regular expression of the package takes time linear in its text, whatever repeats itself in it.

The patterns are found in the source: those of the modules, and those written where they are used. Each is tried on
head + unit x n + tail. Heads and units are those of the lists below, and an example of what stands before each repetition
of the pattern, and of what it repeats.
"""

from __future__ import annotations

import ast
import importlib
import re
import re._constants as ops  # type: ignore[import-not-found]
import re._parser as syntax  # type: ignore[import-not-found]
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import grpo_verifiers

ROOT = Path(grpo_verifiers.__file__).parent
CALLS = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
NOT_OURS = {
    "kinds/judge.py": "the user's own pattern",
    "kinds/json_formats.py": "the pattern of a schema, tried where no text is",
    "sandbox/inside/wall/pytest_shim.py": "a pattern of a row's tests, in the tester's process",
}
HEADS = ["", "5", "a", "{", "\\text{"]
TAILS = ["", "6}", "!\x00", "\x00x"]
UNITS = [
    " ", "\n", "\t", "\r\n", "a", "A", "5", ",", "1,", "$", "\\", "{", "}", "{}", "(", ")", "()", "[", "]", "\\text{", "\\text{a}", "\\,", "\\;",
    "\\ ", "~", "\\quad", "a ", "or ", "and ", "the ", "a,", "5 ", "5,", ".", "..", "-", "--", "|", "<", "<a", "</", "<answer>", "_", "^", "=",
    "x=", ":", "::", "*", "**", "* ", "#", "####", "`", "```", "'", '"', "!", "?", "1.", "\\frac{", "\\\\", "%", "the answer is ", "not ", "/",
    "/*", "/**a", "+", "box", "\\boxed{", "5\u0305", "\\prime", "&", "<|a|>", "no ", "is ", "(about ",
]  # fmt: skip
GROWTHS = {20: 60, 320: 30, 5120: 7}
"""Characters of a text, and how many times longer than a fourth of it a pattern may take: a bounded repetition grows with
the square of a text that is shorter than its bound, so only what is exponential counts at 20, and what is cubic at 320."""
SAMPLES = 'a5 \n.,$\\{}(<"`*-='
CLASSES = {
    ops.CATEGORY_DIGIT: str.isdigit,
    ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    ops.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    ops.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    ops.CATEGORY_NOT_WORD: lambda c: not c.isalnum() and c != "_",
}


class Found(NamedTuple):
    """A pattern and where it stands."""

    place: str
    pattern: re.Pattern[str]

    def run(self, text: str) -> float:
        """CPU seconds of this thread to look for it everywhere, and to compare it with all of the text."""
        began = time.thread_time()
        self.pattern.sub("", text)
        self.pattern.fullmatch(text)
        return time.thread_time() - began


@lru_cache(maxsize=1)
def patterns() -> tuple[Found, ...]:
    found = (each for file in sorted(ROOT.rglob("*.py")) for each in _patterns(file, ast.parse(file.read_text())))
    return tuple(each for each in found if isinstance(each.pattern.pattern, str))


def _module(file: Path) -> str:
    return ".".join(("grpo_verifiers", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _patterns(file: Path, tree: ast.Module) -> Iterator[Found]:
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in CALLS
    ]
    if not calls:
        return
    module = importlib.import_module(_module(file))
    imported = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    seen = set()
    for name, value in vars(module).items():
        for pattern in _within(value) if name not in imported else ():
            seen.add(pattern.pattern)
            yield Found(f"{module.__name__}.{name}", pattern)
    for call in calls:
        text = _text(call.args[0], vars(module))
        place = f"{file.relative_to(ROOT)}"
        if text is None:
            assert place in NOT_OURS, f"{place}:{call.lineno}: a pattern that this test cannot read"
        elif text not in seen:
            flags = next((eval(ast.unparse(a), {"re": re}) for a in _flags(call)), 0)
            yield Found(f"{place}:{call.lineno}", re.compile(text, flags))


def _flags(call: ast.Call) -> Iterator[ast.expr]:
    named = [k.value for k in call.keywords if k.arg == "flags"]
    yield from (a for a in [*call.args[1:], *named] if ast.unparse(a).startswith("re."))


def _within(value: object, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | list | tuple | set | frozenset) and depth < 4:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _within(part, depth + 1)


def _text(node: ast.expr, names: dict[str, Any]) -> str | None:
    """The source of a pattern; an `a` stands for what is put into it where it is used."""
    if isinstance(node, ast.JoinedStr):
        parts = (_text(v.value, names) if isinstance(v, ast.FormattedValue) else v.value for v in node.values)
        return "".join("a" if part is None else str(part) for part in parts)
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), dict(names))
    except NameError:
        return None
    return value.pattern if isinstance(value, re.Pattern) else value


def _members(items: list[Any]) -> list[str]:
    """Characters of a class."""
    told = [(op, av) for op, av in items if op is not ops.NEGATE]
    if len(told) == len(items):
        ones = [chr(av if op is ops.LITERAL else av[0]) for op, av in told if op is not ops.CATEGORY]
        return ones + [c for op, av in told if op is ops.CATEGORY for c in SAMPLES if CLASSES[av](c)][:2]

    def is_told(char: str) -> bool:
        return any(
            char == chr(av)
            if op is ops.LITERAL
            else av[0] <= ord(char) <= av[1]
            if op is ops.RANGE
            else CLASSES[av](char)
            for op, av in told
        )

    return [char for char in SAMPLES if not is_told(char)] or ["é"]


REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


def _example(tree: Any, pick: int = 0) -> str:
    """The shortest text of a pattern; `pick` chooses among alternatives."""
    text = ""
    for op, av in tree:
        if op is ops.LITERAL:
            text += chr(av)
        elif op is ops.NOT_LITERAL:
            text += "a" if av != ord("a") else "b"
        elif op is ops.ANY:
            text += "a"
        elif op is ops.IN:
            members = _members(av)
            text += members[pick % len(members)]
        elif op is ops.BRANCH:
            text += _example(av[1][pick % len(av[1])], pick)
        elif op in REPEATS:
            text += _example(av[2], pick) * av[0]
        elif op is ops.SUBPATTERN:
            text += _example(av[3], pick)
        elif op is ops.ATOMIC_GROUP:
            text += _example(av, pick)
    return text


def _repetitions(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What stands before each long repetition, and what it repeats."""
    for i, (op, av) in enumerate(tree):
        for pick in range(3 if i else 1):
            head = before + _example(tree[:i], pick)
            if op in REPEATS:
                if av[1] >= 30:
                    yield from ((head, unit) for k in range(4) if (unit := _example(av[2], k)))
                yield from _repetitions(av[2], head)
            elif op is ops.BRANCH:
                for branch in av[1]:
                    yield from _repetitions(branch, head)
            elif op in (ops.SUBPATTERN, ops.ATOMIC_GROUP, ops.ASSERT, ops.ASSERT_NOT):
                inner = av[3] if op is ops.SUBPATTERN else av if op is ops.ATOMIC_GROUP else av[1]
                yield from _repetitions(inner, head)


def texts(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """Heads, units and tails to try on a pattern."""
    own = dict.fromkeys(_repetitions(list(syntax.parse(pattern.pattern, pattern.flags))))
    pairs = [pair for head, unit in own for pair in ((head, unit), ("", unit), ("", head + unit * 2))]
    heads = [*HEADS, *list(dict.fromkeys(head for head, _ in own))[:6]]
    pairs += [(head, unit) for head in heads for unit in UNITS]
    yield from ((head, unit, tail) for head, unit in dict.fromkeys(pairs) for tail in TAILS)


def superlinear(found: Found, head: str, unit: str, tail: str) -> str | None:
    """How the time grows where it grows faster than the text, by the least of seven measurements of both lengths by turns."""

    def seconds(size: int) -> float:
        return found.run(head + unit * max(1, size // len(unit)) + tail)

    for size, most in GROWTHS.items():
        bound = size * 6e-7 + 2e-5  # ten times what a text takes that is looked through once
        if seconds(size) > bound and seconds(size) > bound:
            before, last = map(min, zip(*((seconds(size // 4), seconds(size)) for _ in range(7)), strict=True))
            if last > max(bound, most * before):
                return f"{head!r} + {unit!r} x n + {tail!r}: {last / before:.0f} times for 4 x the text at {size}"
    return None


def test_the_patterns_are_found() -> None:
    assert len(patterns()) > 180
    assert sum(found.place.startswith("grpo_verifiers.maths") for found in patterns()) > 80


@pytest.mark.parametrize("pattern", [r"\s*\.?\s*$", r"\s*\.?\s*\$?\s*$", r"(?:a|aa)+$", r"\(.*\)"])
def test_a_pattern_that_is_not_linear_is_seen(pattern: str) -> None:
    found = Found("here", re.compile(pattern))
    assert any(superlinear(found, *text) for text in texts(found.pattern))


@pytest.mark.parametrize("found", [f for f in patterns() if isinstance(f.pattern.pattern, str)], ids=lambda f: f.place)
def test_no_text_takes_a_pattern_more_than_linear_time(found: Found) -> None:
    slow = []
    for text in texts(found.pattern):
        problem = superlinear(found, *text)
        if problem is not None:
            slow.append(problem)
            if len(slow) == 3:
                break
    assert not slow, found.pattern.pattern
