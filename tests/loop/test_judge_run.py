"""A recipe with `kind: judge` trained against a real server on 127.0.0.1."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.reading.load import load
from grpo_cli.run.folder import RunFolder
from tests.verifiers.kinds.test_judge import SERVER


@pytest.fixture
def url() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        server.kill()


def trained(folder: Path, url: str) -> RunFolder:
    """Two steps, the judge beside a pattern."""
    rows = [json.dumps({"q": f"{i}+{i}"}) for i in range(8)]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "r.yaml").write_text(f"""\
model: builtin:tiny
data: {{train: rows.jsonl, prompt: "{{q}}"}}
verify:
  quality: {{kind: judge, base_url: "{url}", model: m, retries: 0, timeout_s: 5}}
  regex: {{pattern: "[a-m]", weight: 0.1, primary: true}}
sample: {{prompts: 4, group: 4, max_tokens: 12}}
train: {{steps: 2, lr: 1e-3}}
stop: {{verifier_errors: 1}}
monitor: {{kl: off}}
run: {{dir: {folder}/runs, name: judged}}
""")
    job = Job(load(str(folder / "r.yaml"), []), label="r", base=folder, display=make_display("none"))
    job.run()
    return job.running.folder


def test_a_judge_trains_and_every_sample_has_its_verdict(tmp_path: Path, url: str) -> None:
    run = trained(tmp_path, url)
    records = [record for step in (1, 2) for record in run.samples(step)]
    assert len(records) == 32
    assert all(record.verdicts["quality"].reason == "learned_proxy" for record in records)
    assert all(record.reward is not None for record in records)
    with urllib.request.urlopen(f"{url}/calls") as reply:
        calls = int(json.load(reply)["calls"])
    # equal completions of one prompt are asked for once
    assert 0 < calls <= 32
    steps = [m for m in run.metrics() if "loss" in m]
    assert [m["step"] for m in steps] == [1, 2]
    assert run.manifest()["status"] == "done"
    assert "quality" in str(run.manifest()["warnings"])
