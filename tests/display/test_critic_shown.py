"""A critic has a row on every screen, and curves in the report: what it explains, its loss, what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display import plain
from grpo_cli.display.frame.frame import narrow_completions
from grpo_cli.display.frame.wide import completions
from grpo_cli.findings.run_data import collect
from grpo_cli.jobs.report.plot import policy, timing
from tests.builders.display_state import INFO, full_state, step_metrics
from tests.builders.report_runs import make_run

CRITIC: dict[str, Any] = {
    "critic/explained_variance": 0.421, "critic/loss": 0.0312, "critic/clip": 0.01, "critic/mib": 4.1, "critic/warmup": 0.0,
    "value/mean": 0.3, "return/mean": 0.35, "time/critic": 0.83,
}  # fmt: skip


def shown(completions: Any, metrics: dict[str, Any], width: int) -> str:
    state = full_state()
    state.last.update(metrics)
    return "\n".join(text.plain for text in completions(state, width).lines)


@pytest.mark.parametrize(("panel", "width"), [(completions, 100), (narrow_completions, 80)])
def test_a_critic_has_a_row_in_both_frames(panel: Any, width: int) -> None:
    text = shown(panel, CRITIC, width)
    row = next(line for line in text.splitlines() if "explained" in line)
    assert "critic 0.83s a step, 4.10 MiB" in row and "0.42" in row and "loss 0.031" in row
    assert "warms up 0.83s" in shown(panel, CRITIC | {"critic/warmup": 1.0}, width)
    assert "explained" not in shown(panel, {}, width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_critic_is_in_the_line_of_a_step() -> None:
    line = plain.step_line(step_metrics(3) | CRITIC, INFO)
    assert "explains 0.42  value loss 0.031" in line
    assert "+ critic 0.83 +" in plain.timing(step_metrics(3) | CRITIC)
    assert "explains" not in plain.step_line(step_metrics(3), INFO)


def test_a_critic_is_in_the_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "ppo", steps=3)
    run = collect(folder)
    plain = policy(run)
    assert plain is not None and not any("critic" in t["name"] for t in plain.traces)
    for metrics in run.steps:
        metrics.update(CRITIC)
    drawn, took = policy(run), timing(run)
    assert drawn is not None and took is not None
    assert {"critic/explained_variance", "critic/loss", "value/mean", "return/mean"} <= {
        t["name"] for t in drawn.traces
    }
    assert "critic" in {t["name"] for t in took.traces} and "took 4.10 MiB" in took.caption
