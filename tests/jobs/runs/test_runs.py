"""`grpo runs` on made-up runs: the list, its order, one run, comparisons, and what may be deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_cli.app import app
from grpo_cli.errors import DataError, UsageError
from grpo_cli.findings.run_data import arms_of, collect
from grpo_cli.jobs.runs import (
    RunSummary,
    bytes_of,
    compare_runs,
    compared_lines,
    differences,
    groups_of,
    lines_of,
    listed,
    ordered,
    removable,
    remove,
    size_text,
    summarise,
    table,
)
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import recipe_of
from tests.builders.report_runs import make_run


def line(name: str, **values: object) -> RunSummary:
    return RunSummary(name, name, str(values.pop("status", "done")), **values)  # type: ignore[arg-type]


def test_a_run_in_one_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "one", seed=3)
    found = summarise(folder)
    evaluations = [m for m in folder.metrics() if "eval/pass@1" in m]
    assert (found.name, found.status, found.step, found.steps, found.seed) == ("one", "done", 20, 20, 3)
    assert (found.start, found.score) == (evaluations[0]["eval/pass@1"], evaluations[-1]["eval/pass@1"])
    assert found.best == max(m["eval/pass@1"] for m in evaluations)
    assert found.gain == pytest.approx(found.score - found.start)
    assert found.reward == next(m for m in reversed(folder.metrics()) if "reward/total/mean" in m)["reward/total/mean"]
    assert found.bytes == sum(f.stat().st_size for f in folder.path.rglob("*") if f.is_file())


@pytest.mark.parametrize(
    ("words", "label", "base", "said"),
    [
        (["."], "mine", "/x/mine", "mine (/x/mine/recipe.yaml)"),
        (["mine/"], "mine", "/x/mine", "mine (/x/mine/recipe.yaml)"),
        (["../x/my.yaml"], "my", "/x", "my (/x/my.yaml)"),
        (["quickstart"], "quickstart", "/lib/recipes", "quickstart"),
        (["quickstart", "--set", "data.train=a.yaml"], "quickstart", "/lib/recipes", "quickstart"),
        (["--json", "--set", "train.steps=2", "my.yaml"], "my", "/x", "my (/x/my.yaml)"),
        (["-"], "stdin", "/x", "stdin"),
        (["--resume", "runs/one"], "my", "/x", "my"),
        (["a/my.yaml"], None, None, "a/my.yaml"),  # before `run.json` said more
    ],
)
def test_the_recipe_of_a_run_has_one_name_and_show_says_its_file(
    tmp_path: Path, words: list[str], label: str | None, base: str | None, said: str
) -> None:
    folder = make_run(tmp_path, "one")
    folder.update_manifest(argv=["grpo", "train", *words], recipe=label, base=base)
    assert f"{'recipe':<12} {said}" in lines_of(folder)
    name = said.split(" ")[0]
    assert summarise(folder).recipe == name, "as its live display says, which is given `run.json`'s"
    assert [arm.label for arm in arms_of([collect(folder)])] == [name.rsplit("/", 1)[-1]]


def test_a_run_without_an_end_runs_until_it_is_silent_for_ten_minutes(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "one")
    folder.update_manifest(status="running")
    news = (folder.path / "metrics.jsonl").stat().st_mtime
    for path in (folder.path / "metrics.jsonl", folder.path / "train.log"):
        if path.exists():
            os.utime(path, (news, news))
    assert summarise(folder, news + 60).status == "running"
    assert not summarise(folder, news + 60).is_over
    assert summarise(folder, news + 3600).status == "silent"


def test_a_damaged_run_has_a_line_and_does_not_hide_the_others(tmp_path: Path) -> None:
    make_run(tmp_path, "whole")
    broken = make_run(tmp_path, "broken")
    (broken.path / "run.json").write_text("{ not json")
    found = {one.name: one for one in listed(tmp_path)}
    assert found["whole"].status == "done"
    assert found["broken"].status == "unreadable"
    assert "cannot be read" in found["broken"].reason
    assert "unreadable" in lines_of(broken)[0]


ODD = {
    '{"phases": {"a": {}}}': "`phases.a.wall_s`",
    '{"phases": [1]}': "`phases`",
    '{"phases": {"a": {"wall_s": "x", "cpu_s": 1}}}': "`phases.a.wall_s`",
    '{"status": "paused", "acted": [{}]}': "`acted.0.action`",
    '{"acted": 5}': "`acted`",
    '{"argv": 5}': "`argv`",
    '{"versions": []}': "`versions`",
    '{"sandbox": {"code": 1}}': "`sandbox.code`",
    '{"steps": 1.5}': "`steps`",
    '{"stages": [5]}': "`stages.0`",
    '{"contents": {"files": 5}}': "`contents.files`",
    '{"seed": 1e999}': "`seed`",
    "[]": "must be a JSON object",
    "": "cannot be read",
    "[" * 100_000: "nested too deeply",
}


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:40])
def test_an_odd_manifest_is_named_by_its_key_in_every_command_and_hides_no_other_run(tmp_path: Path, text: str) -> None:
    make_run(tmp_path, "whole").update_manifest(status="done")
    odd = make_run(tmp_path, "odd")
    (odd.path / "run.json").write_text(text)
    found = {one.name: one for one in listed(tmp_path)}
    assert found["whole"].status == "done" and found["whole"].score is not None
    assert found["odd"].status == "unreadable" and ODD[text] in found["odd"].reason
    assert f"unreadable: {found['odd'].reason}" in lines_of(odd)[0]
    first, (other,) = compare_runs([RunFolder.open(tmp_path / "whole"), odd])
    assert (first.status, other.summary.status) == ("done", "unreadable")
    for words in (["watch", str(odd.path), "--once"], ["report", str(odd.path)], ["doctor", str(odd.path)]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, DataError), (words, done.output)
        assert ODD[text] in str(done.exception)
        assert done.exception.mistakes[0].place == str(odd.path / "run.json")


ODD_LINES = {
    '{"step": 3, "reward/total/mean": []}': "`reward/total/mean` must be a number",
    '{"step": 3, "loss": "high"}': "`loss` must be a number",
    '{"step": "3"}': "`step`",
    '{"step": -1}': "`step`",
    '{"loss": 1}': "`step` is missing",
    '{"step": 3, "verify/math/calls": null}': "`verify/math/calls` must be a whole number",
    '{"step": 3, "eval/n": 1e999}': "`eval/n` must be a whole number",
    f'{{"step": 3, "tokens": {10**400}}}': "`tokens` is too large",
    "5": "must be a JSON object",
    '{"step": 3,': "Expecting",
}


@pytest.mark.parametrize("text", ODD_LINES, ids=lambda text: text[:40])
def test_an_odd_line_of_numbers_is_named_by_its_place_and_its_key(tmp_path: Path, text: str) -> None:
    make_run(tmp_path, "whole").update_manifest(status="done")
    odd = make_run(tmp_path, "odd")
    path = odd.path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], text, *lines[1:]]) + "\n")
    found = {one.name: one for one in listed(tmp_path)}
    assert found["whole"].score is not None and found["odd"].status == "unreadable"
    assert ODD_LINES[text] in found["odd"].reason
    done = CliRunner().invoke(app, ["report", str(odd.path)])
    assert isinstance(done.exception, DataError)
    assert done.exception.mistakes[0].place == f"{path}:2"
    assert isinstance(CliRunner().invoke(app, ["watch", str(odd.path), "--once"]).exception, DataError)


def test_a_number_that_is_not_finite_is_no_odd_one(tmp_path: Path) -> None:
    run = make_run(tmp_path, "one")
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    for line_, value in zip(lines[1:4], ("NaN", "Infinity", "-Infinity"), strict=True):
        line_["loss"] = line_["reward/total/mean"] = value
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert listed(tmp_path)[0].status != "unreadable"
    for words in (["watch", str(run.path), "--once"], ["report", str(run.path)]):
        assert CliRunner().invoke(app, words).exit_code == 0, words


def test_numbers_fall_words_rise_and_what_was_not_measured_is_last_either_way() -> None:
    runs = [line("b", score=0.2), line("c"), line("a", score=0.9), line("d", score=0.5)]
    assert [one.name for one in ordered(runs, "score")] == ["a", "d", "b", "c"]
    assert [one.name for one in ordered(runs, "score", reverse=True)] == ["b", "d", "a", "c"]
    assert [one.name for one in ordered(runs, "name")] == ["a", "b", "c", "d"]
    assert [one.name for one in ordered(runs, "name", reverse=True)] == ["d", "c", "b", "a"]


def test_an_unknown_order_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        listed(tmp_path, "scroe")
    assert caught.value.hint == "did you mean `score`?"


def test_a_narrow_terminal_loses_the_last_columns_only() -> None:
    rows = [["run-one", "done", "40/40", "x" * 30]]
    assert table(("run", "status", "steps", "recipe"), rows)[1].endswith("x" * 30)
    narrow = table(("run", "status", "steps", "recipe"), rows, 30)
    assert narrow == ["run      status  steps", "run-one  done    40/40"]
    assert max(map(len, table(("run", "status", "steps", "recipe"), rows, 5))) > 5


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e12, "3 TB")]
)
def test_sizes_read_as_disks_are_sold(size: float, text: str) -> None:
    assert size_text(size) == text


def test_links_and_vanished_files_count_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("/etc")
    assert bytes_of(tmp_path) == 5 + (tmp_path / "link").lstat().st_size
    assert bytes_of(tmp_path / "gone") == 0


def test_runs_are_paired_by_held_out_row_and_differing_keys_are_named(tmp_path: Path) -> None:
    first = make_run(tmp_path, "first", seed=0, learns=False)
    second = make_run(tmp_path, "second", seed=1, lr="3e-6")
    summary, (other,) = compare_runs([first, second])
    assert summary.name == "first"
    assert {key: b for key, (_, b) in other.differs.items()} == {"train.lr": 3e-6, "train.seed": 1}
    shares = []
    for folder in (first, second):
        groups: dict[str, list[float]] = {}
        for record in folder.samples(20, "eval"):
            groups.setdefault(record.row, []).append(float(record.is_right))
        shares.append({row: sum(g) / len(g) for row, g in groups.items()})
    gaps = [shares[1][row] - shares[0][row] for row in shares[0]]
    assert other.paired is not None
    assert other.paired.difference.n == 16
    assert other.paired.difference.mean == pytest.approx(sum(gaps) / 16)
    text = "\n".join(compared_lines(summary, [other]))
    assert "train.lr   1e-06 → 3e-06" in text
    assert "n 16 rows, steps 20 and 20" in text


def test_runs_without_a_common_row_say_so(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path, name, hostile=False) for name in ("first", "second"))
    for path in (second.path / "eval").glob("*.jsonl"):
        records = [json.loads(text) for text in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(r | {"row": f"x{r['row']}"}) + "\n" for r in records))
    _, (other,) = compare_runs([first, second])
    assert (other.paired, other.why) == (None, "no held-out row in common")


def test_where_a_run_lies_is_no_difference() -> None:
    a = {"run": {"dir": "x"}, "train": {"lr": 1, "trl": {}}}
    b = {"run": {"dir": "y"}, "train": {"lr": 1, "trl": {"weight_decay": 0.1}}}
    assert differences(a, b) == {"train.trl": ({}, None), "train.trl.weight_decay": (None, 0.1)}


def test_a_key_that_came_later_is_no_difference_and_a_changed_one_is(tmp_path: Path) -> None:
    first, old = (make_run(tmp_path, name, hostile=False) for name in ("first", "old"))
    (first.path / "recipe.yaml").write_text(to_yaml(Recipe.model_validate(recipe_of(old))))
    assert "between" in first.recipe_text and "between" not in old.recipe_text
    assert compare_runs([first, old])[1][0].differs == {}
    assert compare_runs([old, first])[1][0].differs == {}
    (first.path / "recipe.yaml").write_text(first.recipe_text.replace("between: null", "between: 8"))
    assert compare_runs([first, old])[1][0].differs == {"eval.between": (8, None)}
    assert [len(arm.runs) for arm in arms_of([collect(first), collect(old)])] == [2]
    (first.path / "recipe.yaml").write_text(first.recipe_text.replace("inner_epochs: 1", "inner_epochs: 2"))
    assert [len(arm.runs) for arm in arms_of([collect(first), collect(old)])] == [1, 1]


def test_a_running_run_is_not_deleted_and_others_are(tmp_path: Path) -> None:
    done, running = make_run(tmp_path, "done"), make_run(tmp_path, "running")
    running.update_manifest(status="running")
    with pytest.raises(UsageError, match="`running` is running"):
        removable([done, running])
    assert done.path.exists()
    found = removable([done])
    assert remove(found) == found[0].bytes
    assert not done.path.exists()
    assert running.path.exists()
    remove(removable([running], even_running=True))
    assert not running.path.exists()


def test_the_samples_of_a_past_step_are_shown_by_group_or_of_one_row(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "one", seed=3)
    step = folder.steps()[0]
    groups = groups_of(folder, step, "train")
    every = list(folder.samples(step))
    assert sum(map(len, groups)) == len(every) and all(len({s.row for s in group}) == 1 for group in groups)
    row = groups[0][0].row
    assert [s.row for group in groups_of(folder, step, "train", row) for s in group] == [
        s.row for s in every if s.row == row
    ]
    with pytest.raises(DataError, match="no samples of step 9999") as told:
        groups_of(folder, 9999, "train")
    assert f"{folder.steps()[0]} to {folder.steps()[-1]}" in told.value.render()
    with pytest.raises(DataError, match="no row `zzz` in step"):
        groups_of(folder, step, "train", "zzz")
    shown = CliRunner().invoke(app, ["runs", "show", str(folder.path), "--step", str(step), "--row", row, "--json"])
    assert len(json.loads(shown.stdout)["samples"]) == sum(s.row == row for s in every)
    alone = CliRunner().invoke(app, ["runs", "show", str(folder.path), "--row", row])
    assert isinstance(alone.exception, UsageError) or alone.exit_code != 0
