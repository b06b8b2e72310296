"""`grpo verify` on the samples of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_verify import RECIPE, line, outcomes, run


def test_samples_of_a_run_are_read_back_to_the_same_numbers(tmp_path: Path) -> None:
    from grpo_cli.run.records import SampleRecord, dump_line
    from grpo_cli.statistics.step import step_stats
    from grpo_verifiers import Outcome, build

    verifier = build("numeric")
    records = []
    for i in range(24):
        text, fields = (
            f"\\boxed{{{i % 5}}}" if i % 7 else "no idea",
            {"answer": str(i // 8), "step": "of the row"},
        )
        verdict = verifier.verify(text, fields)
        records.append(
            SampleRecord(
                3,
                f"row-{i // 8}",
                i // 8,
                "p",
                text,
                fields,
                {"numeric": verdict},
                verdict.outcome,
                verdict.score,
                None,
                5,
            )
        )
    folder = tmp_path / "run" / "samples"
    folder.mkdir(parents=True)
    (folder / "step-000003.jsonl").write_text("".join(dump_line(record.as_json()) for record in records))
    (tmp_path / "run" / "recipe.yaml").write_text(RECIPE.format("verify: {numeric: {}}"))
    got = run(str(folder / "step-000003.jsonl"), "--json")
    assert got.returncode == 0 and "verifiers of `" in got.stderr
    found, wanted = json.loads(got.stdout), step_stats(records, 8, [1, 2, 8])
    groups = found["groups"]
    assert found["mean_reward"] == pytest.approx(wanted["reward/total/mean"])
    assert [groups[key] for key in ("n", "all_wrong", "mixed", "all_right", "with_signal")] == [
        wanted[f"group/{key}"] for key in ("count", "all_wrong", "mixed", "all_right", "with_signal")
    ]
    assert all(groups["pass@k"][str(k)] == pytest.approx(wanted[f"pass@{k}"]) for k in (1, 2, 8))
    assert found["outcomes"]["no_answer"] == sum(record.outcome is Outcome.NO_ANSWER for record in records)


def test_functions_of_a_run_are_found_where_its_recipe_came_from(tmp_path: Path) -> None:
    home, samples = tmp_path / "home", tmp_path / "run" / "samples"
    home.mkdir()
    samples.mkdir(parents=True)
    (home / "mine.py").write_text("def f(completion, answer):\n    return completion == answer\n")
    (tmp_path / "run" / "recipe.yaml").write_text(
        RECIPE.format("verify: {half: {kind: python, function: 'mine:f'}}")
    )
    (tmp_path / "run" / "run.json").write_text(json.dumps({"base": str(home)}))
    (samples / "step-000001.jsonl").write_text(line("4") + line("5"))
    got = run(str(samples / "step-000001.jsonl"))
    assert got.returncode == 0 and outcomes(got.stdout) == ["right", "wrong"]
