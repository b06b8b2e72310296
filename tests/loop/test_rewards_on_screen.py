"""Rewards of any size measured by `grpo eval`, and rewards that print beside the live display."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.api import evaluate, load_recipe, train
from tests.loop.recipes import environment

FUNCTIONS = """\
def signed(completions, **kwargs):
    return [2.0 if len(c) % 2 else -1.0 for c in completions]

def noisy(completion):
    print("NOISE of a reward")
    return float(len(completion) % 3)
"""


def written(folder: Path, verify: str) -> Path:
    (folder / "mine.py").write_text(FUNCTIONS)
    for name in ("train", "eval"):
        rows = [json.dumps({"q": f"{i}+{i} {name}"}) for i in range(6)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "r.yaml").write_text(f"""\
model: builtin:tiny
data: {{train: train.jsonl, eval: eval.jsonl, prompt: "{{q}}"}}
verify: {{mine: {verify}}}
sample: {{prompts: 2, group: 4, max_tokens: 10}}
train: {{steps: 2, lr: 1e-3}}
eval: {{samples: 4}}
monitor: {{kl: off}}
run: {{dir: {folder}/runs, name: mine}}
""")
    return folder / "r.yaml"


def test_rewards_outside_0_and_1_are_measured_as_they_stand(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, '{python: "mine.py:signed", right_at: 2}'))
    train(recipe, base=tmp_path)
    found = evaluate(tmp_path / "runs" / "mine")
    records = found.sampled.records
    assert len(records) == 24
    assert {record.reward for record in records} == {-1.0, 2.0}
    right = sum(record.reward == 2.0 for record in records) / len(records)
    assert found.sampled.pass_1.mean == pytest.approx(right)
    assert 0 <= found.sampled.pass_1.low <= right <= found.sampled.pass_1.high <= 1
    for record in records:
        assert (record.outcome == "right") == (record.reward == 2.0)


def test_what_a_reward_prints_does_not_reach_the_live_display(tmp_path: Path) -> None:
    recipe = written(tmp_path, '{python: "mine.py:noisy"}')
    ours, theirs = pty.openpty()
    env = environment(tmp_path) | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "grpo_cli", "train", str(recipe), "--display", "live"]
    seen = b""
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while True:
            if select.select([ours], [], [], 1.0)[0]:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                seen += part
            elif process.poll() is not None:
                break
        assert process.wait(timeout=60) == 0, seen[-2000:]
    os.close(ours)
    assert b"NOISE" not in seen
    log = (tmp_path / "runs" / "mine" / "train.log").read_text()
    assert log.count("NOISE of a reward") >= 16
    assert "`verify.mine` printed" in log  # a frame may be over before it is painted; the log is not
