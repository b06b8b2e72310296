"""A run that fails says why in its own folder too, and how to go on where something was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.loop.program import grpo
from tests.loop.recipes import small_recipe
from tests.loop.test_resume import train


def run_with(folder: Path, function: str, *sets: str, resume: bool = False) -> tuple[int, str, Path]:
    recipe = small_recipe(folder)
    text = recipe.read_text().replace('regex: {pattern: "[02468].*[13579]"}', "python: reward.py:score")
    recipe.write_text(text)
    (folder / "reward.py").write_text(function)
    asked = ["--resume", "run"] if resume else ["--set", "run.name=run"]
    done = grpo(folder, "train", str(recipe), "--set", f"run.dir={folder}/runs", *asked, *sets)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr, folder / "runs/run"


def test_a_verifier_that_judges_nothing_ends_the_run_at_its_first_evaluation(tmp_path: Path) -> None:
    code, said, run = run_with(tmp_path, "def score(completion, answer):\n    return float('nan')\n")
    assert code == 5
    assert "no held-out sample got a verdict: `python`: bad_return: BadReturn: `score` (" in said
    assert "reward.py:1) returned nan" in said
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["status"] == "failed" and "returned nan" in manifest["reason"]
    assert "returned nan" in (run / "train.log").read_text()
    assert (run / "eval/step-000000.jsonl").exists()
    assert not (run / "metrics.jsonl").exists()


BREAKS = """
import pathlib

broken = pathlib.Path(__file__).with_name("broken")


def score(completion, answer):
    if broken.exists():
        raise OSError("the table is gone")
    return len(completion) % 2 == 0
