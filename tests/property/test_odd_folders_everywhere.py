"""Runs, checkpoints and models with odd files in them through every command that opens a folder: a sentence or a result, no
traceback, and nothing that goes on for more than 10 s.

Each command is a fork of this process, with a fresh copy of the folder. `FOLDER_FUZZ` sets how many oddities are tried,
`FOLDER_SEED` which; `FOLDER_ALL=1` sends each through every command in place of six by turns.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

import grpo_cli
from grpo_cli.app import main
from grpo_cli.display.choose import make_display
from grpo_cli.errors import Exit
from grpo_cli.jobs.train.job import Job
from tests.builders.chat_models import make_model
from tests.builders.odd_files import OddFile, odd_places
from tests.builders.workplaces import tiny_recipe

SEED = int(os.environ.get("FOLDER_SEED", "1"))
TRIES = int(os.environ.get("FOLDER_FUZZ", "24"))
ALL = os.environ.get("FOLDER_ALL") == "1"
MOST_S = 10
LAST = "runs/odd/checkpoints/step-000002"
IN_A_MODEL = ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.json")
STATES = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
FILES = [
    *(f"runs/odd/{name}" for name in ("run.json", "recipe.yaml", "metrics.jsonl", "samples/step-000002.jsonl")),
    *(f"{LAST}/{name}" for name in ("manifest.json", "grpo.json", "recipe.yaml", "model.safetensors", *IN_A_MODEL)),
    *(f"model/{name}" for name in (*IN_A_MODEL, "model.safetensors")),
    *("runs/odd/train.log", "runs/odd/eval/step-000002.jsonl", *(f"{LAST}/{name}" for name in STATES)),
]
FEW = ["--set", "eval.samples=1", "--set", "eval.k=[1]", "--display", "none"]
PROBED = ["-n", "2", "--samples", "2", "--display", "none"]
SAMPLED = ["--row", "1", "--samples", "1"]
COMMANDS = {
    "runs": [
        *(["runs"], ["runs", "show", "odd"], ["runs", "compare", "good", "odd"], ["watch", "odd", "--once"]),
        *(["report", "odd"], ["doctor", "odd"], ["pairs", "odd"], ["explain", "runs/odd/recipe.yaml"]),
        ["verify", "rows.jsonl", "--recipe", f"{LAST}/recipe.yaml", "--json"],
        ["verify", "runs/odd/samples/step-000002.jsonl", "--json"],
        *(["init", "made", "--from", "runs/odd/recipe.yaml", "--force"], ["runs", "remove", "odd", "--yes"]),
        ["audit", "verifier", "--recipe", "runs/odd/recipe.yaml", "--rows", "2"],
        *(["runs", "--json", "--sort", "score"], ["runs", "show", "odd", "--json"]),
        ["watch", "odd", "--once", "--display", "json"],
        ["watch", "odd", "--once", "--display", "plain"],
        ["report", "good", "--against", "odd", "--out", "both.html"],
        ["train", "--resume", "runs/odd", "--display", "none"],
        ["eval", "odd", *FEW],
        ["export", "odd", "exported", "--force"],
        ["chat", "odd", *SAMPLED],
        ["eval", LAST, *FEW],
        ["check", "runs/odd/recipe.yaml"],
        ["probe", "runs/odd/recipe.yaml", *PROBED],
        ["train", "recipe.yaml", "--set", f"model.path={LAST}", "--dry-run"],
        ["audit", "data", "runs/odd/recipe.yaml", "--rows", "2", "--display", "none"],
        ["check", "recipe.yaml", "--set", f"model.path={LAST}", "--full"],
        ["train", "recipe.yaml", "--set", f"model.path={LAST}", "--display", "none"],
        ["eval", "good", "--against", "odd", *FEW],
        ["export", LAST, "exported", "--format", "gguf"],
        ["sweep", "runs/odd/recipe.yaml", "--seeds", "2", "--dry-run"],
    ],
    "model": [
        ["check", "recipe.yaml"],
        ["train", "recipe.yaml", "--dry-run"],
        ["train", "recipe.yaml", "--display", "none", "--set", "run.name=new"],
        ["eval", "model", "--recipe", "recipe.yaml", *FEW],
        ["chat", "model", "--recipe", "recipe.yaml", *SAMPLED],
        ["probe", "recipe.yaml", *PROBED],
        ["export", "model", "exported", "--force"],
        ["check", "recipe.yaml", "--full"],
        ["train", "--resume", "runs/odd", "--display", "none"],
        ["audit", "data", "recipe.yaml", "--rows", "2", "--display", "none"],
        ["pairs", "recipe.yaml", "-n", "1", "--samples", "2", "--display", "none"],
        ["export", "model", "exported", "--format", "gguf"],
    ],
}
ENDS = (Exit.OK, Exit.USAGE, Exit.DATA, Exit.SETUP, Exit.TRAINING)
FINDERS = {"doctor", "check", "audit", "--dry-run"}
"""Commands that end with 1 where they found something."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a recipe and two runs of two steps, one of which was interrupted."""
    for module in pkgutil.walk_packages(grpo_cli.__path__, "grpo_cli."):  # what forks need is imported once, here
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    folder = tmp_path_factory.mktemp("whole")
    assert forked(lambda: make_whole(folder), folder, folder / "said", 300)[0] == 0, (folder / "said").read_text()
    return folder


