"""What an alarm does to a run's folder: what is chosen, moved aside and remembered, also where the process died on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.alarm_actions import (
    PENDING,
    AlarmActions,
    best_gold,
    best_gold_step,
    best_valid_gold,
    finish_roll_back,
)
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.checkpoint import keep_newest
from grpo_cli.run.folder import RunFolder
from tests.builders.checkpoints import empty_checkpoint
from tests.builders.report_runs import make_run

EVALUATIONS = [{"step": step, "eval/gold/pass@1": gold} for step, gold in ((0, 0.1), (5, 0.4), (10, 0.4), (15, 0.2))]


def checkpoints(folder: Path, *steps: int) -> Path:
    """Whole ones."""
    for step in steps:
        empty_checkpoint(folder / "checkpoints" / f"step-{step:06d}", step)
    return folder / "checkpoints"


def test_the_best_gold_score_chooses_among_saved_steps_the_earliest_of_equals(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path, 5, 10, 12, 15)
    assert best_gold_step(EVALUATIONS) == 5
    found = best_gold(folder, EVALUATIONS)
    assert found is not None
    assert found.step == 5
    keep_newest(folder, 1, [found.path])
    assert sorted(p.name for p in folder.iterdir()) == ["step-000005", "step-000015"]


def test_a_broken_best_checkpoint_gives_way_to_the_next(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path, 5, 10, 15)
    (folder / "step-000005" / "manifest.json").unlink()
    found = best_valid_gold(folder, EVALUATIONS)
    assert found is not None
    assert found.step == 10
    assert (folder / "broken-step-000005").is_dir()
    assert best_valid_gold(tmp_path / "none", EVALUATIONS) is None


def test_a_roll_back_that_died_on_the_way_is_finished_once(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", hostile=False)
    checkpoints(run.path, 10, 15, 20)
    before = run.metrics()
    run.update_manifest(**{PENDING: 10})
    for _ in range(2):
        finish_roll_back(run)
        assert max(m["step"] for m in run.metrics()) == 10
        left = (run.path / "metrics.jsonl.abandoned").read_text().splitlines()
        assert len(run.metrics()) + len(left) == len(before)
        names = sorted(p.name for p in (run.path / "checkpoints").iterdir())
        assert names == ["step-000010", "step-000015.abandoned", "step-000020.abandoned"]
    assert run.manifest()[PENDING] is None


def alarmed(run: RunFolder, on_alarm: Any, *, looks: bool = True) -> AlarmActions:
    recipe = Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": {"math": {"primary": True}, "gold": {"kind": "exact", "weight": 0}},
            "train": {"steps": 40},
            "monitor": {"gold": "gold", "on_alarm": on_alarm},
        }
    )
    return AlarmActions(recipe, run, make_display("none"), looks=looks)


def gap(step: int, low: float) -> dict[str, Any]:
    return {
        "step": step,
        "eval/pass@1": 0.6,
        "eval/gold/pass@1": 0.6 - low,
        "eval/gold/gap": low + 0.02,
        "eval/gold/gap/low": low,
        "eval/gold/gap/high": low + 0.04,
        "eval/gold/z": 3.0,
    }


def test_an_alarm_stops_a_run_once_also_where_it_died_before_it_could_stop(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", hostile=False)
    seen = alarmed(run, "pause")
    seen.evaluated(gap(20, 0.0))
    assert seen.wanted is None
    for metrics in (gap(20, 0.0), gap(25, 0.3)):
        run.write_metrics(metrics)
    seen.evaluated(gap(25, 0.3))
    assert seen.wanted == "pause"
    assert json.loads(Path(seen.evidence).read_text())["code"] == "W70"

    assert alarmed(run, "pause").wanted == "pause"  # killed here: nothing says yet that the run was paused
    assert alarmed(run, "warn").wanted is None
    assert alarmed(run, {"gold": "roll_back"}).wanted == "roll_back"
    assert alarmed(run, {"entropy": "pause"}).wanted is None
    run.update_manifest(**seen.acted("pause"))
    assert alarmed(run, "pause").wanted is None  # looked at: a resume goes on
    run.write_metrics(gap(30, 0.3))
    assert alarmed(run, "pause").wanted is None  # and the alarm still stands


def cut_off(step: int) -> dict[str, Any]:
    return {"step": step, "group/count": 16, "truncated": 0.4}


def test_a_health_note_is_said_with_its_code_by_the_rank_that_looks(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", hostile=False)
    run.move_aside(0)
    said: list[tuple[str, str, str]] = []
    for looks in (True, False):
        watching = alarmed(run, "warn", looks=looks)
        watching.display.note = lambda *words: said.append(words)  # type: ignore[method-assign]
        for step in range(1, 11):
            watching.step(cut_off(step))
    assert said == [
        ("warn", "40% of completions truncated", "raise `sample.max_tokens`, or shape with `overlong`  [W20]")
    ]


def test_health_goes_on_with_the_steps_that_an_earlier_process_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", hostile=False)
    run.move_aside(0)
    for step in range(1, 10):
        run.write_metrics(cut_off(step))
    watching, said = alarmed(run, "warn"), list[str]()
    watching.display.note = lambda level, text, hint="": said.append(text)  # type: ignore[method-assign]
    watching.step(cut_off(10))
    assert said == ["40% of completions truncated"]
