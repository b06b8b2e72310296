import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "recipes" / "unverified" / "countdown_score.py"
spec = importlib.util.spec_from_file_location("countdown_score", FILE)
assert spec is not None and spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


def score(answer: str) -> float:
    return float(module.score(f"<think>x</think><answer>{answer}</answer>", [6, 61, 94, 4], 309))


@pytest.mark.parametrize("answer", ["94*4 - 61 - 6", " (94 * 4) - (61 + 6) ", "94*4-61-6\n"])
def test_a_right_expression_scores_one(answer: str) -> None:
    assert score(answer) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "94*4 - 67",
        "94*4 - 61 - 6 + 4 - 4",
        "309",
        "94*4 - 61",
        "__import__('os').system('x')",
        "6/(4-4)",
        "9**9**9**9",
        "(" * 500,
        "-" * 300 + "1",
        "",
        "94*4 - 61 - 6 = 309",
        "True",
        "\x00",
    ],
)
def test_anything_else_scores_nothing(answer: str) -> None:
    assert score(answer) == 0.0


def test_no_answer_scores_nothing() -> None:
    assert module.score("94*4 - 61 - 6", [6, 61, 94, 4], 309) == 0.0
