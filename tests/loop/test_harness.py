"""Training through the endpoint: a program that nobody of us wrote for it plays the episodes, of which some crash, hang or are rewritten."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.loop.test_resume import finish, kill_after, train, what

RECIPE = """\
grpo: 1
model: builtin:tiny
data:
  train: {from: tasks:addition3, limit: 20}
  eval: {from: tasks:addition3, limit: 4}
  prompt: "{question}"
  answer: "{answer}"
environment:
  harness: {command: python agent.py, pass: [question, answer]SCORE}
  endpoint: {gather_ms: 60000, episode_s: 5}
  max_turns: 3
  turn_tokens: 8
verify: VERIFY
sample: {prompts: 4, group: 4, max_tokens: 40}
train: {steps: STEPS, lr: 1e-3, seed: 3, loss: LOSS, dead_groups: keep}
stop: {verifier_errors: 1}
eval: {samples: 2, k: [1, 2], greedy: false}
run: {save_every: 2, keep: 3}
"""
AGENT = '''\
"""An agent: it asks, asks again with what it was told, and prints its last answer."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

given = json.load(sys.stdin)
secrets = [name for name in os.environ if name.endswith(("_KEY", "_TOKEN")) and "OPENAI" not in name and "ANTHROPIC" not in name]
assert set(given) == {"question", "answer"} and not secrets, (given, secrets)


def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages, "temperature": 0.1}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]


slip = SLIP
messages = [{"role": "user", "content": given["question"]}]
first = ask(messages)
if slip == "crash":
    sys.exit("no such tool")
if slip == "hang":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(60)
if slip == "rewrite":
    first["content"] = "(left out)"
