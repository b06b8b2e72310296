"""Arms side by side: what counts as a placebo, how differences are paired, and that unequal budgets are said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.findings.run_data import Arm, arms_of, collect
from grpo_cli.jobs.report.arms import arms_table, budget_notes, final_difference, pooled_shares
from grpo_cli.jobs.report.plot import held_out
from grpo_cli.statistics.estimate import across_seeds
from grpo_cli.text import plus_minus, score
from tests.builders.report_runs import make_run

ROOT = Path(__file__).resolve().parents[3]


def arms(tmp_path: Path, *, steps: int = 20) -> list[Arm]:
    real = make_run(tmp_path, "real", hostile=False)
    coin = make_run(tmp_path, "coin", seed=1, learns=False, hostile=False, control="random", steps=steps)
    dealt = make_run(tmp_path, "dealt", seed=2, learns=False, hostile=False, control="shuffled")
    return arms_of([collect(run) for run in (real, coin, dealt)])


def test_runs_with_a_control_are_placebos_named_by_it(tmp_path: Path) -> None:
    found = arms(tmp_path)
    assert [(a.label, a.is_placebo) for a in found] == [
        ("gsm8k.yaml", False),
        ("placebo: random", True),
        ("placebo: shuffled", True),
    ]
    figure = held_out(found)
    assert figure is not None
    lines = {t["name"]: t["line"] for t in figure.traces if t.get("mode") == "lines+markers"}
    assert lines["gsm8k.yaml"].get("dash", "solid") == "solid"
    assert lines["placebo: random"]["dash"] != lines["placebo: shuffled"]["dash"]
    assert sum("95 % interval" in t["name"] for t in figure.traces) >= 3


def test_single_runs_are_paired_by_prompt_and_seeds_by_seed(tmp_path: Path) -> None:
    real, coin, _ = arms(tmp_path / "one")
    found = final_difference(coin, real)
    assert found is not None
    here, there = (pooled_shares(arm.runs) for arm in (coin, real))
    shared = [row for row in here if row in there]
    gains = [sum(here[r]) / len(here[r]) - sum(there[r]) / len(there[r]) for r in shared]
    assert found.interval.mean == pytest.approx(sum(gains) / len(gains))
    assert found.interval.high < 0
    assert found.over == f"{len(shared)} prompts"

    folder = tmp_path / "seeds"
    real_runs = [make_run(folder, f"real{s}", seed=s, hostile=False) for s in range(3)]
    flat_runs = [make_run(folder, f"flat{s}", seed=s, learns=False, hostile=False, control="random") for s in range(3)]
    real, flat = arms_of([collect(run) for run in (*real_runs, *flat_runs)])
    found = final_difference(flat, real)
    assert found is not None
    ends = [[run.evaluations[-1]["eval/pass@1"] for run in arm.runs] for arm in (flat, real)]
    assert found.interval.mean == pytest.approx((sum(ends[0]) - sum(ends[1])) / 3)
    assert found.over == "3 seeds"


def test_equal_budgets_are_silent_and_unequal_ones_said(tmp_path: Path) -> None:
    assert budget_notes(arms(tmp_path / "equal")) == []
    notes = budget_notes(arms(tmp_path / "unequal", steps=10))
    assert any("budgets differ" in note and "10 steps, 160 samples" in note for note in notes)
    assert any("placebo: random at step 10" in note for note in notes)


def test_a_placebo_with_another_recipe_is_said(tmp_path: Path) -> None:
    real = collect(make_run(tmp_path, "real", hostile=False))
    other = collect(make_run(tmp_path, "other", lr="1e-5", hostile=False, control="random"))
    assert any("differs from gsm8k.yaml in train.lr" in note for note in budget_notes(arms_of([real, other])))


def test_the_table_has_scores_differences_and_intervals(tmp_path: Path) -> None:
    table = arms_table(arms(tmp_path))
    at = list(table.heads).index("after, minus gsm8k.yaml") - 1
    gaps = [cells[at] for _, cells in table.rows]
    assert gaps[0] == ""
    assert all(re.fullmatch(r"-0\.\d{3} \[-\d\.\d{3}, -\d\.\d{3}\]", gap) for gap in gaps[1:])
    assert table.unequal == []
    assert [label for label, _ in table.rows] == ["gsm8k.yaml", "placebo: random", "placebo: shuffled"]


def test_runs_of_one_seed_are_not_called_seeds_and_give_no_interval(tmp_path: Path) -> None:
    again = [make_run(tmp_path, f"again{i}", steps=20 - 5 * i, hostile=False) for i in range(2)]
    (alike,) = arms_of([collect(run) for run in again])
    (row,) = arms_table([alike]).rows
    assert "±" not in " ".join(row[1])
    figure = held_out([alike])
    assert figure is not None
    assert [t["name"] for t in figure.traces if "mean of" in t["name"]] == ["gsm8k.yaml, mean of 2 runs"]

    more = collect(make_run(tmp_path, "another", seed=1, hostile=False))
    (mixed,) = arms_of([*alike.runs, more])
    table = arms_table([mixed])
    cells = dict(zip(table.heads[1:], table.rows[0][1], strict=True))
    first = sum(run.evaluations[-1]["eval/pass@1"] for run in alike.runs) / 2
    ends = across_seeds([first, more.evaluations[-1]["eval/pass@1"]])
    assert cells["after"] == f"{score(ends.mean)} {plus_minus(ends.half_width)}".strip()


def test_an_arm_alone_has_no_column_of_differences(tmp_path: Path) -> None:
    (alone,) = arms_of([collect(make_run(tmp_path, f"s{s}", seed=s, hostile=False)) for s in range(2)])
    table = arms_table([alone])
    assert not any("minus" in head for head in table.heads)
    assert len(table.rows[0][1]) == len(table.heads) - 1


def test_against_writes_a_comparison_beside_the_first_run(tmp_path: Path) -> None:
    for name, control in (("real", "null"), ("coin", "random")):
        make_run(tmp_path / "runs", name, steps=2, hostile=False, control=control)
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "report", "real", "--against", "coin", "--dir", "runs"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "runs/real/comparison.html"
    assert "placebo: random" in (tmp_path / done.stdout.strip()).read_text()
