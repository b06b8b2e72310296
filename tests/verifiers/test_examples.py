"""What `grpo explain` shows of each verifier must be true: its examples build, run and give a verdict."""

from __future__ import annotations

import dataclasses

import pytest

from grpo_verifiers import Outcome, Unavailable, build
from grpo_verifiers.registry import kind_class

OURS = [
    "agrees",
    "choice",
    "equation",
    "exact",
    "format",
    "instructions",
    "json",
    "math",
    "numeric",
    "python",
    "reasoning_gym",
    "regex",
    "set",
]


@pytest.mark.parametrize("kind", OURS)
def test_examples_show_right_and_not_right(kind: str) -> None:
    if kind == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    outcomes = set()
    for example in kind_class(kind).examples():
        verifier = build(kind, **(example.options or {}))
        try:
            outcomes.add(verifier.verify(example.completion, example.row).outcome)
        except Unavailable as err:
            pytest.skip(str(err))
        finally:
            verifier.close()
    assert Outcome.RIGHT in outcomes and outcomes - {Outcome.RIGHT} and Outcome.ERROR not in outcomes


@pytest.mark.parametrize("kind", OURS)
def test_every_option_has_a_default_and_is_documented(kind: str) -> None:
    import ast
    import inspect

    options = kind_class(kind).Options
    assert all(
        f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        for f in dataclasses.fields(options)
    )
    body = ast.parse(inspect.getsource(options)).body[0]
    assert isinstance(body, ast.ClassDef)
    for at, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign):
            after = body.body[at + 1] if at + 1 < len(body.body) else None
            assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), node.target
