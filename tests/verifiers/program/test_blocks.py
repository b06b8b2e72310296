"""Programs that an answer gives in several code blocks."""

from __future__ import annotations

import pytest

from grpo_verifiers.program import CodeVerifier

CLASS = "class Grid:\n    def __init__(self, rows):\n        self.rows = rows\n    def turned(self):\n        return Grid([list(c) for c in zip(*self.rows)])"
USER = "def turn(rows):\n    return Grid(rows).turned().rows"
TESTS = ["assert turn([[1, 2]]) == [[1], [2]]", "assert Grid([[1, 2]]).turned().rows == [[1], [2]]"]


def answer(*parts: str) -> str:
    return "First this:\n" + "\nThen:\n".join(f"```python\n{part}\n```" for part in parts) + "\nDone."


@pytest.mark.parametrize("entry", ["Grid", "turn"])
@pytest.mark.parametrize(
    "later",
    [
        (),
        ("print(turn([[1, 2]]))",),
        ("import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_it(x):\n    assert turn([[x]]) == [[x]]",),
        ("from nowhere import that\nclass Extra(that.Base):\n    pass",),
        ("def turn2(rows: List[int]):\n    return rows",),
        ("raise SystemExit",),
        ("while True:\n    pass",),
    ],
)
def test_what_other_blocks_define_is_there_too(verifier: CodeVerifier, entry: str, later: tuple[str, ...]) -> None:
    for parts in ((CLASS, USER), (CLASS, "import collections\nSIZE = 2\n" + USER)):
        found = verifier.verify(answer(*parts, *later), {"entry_point": entry, "tests": TESTS})
        assert found.outcome == "right", found


def test_values_and_imports_come_with_the_definitions_that_read_them(verifier: CodeVerifier) -> None:
    later = "import math\nSCALE = 2\nOTHER = print('no')\ndef far(x):\n    return math.floor(x) * SCALE"
    tests = ["assert near(1) == 1 and far(2.5) == 4"]
    assert (
        verifier.verify(answer("def near(x):\n    return x", later), {"entry_point": "near", "tests": tests}).outcome
        == "right"
    )


def test_a_later_block_changes_nothing_of_the_program(verifier: CodeVerifier) -> None:
    program = "def near(x):\n    return helped(x)\ndef helped(x):\n    return x"
    row = {"entry_point": "near", "tests": ["assert near(1) == 1"]}
    for later in ("def helped(x):\n    return 5", "helped = None\ndef other():\n    return helped"):
        assert verifier.verify(answer(program, later), row).outcome == "right", later
