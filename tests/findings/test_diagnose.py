"""`grpo doctor RUN` on made-up folders: findings carry evidence, the completions behind them, and a command that exists."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from grpo_cli.app import app
from grpo_cli.errors import DataError
from grpo_cli.findings.evidence import EVIDENCE, diagnose
from grpo_cli.findings.run_data import arms_of, collect
from grpo_cli.findings.samples import PICKS
from grpo_cli.jobs.doctor import lines_of
from grpo_cli.jobs.explain.subjects import describe_finding as describe
from grpo_cli.jobs.explain.subjects import render_finding as render
from grpo_cli.jobs.explain.subjects import rules
from grpo_cli.jobs.report.page import build_page
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import step_stats
from grpo_verifiers.verdict import Outcome, Verdict
from tests.builders.simulated_runs import GROUP, PROMPTS

RECIPE = """grpo: 1
model: {path: some/model}
data: {train: [{from: train.jsonl}], prompt: '{question}', answer: '{answer}'}
verify: {math: {kind: math, weight: 1.0, primary: true}}
sample: {prompts: 16, group: 8, max_tokens: 512}
train: {algorithm: default, steps: 60, lr: 1.0e-06}
"""
Draw = Callable[[random.Random, int, int], SampleRecord]


def record(step: int, row: int, *, right: bool, tokens: int = 100, cut: bool = False, text: str = "") -> SampleRecord:
    outcome = Outcome.RIGHT if right else Outcome.WRONG
    return SampleRecord(
        step, f"row{row}", f"{step}/{row}", f"question {row}", text or f"so {row}, {tokens}", {"answer": "1"},
        {"math": Verdict(outcome, float(right))}, outcome, float(right), 0.0, tokens, cut,
    )  # fmt: skip


def healthy(rng: random.Random, step: int, row: int) -> SampleRecord:
    return record(step, row, right=rng.random() < 0.3 + 0.4 * (row % PROMPTS) / PROMPTS, tokens=rng.randint(80, 120))


def make(root: Path, draw: Draw = healthy, steps: int = 30) -> RunFolder:
    """A run of real records; every step has rows of its own."""
    rng = random.Random(0)
    folder = RunFolder.create(
        root,
        "run",
        RECIPE,
        {
            "argv": [
                "grpo",
                "train",
                "my.yaml",
                "--set",
                "train.seed=1",
                "--set",
                "run.name=run",
                "--display",
                "none",
                "--json",
            ]
        },
    )
    for step in range(1, steps + 1):
        records = [draw(rng, step, PROMPTS * step + i) for i in range(PROMPTS) for _ in range(GROUP)]
        folder.write_samples(step, records)
        folder.write_metrics({"step": step} | step_stats(records, GROUP))
    return folder


def the(folder: RunFolder, code: str):  # type: ignore[no-untyped-def]
    (found,) = [d for d in diagnose(folder) if d.finding.code == code]
    return found


def is_command(line: str) -> bool:
    """Whether a command and its options exist."""
    words = shlex.split(line)
    command = get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    return words[0] == "grpo" and all(word in known for word in words[2:] if word.startswith("--"))


def test_a_healthy_run_is_silent(tmp_path: Path) -> None:
    assert lines_of(diagnose(make(tmp_path)), tmp_path) == ["no finding"]


def test_a_truncation_wall_comes_with_cut_off_samples_and_the_next_command(tmp_path: Path) -> None:
    def cut(rng: random.Random, step: int, row: int) -> SampleRecord:
        return record(step, row, right=rng.random() < 0.5, cut=step > 10 and rng.random() < 0.5)

    found = the(make(tmp_path, cut), "W20")
    assert found.samples and all(r.truncated for r in found.samples)
    assert found.next == "grpo train my.yaml --set train.seed=1 --set sample.max_tokens=1024"
    (share, *_) = found.evidence
    assert share.key == "truncated" and share.start == 0 and share.now > 0.2


def test_dead_groups_come_with_wrong_samples_of_different_prompts(tmp_path: Path) -> None:
    def dead(rng: random.Random, step: int, row: int) -> SampleRecord:
        return record(step, row, right=step < 10 and rng.random() < 0.5, tokens=rng.randint(80, 120))

    found = the(make(tmp_path, dead), "W11")
    assert len({r.row for r in found.samples}) == 3 and found.next == "grpo probe my.yaml"


def test_a_broken_verifier_is_checked_by_scoring_that_step_again(tmp_path: Path) -> None:
    def broken(rng: random.Random, step: int, row: int) -> SampleRecord:
        return record(step, row, right=step < 15 and rng.random() < 0.5)

    found = the(make(tmp_path, broken), "W42")
    assert found.finding.step == found.samples_step == 15
    assert "step-000015.jsonl" in found.next and is_command(found.next)


def test_duplicate_rows_are_shown_with_their_copies(tmp_path: Path) -> None:
    def twice(rng: random.Random, step: int, row: int) -> SampleRecord:
        made = healthy(rng, step, row)
        if row % 8 == 0:
            return SampleRecord(**{f: getattr(made, f) for f in made.__slots__} | {"prompt": f"question {row // 16}"})
        return made

    found = the(make(tmp_path, twice), "W60")
    assert "repeat the prompt of another" in found.finding.text
    first, second, *_ = found.samples
    assert first.row != second.row and first.prompt.split() == second.prompt.split()


def test_hostile_completions_cannot_steer_the_terminal(tmp_path: Path) -> None:
    def hostile(rng: random.Random, step: int, row: int) -> SampleRecord:
        return record(step, row, right=False, text="\x1b[2J\x1b]0;t\x07\u202e" + "a" * 5000)

    page = "\n".join(lines_of(diagnose(make(tmp_path, hostile, steps=12)), tmp_path))
    assert "W35" in page and "\x1b" not in page and "\u202e" not in page and len(page) < 5000


def test_every_next_command_exists(tmp_path: Path) -> None:
    for i, draw in enumerate((
        lambda rng, step, row: record(step, row, right=False, cut=True),
        lambda rng, step, row: record(step, row, right=True, tokens=100 * step),
    )):  # fmt: skip
        found = diagnose(make(tmp_path / str(i), draw, steps=25))
        assert found and all(is_command(one.next) for one in found)


def test_the_report_shows_the_completions_behind_a_finding(tmp_path: Path) -> None:
    def cut(rng: random.Random, step: int, row: int) -> SampleRecord:
        return record(step, row, right=rng.random() < 0.5, cut=True, text="<b>cut</b> here")

    page = build_page(arms_of([collect(make(tmp_path, cut, steps=12))]))
    assert "W20" in page and "samples of step 10" in page and "&lt;b&gt;cut" in page and "<b>cut" not in page


def test_every_finding_can_be_explained() -> None:
    assert set(rules()) >= set(EVIDENCE) | set(PICKS)
    for code in rules():
        assert describe(code)["summary"] and render(describe(code)).startswith(f"{code}: ")


def test_a_run_without_metrics_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no metrics yet"):
        diagnose(RunFolder.create(tmp_path, "empty", RECIPE, {}))
