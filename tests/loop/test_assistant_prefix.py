"""A thinking that the chat template opens is known to training, evaluation and `grpo verify` alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from tests.builders.chat_models import make_model

ROOT = Path(__file__).resolve().parents[2]
ROWS = "".join(json.dumps({"question": f"{i}+3?", "answer": str(i + 3)}) + "\n" for i in range(4))


@pytest.mark.parametrize(("family", "assistant_prefix"), [("deepseek_r1", "<think>\n"), ("qwen3", None)])
def test_a_cut_sample_is_read_as_a_thinking_where_the_prompt_began_one(
    family: str, assistant_prefix: str | None, tmp_path: Path
) -> None:
    make_model(tmp_path / "tiny", family)
    for name in ("train", "eval"):
        (tmp_path / f"{name}.jsonl").write_text(ROWS)
    recipe = Recipe.model_validate(
        {
            "model": str(tmp_path / "tiny"),
            "data": {"train": "train.jsonl", "eval": "eval.jsonl", "prompt": "{question}"},
            "verify": {"math": {}},
            "sample": {"prompts": 2, "group": 2, "max_tokens": 4},
            "train": {"steps": 1},
            "eval": {"samples": 1, "k": [1], "greedy": False},
            "run": {"dir": str(tmp_path / "runs"), "name": "r"},
        }
    )
    Job(recipe, label="r", base=tmp_path, display=make_display("none")).run()
    run = tmp_path / "runs" / "r"
    lines = [json.loads(line) for file in run.glob("samples/*.jsonl") for line in file.open()]
    lines += [json.loads(line) for file in run.glob("eval/*.jsonl") for line in file.open()]
    assert len(lines) >= 4 + 4
    assert {line.get("begun") for line in lines} == {assistant_prefix}
    cut = [line for line in lines if "</think>" not in line["completion"]]
    reasons = {line["verdicts"]["math"]["reason"] for line in cut}
    assert (reasons == {"in_thinking"}) is (assistant_prefix is not None)
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}"}
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "verify", "samples.jsonl", "--math", "--out", "again.jsonl"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").open()]
    assert [line["verdicts"]["math"]["reason"] for line in again] == [
        line["verdicts"]["math"]["reason"] for line in lines
    ]
