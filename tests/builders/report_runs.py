"""Made-up run folders for the report tests: a run that learns, with held-out rows and hostile text in its samples."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import step_stats
from grpo_verifiers.verdict import error, no_answer, over_limit, right, wrong
from tests.builders.display_state import step_metrics

RECIPE = """grpo: 1
model: {{path: some/model}}
data:
  train: [{{from: train.jsonl}}]
  eval: {{from: test.jsonl}}
  prompt: '{{question}}'
  answer: '{{answer}}'
verify:
  math: {{kind: math, weight: 1.0, primary: true}}
sample: {{prompts: 4, group: 4, max_tokens: 512}}
train: {{algorithm: default, steps: 20, lr: {lr}, seed: {seed}, control: {control}}}
"""
HOSTILE = (
    "</script><script>window.hacked=1;alert(1)</script>", "<img src=x onerror='window.hacked=1'>", "\x1b[2J\x1b]0;t\x07", "\u202eevil\u2066",
    "\0\ud800", "<!--", "]]>", "&lt;b&gt;", "{{7*7}}", "javascript:window.hacked=1", "a" * 100_000, "日本語 👩‍👩‍👧",
)  # fmt: skip


def make_run(
    root: Path,
    name: str,
    *,
    seed: int = 0,
    lr: str = "1e-6",
    steps: int = 20,
    learns: bool = True,
    hostile: bool = True,
    control: str = "null",
) -> RunFolder:
    """A finished run of 4 x 4 samples a step and 16 held-out prompts every fifth step."""
    rng = random.Random(seed)
    manifest = {
        "argv": ["grpo", "train", "gsm8k<b>.yaml" if hostile else "gsm8k.yaml"],
        "seed": seed,
        "device": "cpu",
        "versions": {"torch": "2.13.0"},
    }
    folder = RunFolder.create(root, name, RECIPE.format(seed=seed, lr=lr, control=control), manifest)
    evaluate(folder, rng, 0, 0.2, hostile)
    for step in range(1, steps + 1):
        chance = 0.2 + (0.6 * step / steps if learns else 0.0)
        records = [
            sample(rng, step, f"row{step % 7}-{group}", group, chance, hostile) for group in range(4) for _ in range(4)
        ]
        metrics: dict[str, Any] = step_metrics(step) | {"kl": 0.001 * step, "entropy": 0.7 - 0.01 * step + 0.01 * seed}
        for key in [k for k in metrics if k.startswith(("verify/", "group/", "reward/", "pass@", "length/"))]:
            del metrics[key]
        folder.write_samples(step, records)
        folder.write_metrics(metrics | step_stats(records, 4, (1, 4)) | {"step": step})
        if step % 5 == 0:
            evaluate(folder, rng, step, chance, hostile)
    folder.update_manifest(status="done")
    return folder


def evaluate(folder: RunFolder, rng: random.Random, step: int, chance: float, hostile: bool) -> None:
    records = [
        sample(rng, step, f"held{row}", row, min(1.0, chance * (0.5 + row / 16)), hostile)
        for row in range(16)
        for _ in range(2)
    ]
    folder.write_samples(step, records, split="eval")
    share = step_stats(records, 2, (1, 2))["pass@1"]
    assert share is not None
    folder.write_metrics(
        {
            "step": step,
            "eval/pass@1": share,
            "eval/pass@1/low": share - 0.1,
            "eval/pass@1/high": share + 0.1,
            "eval/pass@1/half": 0.1,
            "eval/n": 16,
        }
    )


def sample(rng: random.Random, step: int, row: str, group: int, chance: float, hostile: bool) -> SampleRecord:
    text = rng.choice(HOSTILE) if hostile else f"so the answer is \\boxed{{{rng.randint(0, 9)}}}"
    draw = rng.random()
    if draw < chance:
        verdict = right(text[:40], "equal", 0.01)
    else:
        verdict = rng.choice(
            [
                wrong(text[:40], "differs", 0.02),
                no_answer("no_box"),
                over_limit("too_long"),
                error("crashed", text[:80]),
            ]
        )
    return SampleRecord(
        step, row, group, f"question {row} {text[:200]}", text, {"answer": text[:30], "question": f"question {row} {text[:200]}"},
        {"math": verdict}, verdict.outcome, verdict.score, 0.5 if verdict.score else -0.5, rng.randint(5, 300), rng.random() < 0.05,
    )  # fmt: skip
