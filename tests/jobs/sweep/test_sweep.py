"""What a sweep plans, runs and says: combinations, names, a resume that repeats nothing, intervals over seeds."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_cli.errors import DataError, Exit, RecipeError, UsageError
from grpo_cli.jobs import sweep
from grpo_cli.jobs.sweep import (
    PlannedRun,
    SweepPlan,
    command_of,
    ended_object,
    make_plan,
    outcomes,
    read_plan,
    run_all,
    seats_of,
    split_values,
    state_of,
    table_of,
)
from grpo_cli.run.folder import RunFolder
from tests.builders.report_runs import make_run


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("train.lr=1e-6,3e-6", ["1e-6", "3e-6"]),
        ("eval.k=[1,4]", ["[1,4]"]),
        ("eval.k=[1,4],[1,8]", ["[1,4]", "[1,8]"]),
        ("train.kl={beta: 0, estimator: k1}, {beta: 0.1}", ["{beta: 0, estimator: k1}", "{beta: 0.1}"]),
        ("data.prompt='a, b'", ["'a, b'"]),
        ("a=", [""]),
    ],
)
def test_commas_part_values_outside_of_brackets_and_quotes(text: str, values: list[str]) -> None:
    assert split_values(text) == (text.split("=")[0], values)


@pytest.mark.parametrize("text", ["train.lr", "=3", "train.lr=1,,2", "train.lr=1,"])
def test_what_is_no_list_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        split_values(text)


def test_every_combination_gets_every_seed_and_a_name_that_says_so() -> None:
    plan = make_plan("quickstart", ["train.lr=1e-4,5e-4", "sample.group=4,8", "train.steps=3"], 2, "try")
    assert len(plan.runs) == 8
    assert [run.name for run in plan.runs[:3]] == [
        "try-lr1e-4-group4-s0",
        "try-lr1e-4-group4-s1",
        "try-lr1e-4-group8-s0",
    ]
    assert plan.runs[0].arm == "train.lr=1e-4, sample.group=4"
    assert plan.runs[1].sets == (
        "train.steps=3", "train.lr=1e-4", "sample.group=4", "train.seed=1", "run.dir=runs", "run.name=try-lr1e-4-group4-s1",
    )  # fmt: skip
    assert plan.recipe == "quickstart"  # a shipped name means the same in every folder


def test_mistakes_come_before_the_first_run() -> None:
    with pytest.raises(RecipeError, match="lr"):
        make_plan("quickstart", ["train.lr=1e-4,fast"], 1)
    with pytest.raises(UsageError, match="own to set"):
        make_plan("quickstart", ["run.name=x"], 1)
    with pytest.raises(UsageError, match="own to set"):
        make_plan("quickstart", ["train.seed=1,2"], 2)
    with pytest.raises(UsageError, match="same name"):
        make_plan("quickstart", ["train.lr=1e-4,1e-4"], 1)
    with pytest.raises(UsageError, match="more than 500"):
        make_plan("quickstart", ["train.seed=" + ",".join(map(str, range(501)))], 1)
    with pytest.raises(UsageError, match="read again"):
        make_plan("-", [], 2)


def test_seeds_may_be_named_themselves() -> None:
    plan = make_plan("quickstart", ["train.seed=7,9"], 1, "named")
    assert [run.seed for run in plan.runs] == [7, 9]


def test_a_plan_is_found_again_by_name_file_or_last(tmp_path: Path) -> None:
    plan = make_plan("quickstart", [], 2, "kept", str(tmp_path))
    plan.write()
    assert read_plan("kept", str(tmp_path)) == read_plan("last", str(tmp_path)) == read_plan(str(plan.path)) == plan
    with pytest.raises(DataError, match="no sweep `other`") as found:
        read_plan("other", str(tmp_path))
    assert "kept" in found.value.hint
    plan.path.write_text('{"runs": 3}')
    with pytest.raises(DataError, match="no sweep's file"):
        read_plan("kept", str(tmp_path))


def small_plan(folder: Path, names: Sequence[str]) -> SweepPlan:
    runs = tuple(PlannedRun(name, name[0], i, (f"run.name={name}",)) for i, name in enumerate(names))
    return SweepPlan("s", "recipe.yaml", str(folder), runs)


def played(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Each run is a Python process that does this with the run's name."""

    def command(plan: SweepPlan, run: PlannedRun, state: str, display: str) -> list[str]:
        return [
            sys.executable,
            "-c",
            f"import os, sys, json, time, pathlib\nname, state = {run.name!r}, {state!r}\nfolder = pathlib.Path({str(folder)!r})\n{script}",
        ]

    monkeypatch.setattr(sweep, "command_of", command)


