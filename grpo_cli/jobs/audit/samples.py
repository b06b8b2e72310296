"""Rows to audit a kind on when the user gives none: a few plain golds of the shapes that the kind is used for."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]

_CITIES = ["Paris", "Rome", "Berlin", "Madrid"]

ROWS: dict[str, Rows] = {
    "math": [
        {"prompt": f"What is {question}?", "answer": answer}
        for question, answer in [
            ("6 times 12", "72"),
            ("a third and a sixth together", "\\frac{1}{2}"),
            ("the square of x + 1", "x^2+2x+1"),
            ("the square root of 20", "2\\sqrt{5}"),
            ("the point above", "(3, \\frac{\\pi}{2})"),
            ("the solution set", "[-2, 7)"),
            ("0.375 in words of digits", "0.375"),
            ("3 minus 10", "-7"),
            ("the price", "1,250"),
            ("the set of divisors of 4", "\\{1, 2, 4\\}"),
        ]
    ],
    "exact": [{"prompt": "Which city?", "answer": city} for city in _CITIES],
    "set": [
        {"prompt": "Name them.", "answer": answer}
        for answer in (["red", "green"], ["1", "5", "9"], ["oak", "elm", "ash"])
    ],
    "choice": [
        {"prompt": "Which city? A. Paris B. Rome C. Berlin D. Madrid", "answer": letter, "choices": _CITIES}
        for letter in "ABCD"
    ],
    "numeric": [
        {"prompt": "How much?", "answer": answer} for answer in (42, "3.25", "-17", "5 km", "12%", "1e-9")
    ],
    "json": [
        {"prompt": "Give the record.", "answer": answer}
        for answer in ({"name": "Ada", "born": 1815}, {"name": "Alan", "born": 1912}, {"items": [1, 2, 3]})
    ],
    "equation": [
        {
            "prompt": "Make 24 from 3, 3, 8, 8.",
            "target": 24,
            "numbers": [3, 3, 8, 8],
            "good": "\\boxed{8/(3-8/3)}",
        },
        {
            "prompt": "Make 98 from 44, 19, 35.",
            "target": 98,
            "numbers": [44, 19, 35],
            "good": "\\boxed{44+19+35}",
        },
        {"prompt": "Make 5 from 2, 3.", "target": 5, "numbers": [2, 3], "good": "\\boxed{2+3}"},
    ],
    "format": [{"prompt": "Think first.", "good": "<think>a</think>\n<answer>b</answer>"}],
    "instructions": [
        {
            "prompt": "Be short.",
            "instructions": [{"kind": "words", "most": 4}, {"kind": "no_commas"}],
            "good": "So be it.",
        }
    ],
    "regex": [
        {"prompt": "Answer with a digit.", "answer": str(digit), "good": f"The digit is {digit}"}
        for digit in range(5)
    ],
    "reasoning_gym": [
        {
            "prompt": f"Calculate {a} + {b}.",
            "rg": "basic_arithmetic",
            "question": "",
            "answer": str(a + b),
            "metadata": {},
        }
        for a, b in ((2, 3), (10, 7), (5, 5))
    ],
}
"""By kind; `good` is a right completion where the verifier cannot write one itself."""

OPTIONS: dict[str, dict[str, Any]] = {
    "regex": {"pattern": r"^The digit is (?P<answer>\d)\s*$", "match": "answer_group"},
}
"""Options an audit without a recipe needs."""

WHOLE_TEXT = frozenset({"regex", "format", "instructions"})
"""Kinds that judge the whole text as the recipe's pattern says: an answer's wrapping means nothing to them."""
