"""What `grpo eval` measured, `grpo verify` reads back to the same numbers; a LoRA checkpoint evaluates and merges."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.loop import program
from tests.loop.recipes import small_recipe

LORA = ["--set", "model={path: builtin:tiny, lora: {r: 2}}", "--set", "warmup=null"]


def grpo(folder: Path, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = program.grpo(folder, *args)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    recipe = small_recipe(folder, steps=2)
    for name, more in (("full", []), ("lora", LORA)):
        grpo(folder, "train", str(recipe), "--set", f"run.dir={folder}", "--set", f"run.name={name}", *more)
    return folder


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_verify_reads_eval_samples_back_to_the_same_numbers(trained: Path) -> None:
    measured = summary(grpo(trained, "eval", str(trained / "full"), "--json"))
    samples = trained / "full/checkpoints/step-000002/eval.jsonl"
    recipe = str(trained / "full/recipe.yaml")
    again = summary(grpo(trained, "verify", str(samples), "--recipe", recipe, "--json", "--out", os.devnull))
    assert again["n"] == measured["n"] * 2
    assert again["groups"]["n"] == measured["n"]
    assert again["groups"]["pass@k"]["1"] == pytest.approx(measured["pass@1"])
    assert again["groups"]["pass@k"]["2"] == pytest.approx(measured["pass@k"]["2"]["mean"])


def test_a_checkpoint_against_itself_does_not_differ(trained: Path) -> None:
    run = str(trained / "full")
    found = summary(grpo(trained, "eval", run, "--against", run, "--json"))
    assert found["compare"]["difference"]["mean"] == 0.0
    greedy = found["compare"]["greedy"]
    assert {key: greedy[key] for key in ("only_this", "only_other", "p")} == {"only_this": 0, "only_other": 0, "p": 1.0}


def test_samples_of_an_earlier_evaluation_are_kept_beside(trained: Path) -> None:
    folder = trained / "full/checkpoints/step-000002"
    grpo(trained, "eval", str(trained / "full"))
    first, count = (folder / "eval.jsonl").read_text(), len(list(folder.glob("eval-*.jsonl")))
    again = grpo(trained, "eval", str(trained / "full"), "--seed", "1")
    kept = folder / f"eval-{count + 1}.jsonl"
    assert str(kept) in again.stderr
    assert kept.read_text() == first != (folder / "eval.jsonl").read_text()


def test_eval_misses_a_bar_with_exit_code_1(trained: Path) -> None:
    grpo(trained, "eval", str(trained / "full"), "--fail-under", "1.01", code=1)


def test_a_lora_checkpoint_evaluates_and_exports_merged(trained: Path) -> None:
    measured = summary(grpo(trained, "eval", str(trained / "lora"), "--json"))
    out = trained / "merged"
    grpo(trained, "export", str(trained / "lora"), str(out))
    assert not (out / "adapter_config.json").exists()
    recipe = str(trained / "lora/recipe.yaml")
    merged = summary(grpo(trained, "eval", str(out), "--recipe", recipe, "--json", "--set", "model.lora=null"))
    assert merged["greedy"] == measured["greedy"]
    names = load_file(out / "model.safetensors").keys()
    assert not [name for name in names if "lora" in name]
    assert all(torch.isfinite(value).all() for value in load_file(out / "model.safetensors").values())