def test_what_is_done_is_not_run_again_and_what_was_begun_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, status in (("a1", "done"), ("a2", "interrupted")):
        RunFolder.create(tmp_path, name, "", {}).update_manifest(status=status)
    plan, told = small_plan(tmp_path, ["a1", "a2", "a3"]), list[str]()
    assert [state_of(plan, run) for run in plan.runs] == ["done", "interrupted", "new"]
    assert "--resume" not in command_of(plan, plan.runs[2], "new", "plain")
    resumed = command_of(plan, plan.runs[1], "interrupted", "plain")
    assert resumed[resumed.index("--resume") + 1] == str(tmp_path / "a2")
    played(monkeypatch, tmp_path, "(folder / f'{name}.ran').write_text(state)")
    ended = run_all(plan, [{}], "plain", told.append)
    assert ended.codes == {"a2": 0, "a3": 0} and ended.code is Exit.OK
    assert {p.name: p.read_text() for p in tmp_path.glob("*.ran")} == {"a2.ran": "interrupted", "a3.ran": "new"}
    assert told[0] == "run 1 of 3  a1  done already"


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, told = small_plan(tmp_path, ["a1", "a2"]), list[str]()
    played(monkeypatch, tmp_path, "if name == 'a1': print('out of memory', file=sys.stderr); sys.exit(4)")
    ended = run_all(plan, [{}, {}], "plain", told.append)
    assert ended.codes == {"a1": 4, "a2": 0} and ended.code is Exit.SETUP
    assert "a1 ended with exit code 4" in told and "    out of memory" in told


def test_several_seats_run_at_the_same_time_each_with_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seats_of(0, None, None) == seats_of(1, None, None) == [{}]
    assert seats_of(4, 2, None) == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    assert seats_of(2, None, "5,7") == [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "7"}]
    assert seats_of(0, 2, None) == [{}, {}]
    waits = """
(folder / f'{name}.here').write_text(os.environ['CUDA_VISIBLE_DEVICES'])
end = time.time() + 60
while len(list(folder.glob('*.here'))) < 2 and time.time() < end: time.sleep(0.05)
sys.exit(0 if len(list(folder.glob('*.here'))) == 2 else 9)
"""
    played(monkeypatch, tmp_path, waits)
    ended = run_all(small_plan(tmp_path, ["a1", "a2"]), seats_of(2, None, None), "plain", lambda _: None)
    assert ended.codes == {"a1": 0, "a2": 0}
    assert sorted(p.read_text() for p in tmp_path.glob("*.here")) == ["0", "1"]


def test_a_signal_reaches_the_run_and_no_other_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stops = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
(folder / 'began').write_text(name)
os.kill({os.getpid()}, signal.SIGTERM)
time.sleep(60)
"""
    played(monkeypatch, tmp_path, stops)
    before = signal.getsignal(signal.SIGTERM)
    ended = run_all(small_plan(tmp_path, ["a1", "a2"]), [{}], "plain", lambda _: None)
    assert ended.codes == {"a1": 143} and ended.code is Exit.TERMINATED
    assert (tmp_path / "began").read_text() == "a1"
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_table_has_intervals_over_seeds_and_the_distance_from_the_first(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, f"a{seed}", seed=seed, hostile=False)
        make_run(tmp_path, f"b{seed}", seed=seed, learns=False, hostile=False)
    make_run(tmp_path, "c0", hostile=False)
    plan = small_plan(tmp_path, ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1"])
    a, b, c = outcomes(plan)
    assert (a.measured, a.over, a.difference) == (3, "3 seeds", None)
    assert a.score is not None and a.score.low < a.score.mean < a.score.high
    assert b.difference is not None and b.difference.over == "3 seeds" and b.difference.interval.high < 0
    assert (c.measured, c.planned, c.over) == (1, 2, "16 prompts")
    assert c.score is not None and c.score.high - c.score.mean == pytest.approx(0.1)
    lines = table_of([a, b, c])
    assert len(lines) == 4 and "1 of 2" in lines[3] and "[-" in lines[2]
    found = json.loads(json.dumps(ended_object(plan, {"a0": 0})))
    assert [run["code"] for run in found["runs"]][:2] == [0, None]
    assert found["runs"][-1]["status"] == "new"
    assert found["arms"][1]["difference"]["over"] == "3 seeds"