def make_whole(folder: Path) -> int:
    """Fill a folder, in a fork: a process that has trained has threads, which its forks would wait for."""
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
    Job(recipe, label="good", base=folder, display=make_display("none")).run()
    (folder / "recipe.yaml").write_text((folder / "runs/good/recipe.yaml").read_text().replace("good", "other"))
    shutil.copyfile(folder / "train.jsonl", folder / "rows.jsonl")
    shutil.copytree(folder / "runs/good", folder / "runs/odd")
    manifest = json.loads((folder / "runs/odd/run.json").read_text())
    (folder / "runs/odd/run.json").write_text(json.dumps(manifest | {"status": "interrupted"}))
    return 0


def command(words: Sequence[str]) -> int:
    """The exit code of `grpo WORDS`."""
    sys.argv = ["grpo", *words]
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def forked(work: Callable[[], int], folder: Path, output: Path, limit_s: float) -> tuple[int | None, float]:
    """The exit code of some work in a fork, None where it was killed after a time, and how many seconds it took."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            for target, name in enumerate((os.devnull, output, output)):
                os.dup2(
                    os.open(name, os.O_CREAT | (os.O_WRONLY | os.O_APPEND if target else os.O_RDONLY), 0o600), target
                )
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(at, "w" if at else "r", closefd=False) for at in range(3))
            os.chdir(folder)
            code = work()
        except BaseException:  # noqa: BLE001 - it ends here, as it would at the top of a process
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() - began > limit_s:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None, limit_s
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1]), time.monotonic() - began


def outcome(words: Sequence[str], folder: Path, limit_s: float = MOST_S) -> str:
    """What is wrong with how a command ended; empty where it ended as it may."""
    output = folder.with_name(f"{folder.name}-said")
    output.unlink(missing_ok=True)
    code, took = forked(lambda: command(words), folder, output, limit_s)
    said = output.read_text(errors="replace")
    if code is None:
        return f"goes on after {took:.0f} s"
    may_miss = not FINDERS.isdisjoint(words)
    if "Traceback (most recent" in said or not (code in ENDS or (code == Exit.BAR_MISSED and may_miss)):
        return f"exit {code}: " + " / ".join(line.strip()[:160] for line in said.strip().splitlines()[-3:])
    return ""


def walk(whole: Path, here: Path, numbered: Iterable[tuple[int, OddFile]]) -> Iterator[str]:
    """What went wrong with these oddities, a line each."""
    for number, one in numbered:
        commands = COMMANDS[one.file.split("/")[0]]
        for words in commands if ALL else [commands[(6 * number + at) % len(commands)] for at in range(6)]:
            if one.how == "fifo" and one.file in words and words[0] in ("verify", "init"):
                continue  # a pipe that a person names is waited for
            for limit_s in (MOST_S, 4 * MOST_S):  # tried again: others may work on this machine
                shutil.rmtree(here, ignore_errors=True)
                shutil.copytree(whole, here)
                one.put(here)
                if not (wrong := outcome(words, here, limit_s)).startswith("goes on"):
                    break
            if wrong:
                yield f"{' '.join(words)[:60]} | {one.file} {one.how[:60]} | {wrong}"


def test_odd_folders_end_in_a_sentence_in_every_command(whole: Path, tmp_path: Path) -> None:
    failed = list(walk(whole, tmp_path / "here", enumerate(islice(odd_places(whole, FILES, SEED), TRIES))))
    assert not failed, f"{len(failed)} of {TRIES}:\n" + "\n".join(failed)
