"""`grpo explain` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.jobs.explain.subjects import describe_key as describe
from grpo_cli.jobs.explain.subjects import key_names
from grpo_cli.jobs.explain.subjects import render_key as render
from grpo_verifiers import KINDS

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'verifiers'}", "NO_COLOR": "1"}


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_cli", "explain", *args]
    return subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60, check=False)


def test_without_a_name_it_lists_the_names() -> None:
    done = run()
    assert done.returncode == 0
    assert "math" in done.stdout


def test_every_option_of_math_is_documented_with_its_default() -> None:
    described = json.loads(run("math", "--json").stdout)
    assert {option["name"] for option in described["options"]} >= {
        "extract",
        "units",
        "percent",
        "tolerance",
        "order",
        "max_chars",
    }
    assert all(option["about"] for option in described["options"])


def test_the_examples_carry_todays_verdicts() -> None:
    examples = json.loads(run("math", "--json").stdout)["examples"]
    by_shows = {example["shows"]: example for example in examples}
    assert by_shows["equal in value"]["outcome"] == "right"
    assert by_shows["a hedge"] | {"row": None, "completion": None} == {
        "row": None,
        "completion": None,
        "options": {},
        "shows": "a hedge",
        "outcome": "wrong",
        "score": 0.0,
        "reason": "hedge",
    }
    assert all(example["score"] is not None for example in examples)


def test_an_unknown_name_is_a_usage_error_with_a_hint() -> None:
    done = run("maths")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean `math`?" in done.stderr


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_verifier_can_be_explained(kind: str) -> None:
    from grpo_cli.jobs.explain.subjects import describe_verifier, render_verifier

    assert kind in render_verifier(describe_verifier(kind))


def test_every_strategy_of_launch_can_be_explained() -> None:
    from typing import get_args

    from grpo_cli.recipe.sections.course import STRATEGIES, Strategy

    assert set(STRATEGIES) == set(get_args(Strategy))
    said = run("fsdp2").stdout
    assert "its share of parameters" in said
    assert "set with `launch.strategy: fsdp2`" in said


def test_a_key_of_the_recipe_is_explained_by_path_or_by_a_last_part_of_its_own() -> None:
    whole = run("train.prune")
    assert whole.returncode == 0
    assert whole.stdout == run("prune").stdout
    assert "Samples of each group that are trained on." in whole.stdout
    engine = json.loads(run("sample.engine", "--json").stdout)
    assert engine["values"] == "auto | graph | transformers | vllm" and engine["default"] == "auto"
    two = run("lr")
    assert two.returncode == 2 and "`train.lr` or `train.critic.lr` or `warmup.lr`" in two.stderr


def test_every_key_of_the_recipe_says_something_of_itself() -> None:
    listed = json.loads(run("--json").stdout)["keys"]
    assert {"monitor.gold", "gold", "data.train.from", "train.kl.beta"} <= set(listed)
    silent = [
        path
        for path in listed
        if "." in path and not path.startswith(("train.trl.", "sample.vllm.")) and not describe(path)["summary"]
    ]
    assert silent == []


def test_every_key_can_be_shown_also_those_of_trl_that_take_several_types() -> None:
    assert all(render(describe(name)) for name in key_names())
    assert describe("train.trl.delta")["values"] == "number"
    assert describe("train.trl.pad_to_multiple_of")["values"] == "integer | string"
