"""`grpo verify` names what begins the last lines of completions where more than half of them state no answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_cli.jobs.verify.job import VerifySettings, run
from grpo_cli.reward.plan import ScoringEntry, ScoringPlan


def test_marks_are_counted_in_every_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"completion": f"{i} and 3.\nA: 5", "answer": "5"} for i in range(600)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = ScoringPlan({"math": ScoringEntry("math", {})}, "")
    run(plan, VerifySettings([str(tmp_path / "c.jsonl")], out=str(tmp_path / "out.jsonl"), jobs=2))
    shown = capsys.readouterr()
    assert "600 of them end in a line that begins with `A:`" in shown.out + shown.err


@pytest.mark.parametrize(
    ("ends", "mark", "said"),
    [
        (["A: 5"] * 5, "", '`mark: "A:"`; 5 of them end in a line that begins with `A:`'),
        (["A: 5", "It is 5.", "It is 5."], "", '`mark: "A:"`\n'),
        (["\\boxed{5}", "\\boxed{5}", "A: 5"], "", ""),
        (["A: 5"] * 5, "A:", ""),
    ],
)
def test_the_mark_is_named(
    ends: list[str], mark: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"completion": f"2 and 3.\n{end}", "answer": "5"} for end in ends]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = ScoringPlan({"math": ScoringEntry("math", {"mark": mark})}, "")
    run(plan, VerifySettings([str(tmp_path / "c.jsonl")], out=str(tmp_path / "out.jsonl")))
    shown = capsys.readouterr()
    assert ("state no answer" in shown.out + shown.err) == bool(said)
    assert said in shown.out + shown.err
