"""Programs of `across.txt`: what objects, classes and exceptions mean on the other side of the wall, honest ones and liars.

`none` is what the wall does not carry; `limit` marks honest programs that are refused: they lean on what a proxy of their
class cannot do (the C functions of `list`, operators of an `IntFlag`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_verifiers.program import CodeVerifier

PROGRAMS = [
    # a head `name entry score`, the solution, `---`, the test program
    block.partition("\n")[::2]
    for block in Path(__file__).with_name("across.txt").read_text().split("\n===== ")[1:]
]


@pytest.mark.parametrize(("head", "body"), PROGRAMS, ids=[head.split()[0] for head, _ in PROGRAMS])
def test_program_gets_its_score(verifier: CodeVerifier, head: str, body: str) -> None:
    _, entry, score = head.split()
    code, tests = body.split("\n---\n")
    verdict = verifier.verify(code, {"entry_point": entry, "tests": tests})
    if score == "none":
        assert verdict.score is None and verdict.reason in ("not_supported", "untrusted_objects"), verdict
    else:
        assert verdict.score == (0.0 if score == "limit" else float(score)), verdict
