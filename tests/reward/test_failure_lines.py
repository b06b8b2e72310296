"""What is written of failing verifiers: each kind once, and a verifier that keeps everything waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_cli.recipe.sections.recipe import Verify
from grpo_cli.reward import errors
from grpo_cli.reward.errors import FailureLines
from grpo_cli.reward.judge import Judge, Task
from grpo_cli.statistics.failures import Failures
from grpo_verifiers.verdict import Verdict, error

PARTS = """
def whole(completion):
    return 1.0

def half(completion):
    if completion.endswith("7"):
        raise ConnectionRefusedError("nobody there")
    return 1.0
"""


def failures(*verdicts: Verdict) -> Failures:
    found = Failures()
    for n, verdict in enumerate(verdicts):
        found.add({"f": verdict}, f"rows.jsonl:{n}", {})
    return found


def test_each_kind_is_written_once_with_message_verifier_and_row() -> None:
    told: list[str] = []
    lines = FailureLines(lambda text, hint: told.append(text))
    for _ in range(3):
        lines.see(failures(error("a", "KeyError: 'x' (r.py:3)"), error("a", "KeyError: 'y' (r.py:3)")))
    lines.see(failures(error("b", "slow")))
    assert told == [
        "no verdict on rows.jsonl:0: `f`: a: KeyError: 'x' (r.py:3)",
        "no verdict on rows.jsonl:0: `f`: b: slow",
    ]


def test_a_verifier_that_takes_long_is_named_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "SLOW_S", 0.1)
    told: list[str] = []
    lines = FailureLines(lambda text, hint: told.append(text))
    for _ in range(2):
        with lines.timed("f", 8):
            deadline = time.monotonic() + 5
            while not told and time.monotonic() < deadline:
                time.sleep(0.01)
    with lines.timed("g", 8):
        pass
    assert told == ["`f` has judged 8 samples for 0.1 s and goes on"]


@pytest.mark.parametrize("method", [{}, {"method": "min"}, {"method": "first"}, {"method": "normalise_then_sum"}])
def test_of_two_parts_one_that_fails_leaves_no_reward_rather_than_half(tmp_path: Path, method: dict[str, str]) -> None:
    from grpo_verifiers.combine import CombineRule

    (tmp_path / "parts.py").write_text(PARTS)
    specs = {
        name: Verify(kind="python", options={"function": f"parts.py:{name}", "workers": 1}, weight=0.5)
        for name in ("whole", "half")
    }
    judge = Judge(specs, tmp_path, CombineRule(**method))  # type: ignore[arg-type]
    try:
        golds = {name: verifier.compile({}) for name, verifier in judge.verifiers.items()}
        completions: Sequence[str] = [str(n) for n in range(10)]
        found = judge.settled(judge.judge(completions, [Task(golds)] * 10))
    finally:
        judge.close()
    assert found[7].reward is None and found[7].verdicts["whole"].score == 1.0
    assert all(judgement.reward == found[0].reward for n, judgement in enumerate(found) if n != 7)
    assert found[0].reward == (0.5 if method.get("method") == "first" else 1.0)
