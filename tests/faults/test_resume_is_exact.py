"""What a checkpoint has to hold: adapters, the reference, the selection's history, the place within epochs.

Each case is killed with `kill -9` right after the checkpoint of a step and resumed in another process, with other
string hashes and an empty cache, so that the cold start behind a reference is computed anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.warm import Warm
from tests.faults.runs import assert_nothing_lost, assert_same, lines_of, train
from tests.loop.recipes import small_recipe

LORA = "model={path: builtin:tiny, lora: {r: 4, dropout: 0.1}}"
KEEP = "train.dead_groups=keep"
SETTLED = """\
def verify(completion, answer):
    last = int(answer) % 10
    return last < 5 or (last == 9 and sum(map(str.isdigit, completion)) % 2 == 0)
"""
"""Nine of ten rows are always right or always wrong, so that dead rows stay dead and `auto` lets history decide."""


@dataclass(frozen=True)
class Case:
    """`kill` is the step after whose checkpoint the run dies, `rows` the number of rows: 4 are drawn a step."""

    name: str
    kill: int
    sets: tuple[str, ...] = ()
    steps: int = 6
    rows: int = 20
    save_every: int = 1
    judge: str = ""


CASES = [
    Case("lora, a reference, several updates a batch", 2, (LORA, "train.kl.beta=0.05", KEEP, "train.inner_epochs=2"), steps=4),
    Case("history decides, end of an epoch", 5, ("train.select=auto", "sample.prompts=16", "sample.group=2", KEEP), steps=7, rows=24, judge=SETTLED),
    Case("a later epoch, KL in the reward", 5, ("train.kl={beta: 0.05, estimator: k1_reward}", KEEP,), rows=8),
]  # fmt: skip
MORE = [
    Case("the end of an epoch", 5, save_every=5, steps=7),
    Case("a later epoch", 3, rows=8, steps=5),
    Case("lora", 3, (LORA,)),
    Case("lora without the KL monitor", 3, (LORA, "monitor.kl=off")),
    Case("no copy of the start is kept", 3, ("monitor.kl=off",)),
    Case("a reference", 3, ("train.kl.beta=0.05", KEEP,)),
    Case("groups drawn again", 3, ("train.dead_groups=resample", "train.select=screen")),
    *(Case(f"rows by {name}", 4, (f"train.select={name}",), judge=SETTLED) for name in ("priority", "greso", "mopps", "easy_to_hard")),
    Case("TRL's own sampling", 3, ("sample.engine=transformers",)),
    Case("micro-batches", 3, ("sample.micro_batch=4", "train.inner_epochs=3")),
    Case("a cosine schedule", 3, ("train.schedule=cosine", "train.lr_warmup_steps=2")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_killed_run_resumes_exactly(folder: Path, warm: Warm, other: Warm, case: Case) -> None:
    check(folder, warm, other, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE, ids=lambda case: case.name)
def test_a_killed_run_resumes_exactly_in_more_cases(folder: Path, warm: Warm, other: Warm, case: Case) -> None:
    check(folder, warm, other, case)


def check(folder: Path, warm: Warm, other: Warm, case: Case) -> None:
    recipe = small_recipe(folder, steps=case.steps, save_every=case.save_every)
    sets = [part for text in (*case.sets, f"data.train.limit={case.rows}", "run.keep=2") for part in ("--set", text)]
    if case.judge:
        (folder / "judge.py").write_text(case.judge)
        recipe.write_text(recipe.read_text().replace('regex: {pattern: "[02468].*[13579]"}', 'python: "judge:verify"'))
    straight, broken = folder / "straight/run", folder / "broken/run"
    ended = warm.run(train(recipe, straight.parent, *sets), folder)
    assert ended.code == 0, ended.said
    strike = {"folder": str(broken), "after": f"checkpoints/step-{case.kill:06d}", "at": 2, "how": "kill"}
    ended = warm.run(train(recipe, broken.parent, *sets), folder, strike=strike)
    assert ended.code == -9, ended.said
    recorded = lines_of(broken)
    ended = other.run(train(recipe, broken.parent, *sets, "--resume"), folder)
    assert ended.code == 0, ended.said
    assert f"resuming run from step-{case.kill:06d}" in ended.said
    assert_nothing_lost(recorded, broken)
    assert_same(straight, broken)
    if "train.select=auto" in case.sets:
        lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
        assert any(line.get("rows/by_history") == 1 for line in lines if line["step"] <= case.kill), (
            "history never decided"
        )