"""


def test_a_verifier_that_breaks_later_leaves_a_checkpoint_from_which_the_printed_command_goes_on(
    tmp_path: Path,
) -> None:
    steps = ("--set", "train.steps=4", "--set", "eval.every=1", "--set", "run.save_every=1")
    code, _, run = run_with(tmp_path, BREAKS, *steps, "--set", "run.deadline=0s")
    assert code == 143
    (tmp_path / "broken").touch()
    code, said, run = run_with(tmp_path, BREAKS, *steps, "--resume-anyway", resume=True)
    assert code == 5
    assert "`python`: verifier_raised: OSError: the table is gone" in said
    assert f"is saved; once the cause is fixed `grpo train --resume {run}` goes on from it" in said


def test_a_run_whose_output_nobody_reads_any_more_goes_on_to_its_end(tmp_path: Path) -> None:
    process = train(small_recipe(tmp_path), tmp_path / "runs", "--set", "run.name=run", cold=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=240) == 0
    manifest = json.loads((tmp_path / "runs/run/run.json").read_text())
    assert (manifest["status"], manifest["steps"]) == ("done", 4)


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def rows_file(file: Path, first: int, n: int, **columns: str) -> Path:
    """Rows of sums, with more columns where some are named."""
    rows = [
        {"question": f"{i}+{i}=", "answer": str(2 * i), "blurt": f"{i}\n", **columns} for i in range(first, first + n)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_function_that_fails_on_held_out_rows_beside_another_is_counted_and_named_everywhere(tmp_path: Path) -> None:
    """The primary verifier has a verdict on all of them, so that pass@1 alone shows nothing."""
    train = rows_file(tmp_path / "train.jsonl", 0, 20, level="easy")
    held_out = rows_file(tmp_path / "held-out.jsonl", 100, 8)
    text = small_recipe(tmp_path).read_text()
    for old, new in {
        "{from: tasks:addition3, limit: 20}": str(train),
        "{from: tasks:addition3, limit: 8, skip: 100}": str(held_out),
        '[13579]"}': '[13579]"}\n  python: reward.py:score',
    }.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "small.yaml").write_text(text)
    (tmp_path / "reward.py").write_text("def score(completion, row):\n    return len(row['level']) / 8\n")
    asked = ("--set", f"run.dir={tmp_path}/runs", "--set", "run.name=run", "--display", "plain")
    done = grpo(tmp_path, "train", str(tmp_path / "small.yaml"), *asked)
    assert done.returncode == 0, done.stderr
    said, run = done.stdout + done.stderr, tmp_path / "runs/run"
    assert said.count(f"no verdict on {held_out}:1: ") == 1, said
    assert "`python`: verifier_raised: KeyError: 'level' (" in said
    assert "verifiers fail on 24 of 24 held-out samples" in said and "[W40]" in said
    assert "held-out errors   72 of 72 samples have no verdict" in said
    evaluations = [line for line in lines_of(run) if "eval/pass@1" in line]
    assert [(m["eval/without_verdict"], m["eval/samples"]) for m in evaluations] == [(24, 24)] * 3
    assert f"no verdict on {held_out}:1: " in (run / "train.log").read_text()
    records = [json.loads(line) for line in (run / "eval/step-000000.jsonl").read_text().splitlines()]
    assert {record["reward"] for record in records} == {None}, "never half of it"
    measured = grpo(tmp_path, "eval", str(run), "--json")
    found = json.loads(measured.stdout)
    assert measured.returncode == 0 and found["without_verdict"] == 24
    assert [(one["verifier"], one["samples"]) for one in found["failures"]] == [("python", 24)]
    shown = grpo(tmp_path, "eval", str(run)).stdout
    assert "errors   24 of 24 samples have no verdict: `python`: verifier_raised: KeyError" in shown


def test_an_error_whose_text_no_stream_holds_is_told_with_its_code(tmp_path: Path) -> None:
    code, said, run = run_with(tmp_path, 'def score(completion):\n    raise RuntimeError("bad \\udcff \\x1b[31mred")\n')
    assert code == 5
    assert "RuntimeError: bad \\udcff \\x1b[31mred (" in said and "\x1b[31m" not in said
    log = (run / "train.log").read_bytes()
    assert b"\x1b[31m" not in log and "bad \\udcff" in log.decode()


def test_a_reward_too_large_to_be_averaged_is_a_sentence(tmp_path: Path) -> None:
    code, said, _ = run_with(tmp_path, "def score(completion):\n    return 1e308\n")
    assert code == 5
    assert "returned 1e+308; return a finite number, of 1e+50 at most" in said


def test_a_reward_that_prints_a_megabyte_a_call_leaves_a_log_of_kilobytes(tmp_path: Path) -> None:
    loud = "def score(completion):\n    print('x' * 1_000_000)\n    return float(len(completion) % 2)\n"
    code, _, run = run_with(tmp_path, loud)
    assert code == 0
    log = (run / "train.log").read_text()
    samples = sum(len(file.read_text().splitlines()) for file in run.glob("*/step-*.jsonl")) + 3 * 8
    assert len(log) < 4_100 * samples + 50_000
    assert log.count("prints more than is kept") == 1


def test_without_any_verdict_eval_and_verify_end_with_the_code_of_verifiers_that_fail(tmp_path: Path) -> None:
    code, _, run = run_with(tmp_path, "def score(completion):\n    return 1.0\n")
    assert code == 0
    (tmp_path / "reward.py").write_text("def score(completion):\n    raise OSError('gone')\n")
    measured = grpo(tmp_path, "eval", str(run), "--recipe", str(tmp_path / "small.yaml"))
    assert measured.returncode == 5, measured.stderr
    assert "error: no held-out sample got a verdict: `python`: verifier_raised: OSError: gone" in measured.stderr
    samples = str(run / "samples/step-000001.jsonl")
    verified = grpo(tmp_path, "verify", samples, "--recipe", str(tmp_path / "small.yaml"), "--json")
    assert verified.returncode == 5
    found = json.loads(verified.stdout)
    assert found["without_verdict"] == found["n"] == 16
    assert found["failures"][0]["rows"][0] == f"{samples}:1"
    assert f"warning: no verdict on {samples}:1: `python`" in verified.stderr
