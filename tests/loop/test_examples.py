"""Every file of `examples/` is run, short, and does what its first line says."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.loop.program import grpo
from tests.loop.recipes import ROOT, small_recipe
from tests.loop.test_plain_trl import tiny_model

EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their types up
    spec.loader.exec_module(module)
    return module


def test_every_example_has_its_row_in_the_table() -> None:
    there = {file.name for file in EXAMPLES.iterdir() if file.is_file()} - {"README.md"}
    named = set(re.findall(r"\]\(([\w.]+)\)", (EXAMPLES / "README.md").read_text()))
    assert named == there


def test_plain_trl_trains_with_our_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = tiny_model()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": p, "answer": "4"}) + "\n" for p in ("say it", "is it")))
    asked = ["plain_trl.py", str(tmp_path / "model"), str(rows), "--steps", "2", "--tokens", "4"]
    monkeypatch.setattr(sys, "argv", [*asked, "--out", str(tmp_path / "out")])
    load("plain_trl").main()
    rewards = [float(one) for one in re.findall(r"^step \d  math (\d\.\d+)$", capsys.readouterr().out, re.M)]
    assert len(rewards) == 2 and all(0 <= one <= 1 for one in rewards)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_the_minimal_loop_prints_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["minimal_grpo.py", str(small_recipe(tmp_path, steps=2))])
    load("minimal_grpo").main()
    line = re.compile(r"^step (\d)  right \d+ of 16  groups with signal \d of 4", re.M)
    assert line.findall(capsys.readouterr().out) == ["1", "2"]


def test_the_minimal_loop_takes_the_recipe_that_its_row_names() -> None:
    said = (EXAMPLES / "README.md").read_text()
    (typed,) = re.findall(r"`python examples/minimal_grpo\.py ([^`]+)`", said)
    recipe, *words = shlex.split(typed)
    sets = [word for word in words if word != "--set"]
    assert len(words) == 2 * len(sets)
    page = load("minimal_grpo")
    page.check_simple(page.load(ROOT / recipe, sets))


def played(world: Any, *actions: str) -> list[Any]:
    """What a world answers."""
    world.reset({"answer": "12"}, 0)
    return [world.step(action) for action in actions]


def test_the_world_of_hints_answers_every_kind_of_turn() -> None:
    world = load("hints").Hints()
    assert played(world, "7", "13", "12") == ["more", "less", {"reward": 1.0, "done": True}]
    for text in ("", "twelve", "-12", "²", "1234567890", "12\n13"):
        (said,) = played(world, text)
        assert said == {"observation": "a number", "valid": False}, text
    assert {int(world.demonstrate()) for _ in range(100)} == {11, 12, 13}


def test_the_environment_of_the_examples_trains(tmp_path: Path) -> None:
    keys = ["train.steps=2", "warmup.steps=20", "eval.limit=8", "sample.prompts=4", f"run.dir={tmp_path}", "run.name=r"]
    sets = [part for key in keys for part in ("--set", key)]
    said = grpo(tmp_path, "train", str(EXAMPLES / "hints.yaml"), *sets)
    assert said.returncode == 0, said.stderr
    samples = [json.loads(line) for file in (tmp_path / "r" / "samples").rglob("*.jsonl") for line in file.open()]
    assert max(len(sample["turns"]) for sample in samples) > 1


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the CPU's path, with two steps: each cell as IPython would run it, `!grpo` through the commands of this checkout."""
    cells = json.loads((EXAMPLES / "first_run.ipynb").read_text())["cells"]
    ran: list[str] = []

    def shell(line: str) -> None:
        _, *words = shlex.split(line)
        done = grpo(tmp_path, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        ran.append(words[0])

    names: dict[str, Any] = {"shell": shell}
    with contextlib.chdir(tmp_path):
        for cell in cells:
            if cell["cell_type"] == "code":
                source = re.sub(r"^!(.*)$", r"shell(f'\1')", "".join(cell["source"]), flags=re.M)
                exec(compile(source, cell["id"], "exec"), names)
                names["SHORTER"] = (
                    "--set train.steps=2 --set eval.limit=8 --set warmup.0.steps=20 --set warmup.1.steps=20"
                )
    assert ran == ["doctor", "check", "train", "verify", "report", "export"]
    said = capsys.readouterr().out
    assert "held-out pass@1" in said and '"reason": "unequal"' in said and re.search(r"^gold  : \d", said, re.M)
