"""A run with `run.track: [mlflow]` and the real package: what its store holds is what `metrics.jsonl` does. `make test-mlflow`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.jobs.train.trackers import MlflowNames

ROOT = Path(__file__).resolve().parents[2]
SETS = ["train.steps=2", "sample.prompts=4", "sample.group=4", "warmup=null", "run.dir=runs", "run.report=false"]
SETS += ["monitor.kl=off", "eval={samples: 1, k: [1], limit: 4}", "run.track=[mlflow]"]


def test_metrics_parameters_and_the_end_are_in_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "OMP_NUM_THREADS": "1"}
    sets = [word for one in SETS for word in ("--set", one)]
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "train", "quickstart", "--json", "--display", "none", *sets],
        cwd=tmp_path, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    json.loads(done.stdout)  # mlflow's own words are not among ours
    (folder,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient((folder / "mlruns").resolve().as_uri())
    runs = [run for one in client.search_experiments() for run in client.search_runs([one.experiment_id])]
    assert len(runs) == 1 and runs[0].info.status == "FINISHED"
    assert runs[0].data.params

    written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {record["step"] for record in written} == {0, 1, 2}
    names, seen, lost = MlflowNames(), 0, []
    for record in written:
        numbers = {
            name: value
            for name, value in record.items()
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
        }
        sent = names.of(numbers)
        for name, value in numbers.items():
            key = sent[name].replace("@", "_")  # what transformers makes of a sign that mlflow refuses
            points = [(m.step, m.value) for m in client.get_metric_history(runs[0].info.run_id, key)]
            lost += [] if (record["step"], pytest.approx(value)) in points else [key]
            seen += 1
    assert not lost
    assert seen > 100
