"""`grpo pairs` as a user runs it: of runs, of files, of recipes, and all that gives no pairs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from grpo_cli.app import main
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.lines import write_records
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome, Verdict
from tests.loop.recipes import small_recipe

RIGHT, WRONG, ERROR = Outcome.RIGHT, Outcome.WRONG, Outcome.ERROR


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.chdir(tmp_path)
    return load(str(small_recipe(tmp_path)))


def sample(row: Row, text: str, outcome: Outcome, *, cut: bool = False, by: str = "regex") -> SampleRecord:
    verdict = Verdict(outcome, None if outcome is ERROR else float(outcome is RIGHT))
    return SampleRecord(
        1, row.id, "1/0", row.prompt, text, row.fields, {by: verdict}, outcome, verdict.score,
        tokens=len(text), truncated=cut,
    )  # fmt: skip


def run_of(recipe: Recipe, steps: dict[int, Sequence[SampleRecord]]) -> RunFolder:
    run = RunFolder.create("runs", "one", to_yaml(recipe), {"base": str(Path.cwd())})
    for step, records in steps.items():
        run.write_samples(step, [replace(record, step=step) for record in records])
    return run


def pairs(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with mock.patch.object(sys, "argv", ["grpo", "pairs", *args]):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def lines(path: str | Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_finished_run_gives_its_pairs(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = load_rows(recipe.data, "train")[:3]
    run_of(
        recipe,
        {
            1: [sample(one, "2 1", RIGHT), sample(one, "2 2", WRONG), sample(two, "4 4", WRONG)],
            2: [sample(two, "4 1", RIGHT), sample(three, "7 7 7", WRONG), sample(three, "8", ERROR)],
        },
    )
    code, out, err = pairs(capsys, "one", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["pairs"] == said["lines"] == 2 and said["rows"] == 3 and said["rows_with_pairs"] == 2
    assert said["rows_without"] == {"no right answer": 1}
    assert said["length_gap"]["mean"] == 0.0 and said["file"] == "runs/one/pairs.jsonl"
    assert [(line["row"], line["chosen"], line["rejected"]) for line in lines("runs/one/pairs.jsonl")] == [
        (one.id, "2 1", "2 2"),
        (two.id, "4 1", "4 4"),
    ]
    code, out, _ = pairs(capsys, "runs/one", "--since", "2", "--out", "late.jsonl")
    assert code == 3 and not Path("late.jsonl").exists()  # of the second step alone no row has both
    code, out, _ = pairs(capsys, "last", "--out", "all.jsonl")
    assert code == 0 and "2 pairs from 2 of 3 rows, 6 samples" in out and "2 lines in all.jsonl" in out


def test_pairs_of_bytes_that_spell_no_text_are_counted_and_said(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = load_rows(recipe.data, "train")[:2]
    whole = [sample(one, "2 1", RIGHT), sample(one, "2 2", WRONG)]
    run_of(recipe, {1: whole})
    code, out, _ = pairs(capsys, "one")
    assert code == 0 and "U+FFFD" not in out
    assert json.loads(pairs(capsys, "one", "--json")[1])["unspelt"] == 0
    shutil.rmtree("runs")
    run_of(recipe, {1: [*whole, sample(two, "4 1", RIGHT), sample(two, "4 \ufffd", WRONG)]})
    said = "pairs hold U+FFFD, as bytes do that spell no text: what is learned is not what was drawn"
    code, out, _ = pairs(capsys, "one")
    assert code == 0 and f"1 of 2 {said}" in out.splitlines()
    assert json.loads(pairs(capsys, "one", "--json")[1])["unspelt"] == 1
    code, out, _ = pairs(capsys, "one", "--unpaired")
    assert code == 0 and "1 of 4 answers hold U+FFFD" in out


def test_files_of_a_run_are_held_against_its_recipe(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    held_out = load_rows(recipe.data, "eval")[0]
    run = run_of(recipe, {1: [sample(load_rows(recipe.data, "train")[0], "2 1", RIGHT)]})
    records = [sample(held_out, "2 1", RIGHT), sample(held_out, "2 2", WRONG)]
    run.write_samples(2, records, "eval")
    code, _, err = pairs(capsys, str(run.sample_path(2, "eval")))
    assert code == 3 and "samples of 1 held-out rows" in err and held_out.id in err


def test_unpaired_lines_are_what_kto_takes(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    row = load_rows(recipe.data, "train")[0]
    texts = [("2 1", RIGHT), ("2 2", WRONG), ("2 2", WRONG), ("2 22222222222", WRONG), ("x", ERROR)]
    write_records(Path("s.jsonl"), [sample(row, text, outcome) for text, outcome in texts])
    code, _, _ = pairs(capsys, "s.jsonl", "--unpaired", "--recipe", "small.yaml", "--out", "kto.jsonl")
    assert code == 0
    assert [(line["completion"], line["label"]) for line in lines("kto.jsonl")] == [
        ("2 1", True), ("2 2", False), ("2 22222222222", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([("2 1", RIGHT, False), ("4 1", RIGHT, False)], "no wrong sample"),
        ([("2 2", WRONG, False), ("4 4", WRONG, False)], "no right sample"),
        ([("2 1", RIGHT, True), ("2 2", WRONG, True)], "cut off only"),
        ([("2 1", ERROR, False), ("2 2", ERROR, False)], "without a verdict only"),
        ([("2 1", RIGHT, False), ("2 2222222222222", WRONG, False)], "too different lengths"),
        ([("2 1", RIGHT, False), ("2 1", WRONG, False)], "called both right and wrong"),
    ],
)
@pytest.mark.parametrize("by_file", [True, False])
def test_samples_without_pairs_are_one_sentence_and_exit_code_3(
    recipe: Recipe,
    capsys: pytest.CaptureFixture[str],
    samples: list[tuple[str, Outcome, bool]],
    said: str,
    by_file: bool,
) -> None:
    row = load_rows(recipe.data, "train")[0]
    records = [sample(row, text, outcome, cut=cut) for text, outcome, cut in samples]
    write_records(Path("s.jsonl"), records)
    run_of(recipe, {1: records})
    code, out, err = pairs(capsys, "s.jsonl" if by_file else "one", "--out", "p.jsonl")
    assert (code, out) == (3, "") and not Path("p.jsonl").exists()
    (error, *_) = err.splitlines()
    assert "no pair: 2 samples of 1 rows" in error and said in error


def test_samples_of_another_recipe_are_refused(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    row = load_rows(recipe.data, "train")[0]
    strange = replace(row, id="elsewhere", prompt="What is 1 + 1?")
    write_records(Path("rows.jsonl"), [sample(strange, "2 1", RIGHT), sample(strange, "2 2", WRONG)])
    write_records(Path("judge.jsonl"), [sample(row, "2 1", RIGHT, by="math"), sample(row, "2 2", WRONG, by="math")])
    for file, said in (("rows.jsonl", "of rows that the recipe does not have"), ("judge.jsonl", "judged by `math`")):
        code, _, err = pairs(capsys, file, "--recipe", "small.yaml", "--out", "p.jsonl")
        assert code == 3 and said in err and "samples of another recipe" in err
    assert not Path("p.jsonl").exists()


def test_lines_that_are_no_judged_samples_are_named_with_their_place(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = ['{"prompt": "a", "completion": "b"}', "{", '{"prompt": "a", "completion": ["b"], "outcome": "right"}']
    bad.append('{"prompt": "a", "completion": "b", "outcome": "fine"}')
    Path("bad.jsonl").write_text("\n".join(bad))
    code, _, err = pairs(capsys, "bad.jsonl")
    assert code == 3
    for number, why in enumerate(("was not judged", "broken JSON", "must be text", "fine"), 1):
        assert any(f"bad.jsonl:{number}" in line and why in line for line in err.splitlines())


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_said_to_be_one(recipe: Recipe, capsys: pytest.CaptureFixture[str], text: str) -> None:
    Path("empty.jsonl").write_text(text)
    code, out, err = pairs(capsys, "empty.jsonl", "--out", "p.jsonl")
    assert (code, out) == (3, "") and not Path("p.jsonl").exists()
    assert err.startswith("error: empty.jsonl: there are no samples\n") and "`grpo verify FILE" in err


def test_a_run_that_learned_from_pairs_gives_its_own(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    row = load_rows(recipe.data, "train")[0]
    run_of(load("small.yaml", ["train.method=prefer"]), {1: [sample(row, "2 1", RIGHT), sample(row, "2 2", WRONG)]})
    assert pairs(capsys, "one")[0] == 0 and len(lines("runs/one/pairs.jsonl")) == 1


@pytest.mark.parametrize("named", ["nowhere.jsonl", "nowhere", "nowhere.yaml", "runs/nowhere"])
def test_what_is_not_there_is_named(recipe: Recipe, capsys: pytest.CaptureFixture[str], named: str) -> None:
    code, out, err = pairs(capsys, named)
    assert code in (2, 3) and out == "" and named in err


def test_a_recipe_draws_its_samples(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("small.yaml", "-n", "6", "--samples", "8", "--length-gap", "1", "--json", "--display", "none")
    code, out, err = pairs(capsys, *args)
    said = json.loads(out)
    assert code == 0 and said["samples"] == 48 and said["rows"] == 6, err
    prompts = {row.prompt for row in load_rows(recipe.data, "train")}
    assert said["lines"] == len(lines("pairs.jsonl")) > 0
    assert {line["prompt"] for line in lines("pairs.jsonl")} <= prompts
