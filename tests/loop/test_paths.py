"""Relative paths of a recipe count from its folder: from any current folder, and after its run was moved."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_cli.recipe.reading.load import load
from grpo_cli.resilience.resume import changed_keys
from grpo_cli.run.folder import RunFolder
from tests.loop.program import grpo
from tests.loop.recipes import ROOT

RECIPE = """\
grpo: 1
model: builtin:tiny
data:
  train: data/rows.jsonl
  eval: {from: data/held-*.jsonl}
  prompt: "{question}"
  answer: "{answer}"
verify:
  python: {function: reward.py:good}
sample: {prompts: 2, group: 4, max_tokens: 8, temperature: 1.0}
train: {steps: 2, lr: 1e-3, seed: 3}
eval: {every: 2, samples: 1}
run: {save_every: 1, keep: 3}
warmup:
  - {demonstration: "{answer}", steps: 2, lr: 1e-3, batch: 4}
monitor: {canary: {from: data/worked.jsonl, every: 2}}
"""
REWARD = "from helper import parity\n\ndef good(completion, **kw):\n    return parity(completion)\n"
HELPER = "def parity(text):\n    return float(len(text) % 2)\n"


def write_project(folder: Path) -> Path:
    """A recipe that names rows, a pattern, demonstrations and a reward, each beside it."""
    (folder / "data").mkdir(parents=True)
    (folder / "small.yaml").write_text(RECIPE)
    (folder / "reward.py").write_text(REWARD)
    (folder / "helper.py").write_text(HELPER)
    for name, first, count in (("rows", 0, 20), ("held-1", 30, 4), ("worked", 50, 8)):
        rows = [{"question": f"{i}+1", "answer": str(i + 1)} for i in range(first, first + count)]
        (folder / f"data/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the run `runs/x`, trained for one step from a folder that is not the recipe's."""
    top = tmp_path_factory.mktemp("paths")
    project = write_project(top / "proj")
    sets = ["--set", "run.dir=proj/runs", "--set", "run.name=x", "--set", "run.deadline=0s"]
    done = grpo(top, "train", "proj/small.yaml", *sets, cwd=top)
    assert done.returncode == 143, done.stderr
    return project


def stay(project: Path) -> Path:
    return project / "runs/x"


def move_run(project: Path) -> Path:
    target = project.parent / "elsewhere/y"
    target.parent.mkdir()
    return Path(shutil.move(project / "runs/x", target))


def move_all(project: Path) -> Path:
    return Path(shutil.move(project, project.parent / "else where")) / "runs/x"


MOVES = [stay, move_run, move_all]
COMMANDS = [
    ["eval", "{run}"],
    ["eval", "{run}/checkpoints/step-000001"],
    ["chat", "{run}", "--row", "1"],
    ["report", "{run}"],
    ["doctor", "{run}"],
    ["watch", "{run}"],
    ["runs", "show", "{run}"],
    ["export", "{run}", "{run}-out"],
    ["verify", "{run}/samples/step-000001.jsonl"],
    ["verify", "{run}/samples/step-000001.jsonl", "--recipe", "{run}/recipe.yaml"],
    ["check", "{run}/recipe.yaml"],
    ["eval", "{run}", "--recipe", "{run}/recipe.yaml"],
    ["train", "--resume", "{run}", "--dry-run"],
    ["train", "--resume", "{run}"],
]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words).replace("/", "_"))
def test_a_run_opens_from_another_folder_and_after_a_move(
    command: list[str], move: Callable[[Path], Path], trained: Path, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(trained, tmp_path / "proj", copy_function=os.link))
    lie_at(project, trained)
    run = move(project)
    (tmp_path / "cwd").mkdir()
    done = grpo(tmp_path, *(word.format(run=run) for word in command), cwd=tmp_path / "cwd")
    assert "Traceback" not in done.stderr
    # a run with a deadline ends by it; 1 is a bar that was missed
    assert done.returncode in ((143,) if command[-1] == "{run}" and command[0] == "train" else (0, 1)), done.stderr
    assert os.listdir(tmp_path / "cwd") == []


def lie_at(project: Path, was: Path) -> None:
    """Let a copied run have begun in the copied project, so that nothing of the first one is found."""
    file = project / "runs/x/run.json"
    text = file.read_text().replace(str(was), str(project))
    file.unlink()
    file.write_text(text)


def test_what_the_run_keeps_names_no_folder_of_this_machine(trained: Path) -> None:
    run = trained / "runs/x"
    kept = [run / "recipe.yaml", *(run / "checkpoints").rglob("*")]
    holding = [file for file in kept if file.is_file() and str(trained.parent).encode() in file.read_bytes()]
    assert holding == []


