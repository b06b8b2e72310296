"""Small Python functions of one argument, each asked for in a sentence and tested by asserts.

A row is one of the wordings below with numbers filled in. All rows are shuffled by `seed` and the first `test_size` are
held out, so every wording occurs in both splits with different numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

OPTIONS = ("size", "test_size", "seed")
NUMBERS = range(2, 22)
WORDINGS: dict[str, str] = {
    "x plus {k}": "x + {k}",
    "x minus {k}": "x - {k}",
    "x times {k}": "x * {k}",
    "{k} minus x": "{k} - x",
    "{k} times x plus {j}": "{k} * x + {j}",
    "x squared plus {k}": "x ** 2 + {k}",
    "the remainder of x divided by {k}": "x % {k}",
    "x divided by {k}, rounded down": "x // {k}",
    "the larger of x and {k}": "max(x, {k})",
    "the smaller of x and {k}": "min(x, {k})",
    "whether x is greater than {k}": "x > {k}",
    "whether x is at most {k}": "x <= {k}",
    "whether x is divisible by {k}": "x % {k} == 0",
    "the distance between x and {k}": "abs(x - {k})",
    "a list of {k} copies of x": "[x] * {k}",
    "the string x repeated {k} times": "x * {k}",
    "the first {k} items of the list x": "x[:{k}]",
}
"""A function's result, in words and as an expression."""


def rows(split: str, size: int = 400, test_size: int = 64, seed: int = 7) -> Iterator[dict[str, Any]]:
    """At most `size` training rows, or the `test_size` held-out ones; columns question, tests, solution."""
    draw = random.Random(seed)
    # the second number is drawn once a row, so that two rows never ask the same
    every = [problem(words, k, draw.choice(NUMBERS)) for words in WORDINGS for k in NUMBERS]
    draw.shuffle(every)
    return islice(every, test_size) if split == "test" else islice(every, test_size, test_size + size)


def problem(words: str, k: int, j: int) -> dict[str, Any]:
    """One function: a description of its result, five asserts, and an expression that passes them."""
    # arguments on both sides of `k`, and at it
    arguments: list[Any] = [0, k - 1, k, k + 1, 6 * k]
    if "string" in words:
        arguments = ["a", "ab", "", "x y", "0"]
    elif "items" in words:
        arguments = [list(range(n)) for n in (0, k - 1, k, k + 1, 2 * k)]
    solution = WORDINGS[words].format(k=k, j=j)
    function = eval(f"lambda x: {solution}")
    return {
        "question": f"Write a Python function f(x) that returns {words.format(k=k, j=j)}.",
        "tests": [f"assert f({x!r}) == {function(x)!r}" for x in arguments],
        "solution": f"def f(x):\n    return {solution}",
    }
