"""`grpo audit verifier` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'verifiers'}", "NO_COLOR": "1"}
RECIPE = """grpo: 1
model: x
data: {train: rows.jsonl, prompt: "{question}"}
verify: {last: {kind: regex, pattern: '(?P<answer>[0-9]+)', match: answer_group, thinking: keep}}
sample: {prompts: 1, group: 2}
train: {steps: 1, lr: 1e-6}
"""


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_cli", "audit", "verifier", *args]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, cwd=cwd, timeout=60, check=False)


def test_a_kind_passes_its_audit_and_says_how_many_were_tried() -> None:
    got = run("numeric", "--fail-over", "0")
    assert got.returncode == 0 and "paid for an attack      0 of " in got.stdout


def test_the_object_holds_rates_with_intervals() -> None:
    found = json.loads(run("exact", "set", "--json").stdout)
    assert found["schema"] == 1 and list(found["verifiers"]) == ["exact", "set"]
    assert found["verifiers"]["exact"]["false_positives"]["ci"][0] == 0.0


def test_a_recipe_with_a_hole_fails_its_bar(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    rows = [{"question": "2+2?", "answer": "4"}, {"question": "2+3?", "answer": "5"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    got = run("--recipe", "r.yaml", "--gold", "It is {answer}", "--fail-over", "0.05", cwd=tmp_path)
    assert got.returncode == 1 and "only in the thinking" in got.stdout


def test_mistakes_are_named(tmp_path: Path) -> None:
    for args, says in (
        ([], "name kinds or a recipe"),
        (["mth"], "no built-in rows for `mth`"),
        (["code"], "with `--recipe FILE`"),
        (["--recipe", "none.yaml"], "no recipe `none.yaml`"),
    ):
        got = run(*args, cwd=tmp_path)
        assert got.returncode == 2 and says in got.stderr and "Traceback" not in got.stderr
