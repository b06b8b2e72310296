"""Answers that are wrong because their tests lean on objects that do not decide: counted on screen, with the mend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.findings.finding import Limits
from grpo_cli.findings.samples import untrusted_objects, untrusted_warning

KEY = "verify/{}/reason/untrusted_objects"


def test_the_worst_verifier_is_named_with_its_share_over_the_window() -> None:
    history = [{"step": s, KEY.format("code"): 0.4, KEY.format("unit"): 0.1} for s in range(1, 8)]
    history += [{"step": s} for s in (8, 9, 10)]  # a step without such a verdict counts as none
    found = untrusted_objects(history, Limits())
    assert found is not None and (found.code, found.step) == ("W49", 10)
    assert found.text.startswith("28% of the verdicts of `code`") and "trusted_objects: true" in found.hint
    assert untrusted_objects(history[:9], Limits()) is None
    assert untrusted_objects([{"step": s, KEY.format("code"): 0.04} for s in range(10)], Limits()) is None


@pytest.mark.parametrize(("n", "words"), [(1, "1 sample has no verdict"), (1200, "1,200 samples have no verdict")])
def test_counts_are_said_with_the_mend(n: int, words: str) -> None:
    said = untrusted_warning([("passed:1", 5), ("untrusted_objects", n)])
    assert said is not None and said.startswith(words) and "trusted_objects: true" in said
    assert untrusted_warning([("test_failed", 3)]) is None


def test_grpo_verify_says_why_right_programs_have_no_verdict(tmp_path: Path) -> None:
    code = "class V:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return o.x == self.x"
    row = {"completion": code, "entry_point": "V", "tests": "x = [3]\nassert V(x) == V(x)"}
    lines = tmp_path / "in.jsonl"
    lines.write_text((json.dumps(row) + "\n") * 2)
    argv = [sys.executable, "-m", "grpo_cli", "verify", str(lines), "--verifier", "code"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "2 samples have no verdict, `untrusted_objects`" in done.stderr and "trusted_objects: true" in done.stderr
