"""Runs, checkpoints and models with odd files in them through every command that opens a folder: a sentence or a result, no
traceback, and nothing that goes on for more than 10 s. `FOLDER_FUZZ` sets how many oddities are tried, `FOLDER_SEED` which."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType

import pytest

from grpo_cli.app import app
from grpo_cli.display.choose import make_display
from grpo_cli.errors import UserError
from grpo_cli.jobs.train.job import Job
from tests.builders.chat_models import make_model
from tests.builders.odd_files import odd_places
from tests.builders.workplaces import tiny_recipe

SEED = int(os.environ.get("FOLDER_SEED", "1"))
TRIES = int(os.environ.get("FOLDER_FUZZ", "24"))
MOST_S = 10
LAST = "runs/odd/checkpoints/step-000002"
IN_A_MODEL = ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.json")
FILES = [
    *(f"runs/odd/{name}" for name in ("run.json", "recipe.yaml", "metrics.jsonl", "samples/step-000002.jsonl")),
    *(f"{LAST}/{name}" for name in ("manifest.json", "grpo.json", "recipe.yaml", "model.safetensors", *IN_A_MODEL)),
    *(f"model/{name}" for name in (*IN_A_MODEL, "model.safetensors")),
]
FEW = ["--set", "eval.samples=1", "--set", "eval.k=[1]"]
LIGHT = [
    *(["runs"], ["runs", "show", "odd"], ["runs", "compare", "good", "odd"], ["watch", "odd", "--once"]),
    *(
        ["report", "odd"],
        ["doctor", "odd"],
        ["pairs", "odd"],
        ["verify", "rows.jsonl", "--recipe", f"{LAST}/recipe.yaml", "--json"],
    ),
    *(["explain", "runs/odd/recipe.yaml"], ["init", "made", "--from", "runs/odd/recipe.yaml", "--force"]),
    *(["audit", "verifier", "--recipe", "runs/odd/recipe.yaml", "--rows", "2"], ["runs", "remove", "odd"]),
]
HEAVY = {
    "runs": [
        ["train", "--resume", "runs/odd", "--display", "none"],
        ["eval", "odd", "--display", "none", *FEW],
        ["export", "odd", "exported", "--force"],
        ["chat", "odd", "--row", "0", "--samples", "1"],
        ["eval", LAST, "--display", "none", *FEW],
        ["check", "runs/odd/recipe.yaml"],
        ["probe", "runs/odd/recipe.yaml", "-n", "2", "--samples", "2", "--display", "none"],
        ["train", "recipe.yaml", "--set", f"model.path={LAST}", "--dry-run"],
        ["audit", "data", "runs/odd/recipe.yaml", "--rows", "2", "--display", "none"],
        ["check", "recipe.yaml", "--set", f"model.path={LAST}"],
    ],
    "model": [
        ["check", "recipe.yaml"],
        ["train", "recipe.yaml", "--dry-run"],
        ["train", "recipe.yaml", "--display", "none", "--set", "run.name=new"],
        ["eval", "model", "--recipe", "recipe.yaml", "--display", "none", *FEW],
        ["chat", "model", "--recipe", "recipe.yaml", "--row", "0", "--samples", "1"],
        ["probe", "recipe.yaml", "-n", "2", "--samples", "2", "--display", "none"],
        ["export", "model", "exported", "--force"],
        ["check", "recipe.yaml", "--full"],
    ],
}


class TooLong(BaseException):
    """No handler of the program's own catches it."""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


def outcome(words: Sequence[str]) -> str:
    """What is wrong with how a command ended; empty where it ended as it may."""
    out, began = io.StringIO(), time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(MOST_S + 5)  # on a machine with others' work; seconds of this process are counted below
    cpu = time.process_time()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            app(list(words), standalone_mode=False)
    except (UserError, SystemExit):
        pass
    except TooLong:
        return "does not end"
    except Exception as err:  # noqa: BLE001 - all are listed together
        if type(err).__module__.startswith(("click", "typer")):
            return f"wrong command line: {err}"
        ours = [one for one in traceback.extract_tb(err.__traceback__) if "grpo_" in one.filename][-1]
        return f"{type(err).__name__}: {str(err)[:100]} at {Path(ours.filename).name}:{ours.lineno}"
    finally:
        signal.alarm(0)
    took = time.process_time() - cpu
    return f"took {took:.1f} CPU s of {time.perf_counter() - began:.1f}" if took > MOST_S else ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a recipe and a run of two steps."""
    folder = tmp_path_factory.mktemp("whole")
    make_model(folder / "model")
    rows = [{"question": f"What is {i}?", "answer": str(i), "completion": "m"} for i in range(6)]
    recipe = tiny_recipe(
        folder,
        rows,
        rows[:2],
        model={"path": "model"},
        verify={"regex": {"pattern": "[a-m]"}},
        eval={"every": 1, "k": [1], "samples": 1},
        run={"dir": "runs", "name": "good", "save_every": 1, "report": False},
    )
    with contextlib.chdir(folder):
        Job(recipe, label="good", base=folder, display=make_display("none")).run()
        (folder / "recipe.yaml").write_text((folder / "runs/good/recipe.yaml").read_text().replace("good", "other"))
        shutil.copyfile(folder / "train.jsonl", folder / "rows.jsonl")
    return folder


def _commands(number: int, kind: str) -> Iterator[list[str]]:
    for at in range(4):
        yield LIGHT[(4 * number + at) % len(LIGHT)]
    for at in range(2):
        yield HEAVY[kind][(2 * number + at) % len(HEAVY[kind])]


def walk(whole: Path, here: Path, tries: int, seed: int) -> list[str]:
    """What went wrong in so many oddities, a line each."""
    failed = []
    for number, one in enumerate(islice(odd_places(whole_as_odd(whole), FILES, seed), tries)):
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(whole, here)
        if not one.file.startswith("model"):
            manifest = json.loads((here / "runs/odd/run.json").read_text())
            (here / "runs/odd/run.json").write_text(json.dumps(manifest | {"status": "interrupted"}))
        one.put(here)
        with contextlib.chdir(here):
            for words in _commands(number, one.file.split("/")[0]):
                if wrong := outcome(words):
                    failed.append(f"{' '.join(words)[:60]} | {one.file} {one.how[:60]} | {wrong}")
    return failed


def whole_as_odd(whole: Path) -> Path:
    if not (whole / "runs/odd").exists():
        shutil.copytree(whole / "runs/good", whole / "runs/odd")
    return whole


def test_odd_folders_end_in_a_sentence_in_every_command(whole: Path, tmp_path: Path) -> None:
    failed = walk(whole, tmp_path / "here", TRIES, SEED)
    assert not failed, f"{len(failed)} of {TRIES}:\n" + "\n".join(failed)
