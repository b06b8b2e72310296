"""A mixed data set trains with the verifier that each row names, and counts each verifier's own samples."""

from __future__ import annotations

import json
from pathlib import Path

from tests.loop.program import grpo

RECIPE = """\
grpo: 1
model: builtin:tiny
data:
  train: rows.jsonl
  prompt: "{question}"
verify:
  math: {}
  choice: {}
  json: {}
  half: {kind: regex, pattern: "[a-m]"}
combine: {by: kind}
shaping: {overlong: {weight: 0.5, cache: 0.5}}
sample: {prompts: 4, group: 4, max_tokens: 8}
train: {steps: 3, lr: 1e-3, dead_groups: keep}
"""
ROWS = [
    {"question": "2+2?", "kind": "math", "answer": "4"},
    {"question": "A or B?", "kind": "choice", "answer": "A", "choices": ["x", "y"]},
    {"question": "Give a.", "kind": "json", "answer": {"a": 1}},
    {"question": "Say.", "kind": "half", "answer": None},
]


def test_each_row_is_judged_by_the_verifier_it_names(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS * 4))
    (tmp_path / "mixed.yaml").write_text(RECIPE)
    got = grpo(tmp_path, "train", "mixed.yaml", "--json", "--display", "none", cwd=tmp_path)
    assert got.returncode == 0, got.stderr
    run = tmp_path / json.loads(got.stdout)["run"]
    lines = [json.loads(line) for file in sorted((run / "samples").iterdir()) for line in file.read_text().splitlines()]
    assert len(lines) == 3 * 16
    assert all(list(line["verdicts"]) == [line["kind"]] for line in lines)
    for line in lines:
        score, tokens = line["verdicts"][line["kind"]]["score"], line["tokens"]
        assert abs(line["reward"] - (score - 0.5 * max(0, tokens - 4) / 4)) < 1e-9
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kinds = {line["kind"] for line in lines if line["step"] == 1}
    assert all((f"reward/{kind}/mean" in metrics[0]) == (kind in kinds) for kind in ("math", "choice", "json", "half"))
