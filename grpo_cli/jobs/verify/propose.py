"""Which verifier the golds of a file ask for, where none was said: a proposal, never a choice made for somebody."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice

from grpo_cli.errors import UserError
from grpo_cli.jobs.verify.fields import BadLine, WantedKeys, find_keys, row_of
from grpo_cli.jobs.verify.formats import GoldRows, read_lines
from grpo_cli.jobs.verify.scorer import parse
from grpo_cli.recipe.sections.rewards import KINDS
from grpo_cli.text import Json
from grpo_verifiers.text import accepted

LOOKED_AT = 50
_MATHS = re.compile(r"[-+]?[\d.,/%\s]+|.*[\\^_=].*|.*####.*", re.S)
_TESTS = ("tests", "test", "test_list", "test_cases", "unit_tests", "input_output")


def proposal(source: str, rows: str | None) -> str:
    """The hint of a command without a verifier; stdin is not read for it."""
    known = f"say `--math`, `--regex PATTERN`, `--recipe FILE` or `--verifier KIND` (known: {', '.join(sorted(KINDS))})"
    if source == "-":
        return known
    try:
        flag, why = _flag(_golds(source, rows))
    except UserError:
        return known
    return f"{why}: `grpo verify {source} {flag}`; or {known}" if flag else known


def _golds(source: str, rows: str | None) -> list[Mapping[str, Json]]:
    under = GoldRows(rows).under if rows else None
    found: list[Mapping[str, Json]] = []
    for line in islice(read_lines(source), LOOKED_AT):
        try:
            value = parse(under(line) if under else line)
            found.append(row_of(value, find_keys(value, WantedKeys())))
        except BadLine:
            continue
    return found


def _flag(rows: list[Mapping[str, Json]]) -> tuple[str, str]:
    if rows and all(any(row.get(name) for name in _TESTS) for row in rows):
        return "--code", "the rows have tests"
    golds = [text for row in rows for text in accepted(row.get("answer")) if text is not None]
    if not golds:
        return "", ""
    texts = [str(gold).strip() for gold in golds]
    if all(re.fullmatch(r"\(?[A-J]\)?\.?", text) for text in texts):
        return "--verifier choice", "the golds are letters"
    if all(_MATHS.fullmatch(text) for text in texts):
        return "--math", "the golds look like numbers and formulas"
    if all(isinstance(gold, dict) or _is_object(gold) for gold in golds):
        return "--verifier json", "the golds are JSON"
    return "--verifier exact", "the golds are texts"


def _is_object(gold: object) -> bool:
    if not isinstance(gold, str) or not gold.strip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(gold), dict)
    except (ValueError, RecursionError):
        return False
