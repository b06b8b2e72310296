"""No text, however it repeats itself, takes a verifier of short answers or forms longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from grpo_verifiers import build
from grpo_verifiers.program.command import source_of
from grpo_verifiers.proof.metamath import proof_text
from grpo_verifiers.sandbox.inside.fences import blocks, python_blocks
from grpo_verifiers.thinking import after_thinking, answer_text

SIZE = 190_000
BOUND_S = 2.0
"""CPU seconds for the largest text that is read at all; linear work takes a tenth of it."""

ALL_CHECKS = [
    {"kind": kind, **more}
    for kind, more in [
        *((kind, {"least": 0}) for kind in (
            "words", "sentences", "paragraphs", "lines", "bullets", "numbered", "headings", "highlights", "placeholders", "capital_words", "parts",
        )),
        ("sections", {"text": "PART", "least": 0}), ("letter", {"text": "a", "least": 0}), ("keyword", {"text": "a b", "least": 0}),
        ("include", {"words": ["a"]}), ("ends_with", {"text": "x"}), ("title", {}), ("postscript", {"text": "P.S."}), ("json", {}),
        ("script", {"text": "LATIN"}), ("nth_paragraph", {"n": 3, "text": "a"}), ("repeats", {"text": "a"}), ("quoted", {}),
        ("upper_case", {}), ("one_of", {"words": ["a"]}), ("contains_one", {"words": ["a"]}), ("two_answers", {}), ("starts_with", {"text": "a"}),
    ]
]  # fmt: skip
SETUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "math": ({"max_chars": 200_000}, {"answer": "5"}),
    "math, a formula": ({"max_chars": 200_000}, {"answer": "x^2+\\frac{1}{2}"}),
    "math, words": ({"max_chars": 200_000}, {"answer": "\\text{no solution}"}),
    "exact": ({}, {"answer": "Paris"}),
    "set": ({"partial": "f1"}, {"answer": ["red", "green"]}),
    "choice": ({}, {"answer": "B", "choices": ["Paris", "Rome", "Berlin"]}),
    "numeric": ({"units": "convert"}, {"answer": "5 km"}),
    "json": ({"partial": True, "order": "free"}, {"answer": {"a": [1, 2]}}),
    "format": ({"partial": True, "boxes": "one"}, {}),
    "equation": ({}, {"target": 24, "numbers": [3, 8]}),
    "agrees": ({}, {}),
    "agrees, a mark": ({"ends": "#"}, {}),
    "instructions": ({"partial": True, "lenient": True}, {"instructions": ALL_CHECKS}),
}
UNITS = [
    " ", "\n", "\t", "\r\n", "a", "A ", "5", ",", "*", "**", "* ", "- ", "#", "# ", "[", "]", "[a", "(", ")", "{", "}", "<", "<<", "`", "```",
    "```json\n", "``` \n", "<think>", "</think>", "<answer>", "</answer>", "</answer> ", "\\text{", "\\text", "\\boxed{", "\\boxed{}", "\\frac{",
    "$", "\"", "'", "\\", "or ", " or", "and ", "option ", "answer is ", "The answer is ", "P.S. ", "P.S.", "P.", "<<a", "PART ", "1.", "1. ", "1,", "e", "^", "/", "-", ".", "!",
    "\u3000", "\u200b", "é", "\x00", '{"a":', "[1,", '"a",', "PART 1\n", "\n\n", "\n \n", "***\n", "=", "~", "_",
]  # fmt: skip
WRAPPERS = [
    ("", ""),
    ("\\boxed{", "}"),
    ("<answer>", "</answer>"),
    ("```json\n", "\n```"),
    ("a", "b"),
    ("option", "B"),
    ("* ", "x"),
    ("{", "}"),
    ("\\boxed{5", "6}"),
    ("5 or \\boxed{", "}"),
    ("$\\boxed{5}", "x$"),
    ("\\boxed{5}\n", "The answer is 6."),
    ("$x=", "\\boxed{5}$"),
]


@pytest.mark.parametrize("kind", SETUPS)
def test_no_repeating_text_takes_long(kind: str) -> None:
    options, row = SETUPS[kind]
    verifier = build(kind.partition(",")[0], **options)
    gold = verifier.compile(row)
    slow = []
    for unit in UNITS:
        for head, tail in WRAPPERS if kind != "instructions" else (("", ""), ("a", "b")):
            took = _cpu_s(verifier, gold, head + unit * (SIZE // 16 // len(unit)) + tail)
            if took < BOUND_S / 30:  # quadratic work on a sixteenth of the text shows already
                continue
            took = _cpu_s(verifier, gold, head + unit * (SIZE // 4 // len(unit)) + tail) * 4
            if took > BOUND_S:
                slow.append((head, unit, tail, round(took, 2)))
                if len(slow) > 3:
                    break
    assert not slow


@pytest.mark.parametrize(
    "find",
    [after_thinking, answer_text, blocks, python_blocks, proof_text, lambda text: source_of(text, ("rust",))],
    ids=["thinking", "answer", "fences", "python", "proof", "source"],
)
def test_no_repeating_text_takes_a_reader_of_programs_long(find: Callable[[str], Any]) -> None:
    for unit in UNITS:
        for head, tail in [*WRAPPERS, ("```python\n", "\n```"), ("```", "x"), ("<think>", "</think>x")]:
            text = head + unit * (SIZE // 4 // len(unit)) + tail
            began = time.process_time()
            find(text)
            assert time.process_time() - began < BOUND_S / 4, (head, unit, tail)


def test_blanks_between_two_digits_of_a_box_are_looked_through_once() -> None:
    maths = build("math")
    gold = maths.compile({"answer": "5"})
    assert _cpu_s(maths, gold, "\\boxed{5" + " " * 100_000 + "6}") < 0.05
    assert maths.verify("\\boxed{5" + " " * 3_000 + "}", {"answer": "5"}).score == 1.0


def _cpu_s(verifier: Any, gold: Any, text: str) -> float:
    from grpo_verifiers import Sample

    began = time.process_time()
    verifier.judge([Sample(text, gold)])
    return time.process_time() - began
