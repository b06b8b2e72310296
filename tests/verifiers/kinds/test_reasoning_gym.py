"""`reasoning_gym`: every data set's own answer is right, and nothing hostile is, runs, or is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Outcome, Sample, Verifier, build
from grpo_verifiers.kinds.reasoning_gym import is_formula

pytest.importorskip("reasoning_gym")

HOSTILE = [
    "no idea",
    "[0]*10**9",
    "9**9**9",
    "()" * 3000,
    "1/0",
    "{'a':1}",
    "\x00",
    "nan",
    "1e999",
    "True or False",
    "-inf+nanj",
]


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    made = build("reasoning_gym", extract="whole", workers=1)
    made.start()
    yield made
    made.close()


def entries() -> list[dict[str, Any]]:
    from reasoning_gym.factory import DATASETS, create_dataset

    out = []
    for name in sorted(set(DATASETS) - {"composite"}):
        entry = create_dataset(name, seed=3, size=1)[0]
        out.append({"rg": name, **{key: entry[key] for key in ("question", "answer", "metadata")}})
    return out


@pytest.mark.slow
def test_every_data_set_pays_for_its_answer_and_for_nothing_hostile(verifier: Verifier, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    for row in entries():
        gold = verifier.compile(row)
        first, *rest = verifier.judge(
            [Sample(str(row["answer"]), gold), *(Sample(text, gold) for text in [code, *HOSTILE])]
        )
        assert first.outcome is Outcome.RIGHT or not isinstance(row["answer"], str), row["rg"]
        for text, verdict in zip([code, *HOSTILE], rest, strict=True):
            assert verdict.outcome not in (Outcome.RIGHT, Outcome.ERROR), (row["rg"], text, verdict)
    assert not mark.exists()


@pytest.mark.parametrize("text", ["2*x + 3", "3*x**2 - sin(x)", "(5 + 3) * 2", "x^12", "log(x)/2 + C"])
def test_formulas_are_let_through(text: str) -> None:
    assert is_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.__class__",
        "open('f')",
        "lambda: 1",
        "9**9**9",
        "x**99999",
        "[1]",
        "f'{x}'",
        "a" * 3000,
        "eval(x)",
    ],
)
def test_code_and_towers_are_not_formulas(text: str) -> None:
    assert not is_formula(text)


def test_a_row_must_say_its_data_set(verifier: Verifier) -> None:
    from grpo_verifiers import BadGold

    with pytest.raises(BadGold, match="does not say its data set"):
        verifier.compile({"question": "q", "answer": "4", "metadata": {}})
