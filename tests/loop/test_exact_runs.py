"""Whole runs of seconds: what is refused before the first step, and what the lines and `run.json` of a run say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import Exit, RecipeError, SetupError
from grpo_cli.findings.health import over_run
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.statistics.step import as_drawn
from tests.reference.drive import Seen, recipe_of, run_here, write_world
from tests.reference.families import write_checkpoint


def run(folder: Path, name: str = "run", family: str = "llama", **changes: Any) -> Seen:
    if not (folder / "rows.jsonl").exists():
        write_world(folder)
    model = {"model": {"path": str(write_checkpoint(family, folder))}}
    return run_here(recipe_of(folder, name, model | changes), folder)


def test_the_kl_of_a_batch_stays_in_its_line_over_several_updates(tmp_path: Path) -> None:
    kl = {"beta": 0.05, "estimator": "k1_reward"}
    seen = run(tmp_path, train={"kl": kl, "scale": "none", "inner_epochs": 2})
    assert [set(m) & {"kl"} for m in seen.metrics] == [{"kl"}, {"kl"}]
    assert seen.metrics[0]["kl"] == pytest.approx(0.0, abs=1e-6) and seen.metrics[1]["kl"] > 1e-4


def test_scores_of_all_that_was_drawn_stand_beside_those_of_what_was_kept(tmp_path: Path) -> None:
    write_world(tmp_path, kinds=("flat", "mixed"))
    drop = run(tmp_path, "drop", train={"dead_groups": "drop", "steps": 1}).metrics[0]
    again = run(tmp_path, "resample", train={"dead_groups": "resample", "steps": 1}).metrics[0]
    for plain, drawn in (("right", "right"), ("reward/total/mean", "reward/mean"), ("group/mixed", "group/mixed")):
        assert drop[f"drawn/{drawn}"] == drop[plain]
    assert again["drawn/group/count"] > again["group/count"] == 5
    assert again["drawn/group/signal"] < again["group/signal"] == 1.0
    assert again["drawn/reward/mean"] != again["reward/total/mean"]
    shown = as_drawn(again)
    assert shown["reward/total/mean"] == again["drawn/reward/mean"]
    assert shown["group/count"] == again["drawn/group/count"]


def test_rules_see_the_groups_that_were_thrown_away() -> None:
    kept = {"group/count": 4, "group/all_wrong": 0, "group/mixed": 4, "group/all_right": 0}
    drawn = {"drawn/group/count": 16, "drawn/group/all_wrong": 12, "drawn/group/mixed": 4}
    lines = [{"step": step, **kept} for step in range(1, 13)]
    assert not over_run(lines)
    found = over_run([line | drawn for line in lines])
    assert [f.code for f in found] == ["W11"] and "12 of 16 groups all wrong" in found[0].text


def test_a_model_that_says_something_else_when_sampled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = GraphEngine.generate

    def off(self: GraphEngine, *args: Any, **named: Any) -> Any:
        found = generate(self, *args, **named)
        return [[replace(c, logps=[p - 0.5 for p in c.logps]) for c in group] for group in found]

    monkeypatch.setattr(GraphEngine, "generate", off)
    with pytest.raises(SetupError, match="training and sampling disagree") as refused:
        run(tmp_path)
    assert refused.value.code == Exit.SETUP
    assert not list((tmp_path / "runs/run/samples").glob("*")), "nothing was trained on"


def test_a_quantile_over_part_of_a_step_is_refused(tmp_path: Path) -> None:
    train = {"dead_groups": "keep", "steps": 1, "trl": {"top_entropy_quantile": 0.5}}
    run(tmp_path, "whole", train=train)
    with pytest.raises(RecipeError, match="top_entropy_quantile"):
        run(tmp_path, "parts", train=train, sample={"micro_batch": 5})


def test_a_run_says_what_each_phase_took_on_the_clock_and_on_the_cores(tmp_path: Path) -> None:
    run(tmp_path)
    phases = json.loads((tmp_path / "runs/run/run.json").read_text())["phases"]
    assert {"setup", "warmup", "generate", "verify", "update", "evaluate"} <= set(phases)
    for phase in ("setup", "generate", "update"):
        assert phases[phase]["wall_s"] > 0 and phases[phase]["cpu_s"] > 0
    lines = [json.loads(line) for line in (tmp_path / "runs/run/metrics.jsonl").open()]
    assert phases["update"]["wall_s"] == pytest.approx(sum(m["time/update"] for m in lines), abs=0.01)


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_the_routers_own_coefficient_acts_only_where_it_is_asked_for(family: str, tmp_path: Path) -> None:
    from tests.reference.compare import apart

    plain, asked = (
        run(tmp_path, f"run{i}", family, train={"dead_groups": "keep", "steps": 1, "trl": trl}).updates[0]
        for i, trl in enumerate(({}, {"router_aux_loss_coef": 0.01}))
    )
    none = run(tmp_path, "none", family, train={"steps": 1, "dead_groups": "drop"}).updates[0]
    assert apart(none.gradients, {n: g.double() for n, g in plain.gradients.items()}) < 1e-5
    assert apart(asked.gradients, {n: g.double() for n, g in plain.gradients.items()}) > 1e-4
