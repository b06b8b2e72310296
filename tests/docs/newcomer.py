"""The newcomer's path by the pages alone, in a fresh clone and a fresh environment: `make test-newcomer`.

    python tests/docs/newcomer.py FOLDER [--index URL]

FOLDER gets a clone of what is committed here. First the shortest way to an own reward that is trained: `make setup`, then the
first commands of docs/your-own-task.md with the reward saved that the page gives as another one. Then what is left of that page,
and the README's commands in their order, all of them as they are printed. Printed are the seconds of each, and the held-out score
before and after. Ends with 1 at the first command that fails or where a score does not rise.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.pages import README, blocks, commands  # noqa: E402

OWN_TASK = ROOT / "docs" / "your-own-task.md"


@dataclass
class Way:
    """Where the newcomer stands: the clone, and what was run with its seconds."""

    folder: Path
    env: dict[str, str]
    took: list[tuple[str, float]] = field(default_factory=list)

    def run(self, line: str) -> None:
        """A command as it is printed; its output is shown where it fails.

        Raises:
            SystemExit: the command failed.
        """
        began = time.monotonic()
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True)
        self.took.append((line, time.monotonic() - began))
        print(f"{self.took[-1][1]:8.1f} s  {line}", flush=True)
        if done.returncode != 0:
            raise SystemExit(f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")

    def scores(self) -> tuple[float, float]:
        """Held-out pass@1 of the newest run, before its first step and after its last."""
        newest = max((self.folder / "runs").glob("*/metrics.jsonl"), key=lambda file: file.stat().st_mtime)
        lines = [json.loads(line) for line in newest.read_text().splitlines()]
        found = [line["eval/pass@1"] for line in lines if "eval/pass@1" in line]
        return found[0], found[-1]


def save_files(page: Path, folder: Path) -> None:
    """The blocks of a page that it names as files, written where it says."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text)


def walk(folder: Path, index: str) -> int:
    """Both pages in order; 0 where all went well and both scores rose."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    env |= {"PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{env['PATH']}", "PIP_INDEX": index, "NO_COLOR": "1"}
    env |= {"XDG_CACHE_HOME": str(folder / ".cache")}
    way = Way(folder, env)
    rose: list[bool] = []

    def said(name: str) -> None:
        before, after = way.scores()
        rose.append(after > before + 0.2)
        print(f"            {name}: held-out pass@1 {before:.3f} -> {after:.3f}", flush=True)

    way.run("make setup")
    first, *rest = blocks(OWN_TASK, "sh")
    for line in commands(first):
        way.run(line)
        if line.startswith("grpo init"):
            save_files(OWN_TASK, folder)
    said("own reward")
    print(f"{sum(seconds for _, seconds in way.took):8.1f} s  {len(way.took)} commands to it", flush=True)
    for line in (line for block in rest for line in commands(block)):
        way.run(line)
    shutil.rmtree(folder / "mine")
    for block in blocks(README, "sh"):
        for line in commands(block):
            if line != "make setup":
                way.run(line)
            if line == "make train":
                said("quickstart")
    print(f"{sum(seconds for _, seconds in way.took):8.1f} s  {len(way.took)} commands")
    return 0 if all(rose) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="The newcomer's path by the pages alone.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", default="", help="package index")
    args = parser.parse_args()
    return walk(args.folder.resolve(), args.index)


if __name__ == "__main__":
    raise SystemExit(main())