second = ask([*messages, first, {"role": "user", "content": "+1"}])
open("notes.txt", "w").write(second["content"])
print(second["content"] or "nothing")
print()
'''
SCORE = """\
def score(row, folder, transcript):
    said = open(folder + "/notes.txt").read()
    assert transcript.startswith("[assistant]") and "[printed]" in transcript
    return None if "7" in said else len(set(said)) / 10
"""
KINDS = ("crash", "hang", "", "", "", "rewrite", "")
SLIPS = f"{KINDS}[sum(map(ord, given['question'])) % 7]"
OFTEN = '"rewrite" if sum(map(ord, given["question"])) % 2 else ""'


def write(folder: Path, steps: int, slip: str = '""', *, score: bool = True, loss: str = "grpo") -> Path:
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT.replace("SLIP", slip))
    (folder / "score.py").write_text(SCORE)
    text = RECIPE.replace("STEPS", str(steps)).replace("LOSS", loss)
    text = text.replace("SCORE", ", score: 'score.py:score'" if score else "")
    (folder / "recipe.yaml").write_text(
        text.replace("VERIFY", "{environment: {right_at: 0.6}}" if score else "{numeric: {}}")
    )
    return folder / "recipe.yaml"


def samples(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(run.glob("samples/*.jsonl")) for line in file.open()]


def test_a_program_trains_and_is_evaluated_and_its_faults_have_no_verdict(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_not_for_harnesses")
    recipe = write(tmp_path / "r", 2, SLIPS)
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=a", "--set", "environment.endpoint.episode_s=3"))
    run = tmp_path / "runs" / "a"
    found = samples(run)
    assert len(found) == 32
    kinds = set()
    for line in found:
        slip = KINDS[sum(map(ord, line["question"])) % 7]
        verdict = line["verdicts"]["environment"]
        kinds.add(slip)
        if slip in ("crash", "hang"):
            assert (
                line["reward"] is None and verdict["reason"] == f"harness_{'failed' if slip == 'crash' else 'timeout'}"
            )
            assert ("no such tool" in verdict["detail"]) == (slip == "crash")
            assert len(line["turns"]) == 1
            continue
        assert len(line["turns"]) == 2
        whys = [row["why"] for row in line["rows"]]
        assert whys == (["", "history"] if slip == "rewrite" else [""]), (slip, whys)
        assert line["tokens"] == sum(turn["tokens"] for turn in line["turns"])
        if "7" in line["turns"][-1]["text"]:
            assert line["reward"] is None and verdict["reason"] == "no_score"
        else:
            assert line["reward"] == pytest.approx(len(set(line["turns"][-1]["text"])) / 10)
    assert kinds >= {"crash", "rewrite", ""}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    steps = [line for line in metrics if "endpoint/requests" in line]
    assert len(steps) == 2
    lines = [line["endpoint"] for line in found]
    for name, key in (
        ("requests", "requests"),
        ("rows", "rows"),
        ("fork/history", "history"),
        ("overridden", "overridden"),
    ):
        mean = sum(one.get(key, 0) for one in lines) / len(lines)
        assert sum(line[f"endpoint/{name}"] for line in steps) / 2 == pytest.approx(mean)
    assert any("eval/endpoint/requests" in line for line in metrics)
    log = (run / "train.log").read_text()
    assert log.count("the harness sets `temperature`") == 1
    assert not list(Path("/tmp").glob("grpo-episodes-*/*/notes.txt"))


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_rewritten_histories_train_to_finite_weights_and_the_same_again(tmp_path: Path, loss: str) -> None:
    recipe = write(tmp_path / "r", 3, OFTEN, loss=loss)
    for name in ("a", "b"):
        finish(train(recipe, tmp_path / "runs", "--set", f"run.name={name}"))
    found = what(tmp_path / "runs" / "a")
    assert found == what(tmp_path / "runs" / "b")
    assert any(line.get("grad_norm", 0) > 0 for line in found["metrics"])
    assert {len(line["rows"]) for line in samples(tmp_path / "runs" / "a")} == {1, 2}


def test_what_is_printed_is_judged_where_nothing_scores(tmp_path: Path) -> None:
    recipe = write(tmp_path / "r", 1, score=False)
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=a"))
    for line in samples(tmp_path / "runs" / "a"):
        assert (
            line["completion"] == (line["turns"][-1]["text"].strip().splitlines() or ["nothing"])[-1].strip()
            or "nothing"
        )
        assert line["verdicts"]["numeric"]["outcome"] != "error"


def test_a_run_killed_in_the_middle_of_its_episodes_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    recipe = write(tmp_path / "r", 4, OFTEN)
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=whole"))
    killed = train(recipe, tmp_path / "runs", "--set", "run.name=killed")
    time.sleep(0.1)
    kill_after(killed, tmp_path / "runs" / "killed" / "checkpoints" / "step-000002")
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=killed", "--resume"))
    assert what(tmp_path / "runs" / "killed") == what(tmp_path / "runs" / "whole")
    assert os.environ.get("OPENAI_BASE_URL") is None


TASKSET = """\
grpo: 1
model: builtin:tiny
data: {train: {from: "verifiers:my_taskset", options: {size: 20}}, prompt: "{prompt}"}
environment:
  verifiers: my_taskset
  interpreter: PYTHON
  endpoint: {gather_ms: 60000}
  max_turns: 3
  turn_tokens: 8
sample: {prompts: 2, group: 4, max_tokens: 60}
train: {steps: 4, lr: 1e-3, seed: 3}
run: {save_every: 2, keep: 3}
"""


@pytest.mark.skipif("GRPO_TASKSET_PYTHON" not in os.environ, reason="GRPO_TASKSET_PYTHON is not set")
def test_a_killed_run_on_a_taskset_of_verifiers_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(Path("tests/environments/tasksets"), folder)
    recipe = folder / "recipe.yaml"
    recipe.write_text(TASKSET.replace("PYTHON", os.environ["GRPO_TASKSET_PYTHON"]))
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=whole"))
    killed = train(recipe, tmp_path / "runs", "--set", "run.name=killed")
    kill_after(killed, tmp_path / "runs" / "killed" / "checkpoints" / "step-000002")
    finish(train(recipe, tmp_path / "runs", "--set", "run.name=killed", "--resume"))
    found = what(tmp_path / "runs" / "killed")
    assert found == what(tmp_path / "runs" / "whole")
    # the task pays by chance too, so that equal rewards mean equal chance
    assert any(line.get("grad_norm", 0) > 0 for line in found["metrics"])
