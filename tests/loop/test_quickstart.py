"""The shipped quickstart, shortened: the real cold start, then twelve steps of GRPO, measured before and after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.loop.recipes import ROOT, environment


def test_the_quickstart_learns_to_work_sums_out(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpo_cli", "train", "quickstart", "--json", "--display", "plain"]
    sets = [f"run.dir={tmp_path}/runs", "train.steps=12", "eval.limit=64", "data.eval.limit=128"]
    command += [part for one in sets for part in ("--set", one)]
    done = subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    before, after = summary["before"], summary["after"]
    assert after["pass@1"] > before["pass@1"] + 0.3, done.stderr
    assert after["ci"][0] > before["ci"][1], "the intervals touch"
    assert after["think"] > 0.9 > before["think"]
    assert set(summary["seconds"]) >= {"setup", "warmup", "generate", "verify", "update", "total"}
    recorded = [json.loads(line) for line in (Path(summary["run"]) / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in recorded if "reward/total/mean" in m] == list(range(1, 13))
    assert recorded[0]["eval/pass@1"] == before["pass@1"]
