"""What is called best is the best of evaluations of all held-out rows, wherever it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_cli.display.frame.card import card_lines
from grpo_cli.display.frame.panels import evaluated_text
from grpo_cli.display.frame.state import RunState
from grpo_cli.display.watch import card_of
from grpo_cli.jobs.runs import summarise
from grpo_cli.jobs.train.stages import best_weights
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Card, Metrics, RunInfo, of_all_rows
from tests.builders.checkpoints import empty_checkpoint
from tests.builders.report_runs import make_run

FEW = {"eval/between": 1, "eval/n": 4}
SCORES = ((0, 0.2, {}), (5, 0.95, FEW), (10, 0.7, {}), (15, 0.9, FEW), (20, 0.6, {}))


def lines(upto: int = 20) -> list[Metrics]:
    return [
        {"step": step, "eval/pass@1": score, "eval/pass@1/half": 0.1, "eval/n": 16, **more}
        for step, score, more in SCORES
        if step <= upto
    ]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = make_run(tmp_path, "one", hostile=False)
    kept = [m for m in folder.metrics() if "eval/pass@1" not in m]
    text = "".join(json.dumps(m) + "\n" for m in [*kept, *lines()])
    (folder.path / "metrics.jsonl").write_text(text)
    for step in (5, 10, 15, 20):
        empty_checkpoint(folder.checkpoint_path(step), step)
    return folder


def test_the_list_of_runs_and_the_card_of_one(run: RunFolder) -> None:
    found = summarise(run)
    assert (found.best, found.best_step) == (0.7, 10)
    assert found.gain == pytest.approx(0.4)
    assert card_of(run).best == str(run.checkpoint_path(10))


def test_a_stage_goes_on_from_it(run: RunFolder) -> None:
    assert best_weights(run) == run.checkpoint_path(10)


def test_a_run_that_ended_between_has_a_score_and_no_gain(run: RunFolder) -> None:
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in lines(5)))
    found = summarise(run)
    assert (found.score, found.best, found.gain) == (0.95, 0.2, None)
    held_out = card_lines(Card("interrupted", 1.0, (), tuple(lines(5))), 100)[1]
    assert held_out.endswith("n 16 → 4")
    assert "best" not in held_out


def test_the_end_card_names_the_best_of_the_whole_ones() -> None:
    held_out = card_lines(Card("done", 1.0, (), tuple(lines())), 100)[1]
    assert "n 16  best 0.700 at step 10" in held_out


@pytest.mark.parametrize(("step", "is_best"), [(0, False), (5, False), (10, True), (15, False), (20, False)])
def test_the_frame_calls_no_short_evaluation_the_best_so_far(step: int, is_best: bool) -> None:
    state = RunState(0.0)
    state.set(info=RunInfo("r", steps=20))
    for metrics in lines(step):
        state.evaluated(metrics)
    assert evaluated_text(state.snapshot(2.0)).endswith("best so far") is is_best


def test_lines_of_old_runs_are_of_all_rows() -> None:
    old = [{"step": 0, "eval/pass@1": 0.1, "eval/best": True}, {"step": 5, "eval/pass@1": 0.2}]
    assert of_all_rows(old) == old
