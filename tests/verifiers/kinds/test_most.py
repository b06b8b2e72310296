"""The most that a function of a user's can return, read from its source: exact where it is known, unknown elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_verifiers.kinds.functions.conventions import most_of
from grpo_verifiers.kinds.python_function import PythonOptions, PythonVerifier

KNOWN = {
    "return 0.5 if 'x' in completion else 0.0": 0.5,
    "return 'x' in completion": 1.0,
    "return 0.5 * ('x' in completion)": 0.5,
    "return 0.25 * ('a' in completion) + 0.25 * ('b' in completion)": 0.5,
    "return -1": -1.0,
    "return None if not completion else 0.3": 0.3,
    "if completion:\n        return 0.5\n    return -0.5": 0.5,
    "return [0.5 if 'x' in c else 0.0 for c in completion]": 0.5,
    "out = []\n    for c in completion:\n        out.append(0.5 if 'x' in c else 0)\n    return out": 0.5,
    "out = []\n    for c in completion:\n        if c:\n            out.append(0.2)\n        else:\n            out.append(0)\n    return out": 0.2,
    "score = 0.1\n    if completion:\n        score = 0.4\n    return score": 0.4,
    "return {'score': 0.5 if completion else 0.0, 'reason': 'x'}": 0.5,
    "return float(completion == 'x') - 0.5": 0.5,
    "good = 'x' in completion\n    return 0.5 if good else 0.0": 0.5,
}
UNKNOWN = [
    "return len(completion)",
    "score = 0.0\n    for c in completion:\n        score += 0.1\n    return score",
    "return sum([0.5])",
    "out = [0.5]\n    fill(out)\n    return out",
    "out = [0.5]\n    out[0] = 2\n    return out",
    "out = [0.5]\n    out += [2.0]\n    return out",
    "out = [0.5]\n    out.extend([2.0])\n    return out",
    "a, b = 0.5, 3\n    return b",
    "for x in [2.0]:\n        pass\n    return x",
    "return {'outcome': 'right', 'score': 0.5}",
    "return [reward(c) for c in completion]",
    "yield 0.5",
    "pass",
    "return 0.5 / 0.1",
    "x = 0.5\n    while (x := x * 2) < 4:\n        pass\n    return x",
    "def inner():\n        nonlocal x\n        x = 2\n    x = 0.5\n    inner()\n    return x",
]


def written(folder: Path, body: str, head: str = "def f(completion):") -> tuple[str, int]:
    file = folder / "f.py"
    file.write_text(f"{head}\n    {body}\n")
    return str(file), 1


@pytest.mark.parametrize("body", KNOWN)
def test_the_most_of_a_function_whose_numbers_stand_in_it(body: str, tmp_path: Path) -> None:
    assert most_of(*written(tmp_path, body)) == KNOWN[body]
    assert most_of(*written(tmp_path, body, "async def f(completion):")) == KNOWN[body]


@pytest.mark.parametrize("body", UNKNOWN)
def test_a_function_whose_returns_do_not_stand_in_it_has_no_known_most(body: str, tmp_path: Path) -> None:
    assert most_of(*written(tmp_path, body)) is None


def test_a_decorator_may_change_what_comes_back(tmp_path: Path) -> None:
    file, _ = written(tmp_path, "return 0.5", "@double\ndef f(completion):")
    assert most_of(file, 1) is None and most_of(file, 2) is None
    assert most_of(str(tmp_path / "gone.py"), 1) is None


def test_an_argument_may_be_anything(tmp_path: Path) -> None:
    body = "if completion:\n        bonus = 0.5\n    return bonus"
    assert most_of(*written(tmp_path, body, "def f(completion, bonus=2.0):")) is None


@pytest.mark.parametrize(("options", "most"), [({}, 0.5), ({"range": [-1.0, 2.0]}, 2.0), ({"right_at": 0.1}, 0.5)])
def test_the_verifier_says_it_once_it_was_started(options: dict[str, object], most: float, tmp_path: Path) -> None:
    written(tmp_path, "return 0.5 if completion else 0.0")
    made = PythonVerifier(PythonOptions("f.py:f", path=[str(tmp_path)], workers=1, **options))  # type: ignore[arg-type]
    try:
        made.start()
        assert made.most == most
    finally:
        made.close()
