"""The blocks of a page in their order, in a folder of its own, as a reader would run them; only long runs are cut short."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.builders.warm import Warm
from tests.docs.pages import ROOT, Block, blocks, commands, without_comment
from tests.docs.test_blocks import is_drawn, told
from tests.loop.program import Program
from tests.loop.recipes import environment

SHORT = {
    "README.md": {"train": ["train.steps=2"]},
    "your-own-task.md": {"train": ["train.steps=2", "eval.limit=8"]},
    "first-run.md": {"train": ["train.steps=2", "eval.limit=8"]},
    "preferences.md": {"train": ["train.steps=2", "eval.limit=8"]},
    "environments.md": {
        "train": ["train.steps=2", "eval.limit=8", "warmup.steps=10"],
        "probe": ["warmup.steps=10"],
        "check": ["warmup.steps=10"],
    },
}
"""By page and command: keys that make its runs short. Whole, they are run by `make test-newcomer` and the benchmarks."""
MINE = """\
model: builtin:tiny
data: {train: {from: "tasks:addition3", limit: 40}, eval: {from: "tasks:addition3", limit: 8, skip: 100}, prompt: "{question}", answer: "{answer}"}
verify: {math: {}}
sample: {prompts: 4, group: 4, max_tokens: 12}
train: {steps: 2, lr: 1e-3}
eval: {samples: 2, k: [1, 2]}
warmup: {demonstration: "{blurt}", steps: 20, lr: 3e-3, muon_lr: 0.015, batch: 16}
"""
"""What a page means by `my.yaml`."""
ELSEWHERE = {"python-api.md": "tests/api/test_api.py"}
CLOCK = re.compile(r"^(  lines +\d+) .*")
PAGES = [
    page
    for page in told()
    if any(not is_drawn(b) and b.language != "yaml" for b in blocks(page)) and page.name not in ELSEWHERE
]


@dataclass
class Reader:
    """Who follows a page in a folder."""

    page: Path
    folder: Path
    warm: Warm
    names: dict[str, object] = field(default_factory=dict)
    ran: int = 0

    def follow(self, block: Block) -> None:
        """Save, run or try one block."""
        if block.file:
            place = self.folder / block.file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.text)
        elif block.language == "sh":
            for line in commands(block):
                self.run(line)
        elif block.language == "console":
            self.compare(block)
        elif block.language == "python":
            exec(compile(block.text, str(self.page), "exec"), self.names)
            self.ran += 1

    def compare(self, block: Block) -> None:
        """Run the command of a transcript; its lines are those that are shown, in this order, `…` for any others."""
        first, *shown = block.text.splitlines()
        said = [
            CLOCK.sub(r"\1", line.rstrip()) for line in self.run(without_comment(first.removeprefix("$ "))).splitlines()
        ]
        at = 0
        for line in [] if block.loose else [line for line in shown if line != "…"]:
            wanted = CLOCK.sub(r"\1", line.rstrip())
            assert wanted in said[at:], f"{self.page.name} shows\n{line}\nprinted was\n" + "\n".join(said)
            at = said.index(wanted, at) + 1

    def run(self, line: str) -> str:
        """What a command line says on both streams.

        Raises:
            AssertionError: its exit code is not 0.
        """
        self.ran += 1
        if line.startswith("make "):  # `make setup` and `make train`: by `make test-newcomer`
            done = subprocess.run([*shlex.split(line), "-n"], cwd=ROOT, capture_output=True, text=True)
            code, said = done.returncode, done.stdout + done.stderr
        elif line.startswith("grpo ") and "|" not in line:
            program = Program(self.warm, self.words(line), self.folder, self.environment(), apart=True)
            out, errors = program.communicate()
            code, said = program.wait(), out + errors
        else:
            done = subprocess.run(
                ["bash", "-c", line], cwd=self.folder, env=self.environment(), capture_output=True, text=True
            )
            code, said = done.returncode, done.stdout + done.stderr
        assert code == 0, f"{self.page.name}: `{line}` ended with {code}\n{said[-3000:]}"
        return said

    def words(self, line: str) -> list[str]:
        """The words after `grpo`, as a shell hands them over, and those that make it short."""
        words = [
            str(found)
            for word in shlex.split(line)[1:]
            for found in (sorted(p.relative_to(self.folder) for p in self.folder.glob(word)) if "*" in word else [word])
        ]
        short = [] if "--resume" in words else SHORT.get(self.page.name, {}).get(words[0], [])
        return [*words, *(word for key in short for word in ("--set", key))]

    def environment(self) -> dict[str, str]:
        """With `grpo` and `python` of this environment."""
        binaries = self.warm.cache / "bin"
        if not binaries.exists():
            binaries.mkdir(parents=True)
            (binaries / "grpo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grpo_cli "$@"\n')
            (binaries / "grpo").chmod(0o755)
            (binaries / "python").symlink_to(sys.executable)
        path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
        return environment(self.warm.cache / "any") | {"PATH": path, "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """One process with torch loaded for all pages, and one cache of warm-ups."""
    one = Warm(tmp_path_factory.mktemp("cache"))
    yield one
    one.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(ROOT / "examples" / "answers.jsonl", tmp_path / "samples.jsonl")
    (tmp_path / "my.yaml").write_text(MINE)
    reader = Reader(page, tmp_path, warm)
    todo = [block for block in blocks(page) if not block.not_run and not is_drawn(block)]
    for block in todo:
        reader.follow(block)
    assert reader.ran or all(block.language == "yaml" or block.file for block in todo)
