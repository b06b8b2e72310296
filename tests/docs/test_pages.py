"""The pages beside the README: their recipes load, and their tables name all there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
import yaml

from grpo_cli.data.filters import FILTERS
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import shipped_recipes
from grpo_cli.recipe.sections.method import Algorithm, Train
from grpo_verifiers.registry import KINDS
from tests.docs.pages import ROOT, Block, blocks, pages

DOCS = ROOT / "docs"
MEASURED = sorted(page for page in (DOCS / "benchmarks").glob("*.md") if page.name != "README.md")
EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in pages()
    if page.is_relative_to(DOCS) and not page.is_relative_to(DOCS / "reference")  # `tests/jobs/explain` loads those
    for number, block in enumerate(blocks(page, "yaml"))
]
BASE = {
    "model": "model: builtin:tiny\n",
    "data": 'data: {train: "tasks:addition3", eval: "tasks:addition3", prompt: "{question}", answer: "{answer}"}\n',
    "verify": "verify: {math: {}}\n",
    "train": "train: {steps: 2}\n",
}
"""What a part of a recipe lies over: whatever of these sections it does not say itself."""


@pytest.mark.parametrize("block", EXAMPLES)
def test_every_example_of_a_recipe_loads(tmp_path: Path, block: Block) -> None:
    text = block.text
    if not text.startswith("grpo: 1"):
        said = set(re.findall(r"^(\w+):", text, re.M))
        text = "grpo: 1\n" + "".join(part for key, part in BASE.items() if key not in said) + text
    (tmp_path / "recipe.yaml").write_text(text)
    load(tmp_path / "recipe.yaml")


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.stem)
def test_every_page_of_figures_says_date_machine_versions_command_and_n(page: Path) -> None:
    head = next(
        part for part in page.read_text().split("\n\n")[1:3] if part.startswith("|")
    )  # below the finding, if any
    said = dict(re.findall(r"^\| (\w+) \| (.+) \|$", head, re.M))
    assert list(said) == ["date", "machine", "versions", "command", "n"]
    assert re.match(r"20\d\d-\d\d-\d\d", said["date"])


def test_every_shipped_recipe_is_in_the_table_of_what_was_run() -> None:
    table = (DOCS / "benchmarks" / "README.md").read_text()
    assert {name for name in shipped_recipes() if f"`{name}`" not in table} == set()


def test_a_recipe_nobody_could_run_says_so_in_its_header_and_in_the_table() -> None:
    table = (DOCS / "benchmarks" / "README.md").read_text()
    for name, path in shipped_recipes().items():
        (said,) = re.findall(r"^# run here  (.+)$", path.read_text(), re.M)
        (row,) = re.findall(rf"^\| `{name}` \|.*$", table, re.M)
        assert said.startswith("never trained") == ("**never" in row), name


def test_every_kind_of_verifier_preset_filter_and_selector_is_on_its_page() -> None:
    def missing(names: list[str], page: str) -> list[str]:
        text = (DOCS / page).read_text()
        return [name for name in names if not re.search(rf"`{re.escape(name)}[`(]", text)]

    assert missing(list(KINDS), "verifiers/README.md") == []
    assert missing(list(get_args(Algorithm)), "methods.md") == []
    assert missing(list(get_args(Train.model_fields["select"].annotation)), "reference/names.md") == []
    assert missing(list(FILTERS), "recipe.md") == []


def test_the_script_for_slurm_asks_grpo_for_what_it_takes(tmp_path: Path) -> None:
    # stand-ins for the scheduler's commands write down what they were asked for
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'node17\\nnode18\\n'\n")
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > asked\n')
    for name in ("scontrol", "srun"):
        (tmp_path / name).chmod(0o755)
    script = DOCS.parent / "examples" / "slurm.sh"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node[17-18]", "SLURM_NNODES": "2"}

    def asked() -> list[str]:
        subprocess.run(["bash", str(script), "quickstart", "mine"], cwd=tmp_path, env=env, check=True)
        return (tmp_path / "asked").read_text().splitlines()

    first = asked()
    assert first[:3] == ["grpo", "train", "quickstart"] and "--resume" not in first
    sets = [value for flag, value in pairwise(first) if flag == "--set"]
    recipe = load("quickstart", sets)
    assert (recipe.launch.nodes, recipe.launch.rendezvous) == (2, "node17:29500")
    assert (recipe.run.name, recipe.run.deadline) == ("mine", "3h50m")
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "run.json").write_text("{}")
    assert asked()[-2:] == ["--resume", "runs/mine"]


def test_the_script_for_slurm_asks_for_a_signal_before_the_end() -> None:
    directives = re.findall(r"--([\w-]+)=(\S+)", (DOCS.parent / "examples" / "slurm.sh").read_text().split("\n")[1])
    asked = dict(directives)
    assert asked["signal"] == "TERM@300" and asked["ntasks-per-node"] == "1"
    hours, minutes = 3, 50  # the deadline of the command, which must fall before the signal
    end = sum(int(part) * unit for part, unit in zip(asked["time"].split(":"), (3600, 60, 1), strict=True))
    assert hours * 3600 + minutes * 60 < end - 300


def test_every_command_the_pages_name_is_one_of_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"^  (\w+)  ", done.stdout, re.M))
    said = re.compile(r"(?:^\s*(?:\$ )?|`)grpo ([a-z]+)\b", re.M)
    named = {name for page in pages() for name in said.findall(page.read_text())}
    assert named - known == set() and {"train", "verify"} <= named


def test_the_page_of_an_own_task_shows_what_init_writes() -> None:
    from grpo_cli.starters import files

    page = DOCS / "your-own-task.md"
    written = files("custom", "builtin:tiny")
    recipe, *_parts = blocks(page, "yaml")
    reward, other, _rows = blocks(page, "python")
    assert yaml.safe_load(recipe.text) == yaml.safe_load(written["recipe.yaml"].read_text())
    assert reward.text in written["reward.py"].read_text() and "def score" in other.text
    first = json.loads(written["train.jsonl"].read_text().splitlines()[0])
    assert json.dumps(first) in page.read_text()