def test_a_missing_file_after_a_move_is_named_as_written_and_as_looked_for(trained: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(trained, tmp_path / "proj"))
    lie_at(project, trained)
    run = move_run(project)
    shutil.rmtree(project)
    done = grpo(tmp_path, "train", "--resume", str(run), cwd=tmp_path)
    assert done.returncode in (2, 3, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert "`data/rows.jsonl`" in done.stderr or "`reward.py" in done.stderr
    assert f"{tmp_path}/data" in done.stderr or f"`{tmp_path}" in done.stderr


def test_set_names_a_file_beside_the_recipe_or_here_and_resumes_from_elsewhere(tmp_path: Path) -> None:
    project = write_project(tmp_path / "proj")
    here = tmp_path / "here"
    here.mkdir()
    shutil.move(project / "data/rows.jsonl", here / "mine.jsonl")
    shutil.move(project / "helper.py", here / "helper.py")
    (here / "own.py").write_text(REWARD)
    sets = ["data.train=mine.jsonl", "verify.python.function=own.py:good", "run.name=x", "run.deadline=0s"]
    words = [word for one in sets for word in ("--set", one)]
    begun = grpo(tmp_path, "train", "../proj/small.yaml", *words, cwd=here)
    assert begun.returncode == 143, begun.stderr
    kept = (here / "runs/x/recipe.yaml").read_text()
    assert "from: ../here/mine.jsonl" in kept and "- ../here" in kept
    on = grpo(tmp_path, "train", "--resume", str(here / "runs/x"), cwd=ROOT)
    assert on.returncode == 143, on.stderr
    evaluated = grpo(tmp_path, "eval", str(here / "runs/x"), cwd=ROOT)
    assert evaluated.returncode == 0, evaluated.stderr


def test_a_model_beside_the_recipe_is_found_from_elsewhere_and_goes_with_the_run(trained: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(trained, tmp_path / "proj"))
    shutil.copytree(project / "runs/x/checkpoints/step-000001", project / "weights")
    recipe = project / "small.yaml"
    recipe.write_text(recipe.read_text().replace("builtin:tiny", "weights"))
    sets = ["--set", "run.dir=out", "--set", "run.name=y", "--set", "run.deadline=0s"]
    begun = grpo(tmp_path, "train", "proj/small.yaml", *sets, cwd=tmp_path)
    assert begun.returncode == 143, begun.stderr
    assert "path: weights\n" in (tmp_path / "out/y/recipe.yaml").read_text()
    on = grpo(tmp_path, "train", "--resume", str(tmp_path / "out/y"), cwd=ROOT)
    assert on.returncode == 143, on.stderr


def test_an_extended_recipe_names_files_from_its_own_folder(tmp_path: Path) -> None:
    write_project(tmp_path / "proj")
    top = tmp_path / "top"
    top.mkdir()
    (top / "top.yaml").write_text("extends: ../proj/small.yaml\ntrain: {steps: 1}\n")
    done = grpo(tmp_path, "train", str(top / "top.yaml"), "--set", f"run.dir={tmp_path}/runs", cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_what_a_run_keeps_begins_paths_of_its_authors_home_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = tmp_path / "users/ann", tmp_path / "users/bob"
    project = write_project(ann / "proj")
    monkeypatch.setenv("HOME", str(ann))
    sets = [
        f"data.train={project}/data/rows.jsonl",
        f"verify.python.function={project}/reward.py:good",
        f"run.dir={ann}/runs",
        "run.name=x",
        "run.webhook=http://127.0.0.1:9/s3cret",
    ]
    words = [word for one in sets for word in ("--set", one)]
    done = grpo(tmp_path, "train", str(project / "small.yaml"), *words, cwd=ann)
    assert done.returncode == 0, done.stderr
    run = ann / "runs/x"
    shared = [run / "report.html", run / "run.json", run / "train.log", *(run / "checkpoints").rglob("*")]
    held = {file.name: file.read_bytes() for file in shared if file.is_file()}
    assert [name for name, raw in held.items() if str(ann).encode() in raw] == []
    assert [name for name in ("report.html", "run.json", "train.log") if b"s3cret" in held[name]] == []
    exported = grpo(tmp_path, "export", str(run), str(tmp_path / "out"), cwd=tmp_path)
    assert exported.returncode == 0 and "s3cret" not in (tmp_path / "out/recipe.yaml").read_text(), exported.stderr
    said = load(project / "small.yaml", sets)
    assert changed_keys(RunFolder.open(run), said) == []
    kept = (run / "recipe.yaml").read_text()
    assert "~/proj/reward.py:good" in kept
    (run / "recipe.yaml").write_text(kept.replace("~/", f"{ann}/"))  # as an older version wrote it
    assert changed_keys(RunFolder.open(run), said) == []
    (run / "recipe.yaml").write_text(kept)
    shutil.move(ann, bob)
    monkeypatch.setenv("HOME", str(bob))
    for command in (["eval", str(bob / "runs/x")], ["train", "--resume", str(bob / "runs/x"), "--dry-run"]):
        moved = grpo(tmp_path, *command, cwd=tmp_path)
        assert moved.returncode in (0, 1), moved.stderr
