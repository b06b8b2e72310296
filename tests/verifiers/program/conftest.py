"""A code verifier of one lane for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_verifiers.program import CodeOptions, CodeVerifier


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    made = CodeVerifier(CodeOptions(lanes=1))
    yield made
    made.close()
