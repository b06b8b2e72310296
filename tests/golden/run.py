"""Runs whose every number should survive a change of the code's shape: `python tests/golden/run.py FOLDER [--tree TREE]`.

Trains, on a CPU and with one thread, the quickstart for ten steps with two seeds, a small recipe, the same with two
ranks; judges the labelled cases; prints the help of every command. About four minutes. (That a resumed run equals an
unbroken one is a test: `tests/loop/test_resume.py`.) `compare.py` holds two such folders against each other. `--tree` runs the code of another checkout.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.loop.recipes import RECIPE  # noqa: E402

EXPECTED = {"verify-dev": 3}
"""Exit codes other than 0: among the cases are lines that no verifier can read."""
COMMANDS = "train eval verify check probe audit init doctor explain export report schema watch"


def main() -> int:
    """0 where every command ended as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tree", type=Path, default=ROOT)
    words = parser.parse_args()
    out, tree = words.folder.resolve(), words.tree.resolve()
    if out.exists() and any(out.iterdir()):
        print(f"{out} is not empty", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    recipe = out / "small.yaml"
    recipe.write_text(RECIPE.format(steps=4, save_every=2))
    failed = [name for name, line in commands(out, tree, recipe) if run(name, line, out, tree)]
    print(f"failed: {', '.join(failed)}" if failed else f"all in {out}")
    return bool(failed)


def commands(out: Path, tree: Path, recipe: Path) -> list[tuple[str, list[str]]]:
    """A name and the words after `grpo`, in the order they run."""

    def trained(name: str, source: Path, *sets: str) -> tuple[str, list[str]]:
        flags = [f"run.name={name}", f"run.dir={out / 'runs'}", *sets]
        return name, ["train", str(source), "--display", "plain", *(w for s in flags for w in ("--set", s))]

    quick, cases = tree / "recipes" / "quickstart.yaml", tree / "tests" / "cases"
    helps = [(f"help-{name}", [name, "--help"]) for name in COMMANDS.split()]
    return [
        *(trained(f"quick-{seed}", quick, f"train.seed={seed}", "train.steps=10") for seed in (0, 1)),
        trained("small", recipe),
        trained("ranks", recipe, "launch.cpu_ranks=2"),
        *(
            (f"verify-{name}", ["verify", str(cases / f"math_{name}.jsonl"), "--math", "--json"])
            for name in ("own", "dev")
        ),
        ("help", ["--help"]),
        *helps,
        ("explain", ["explain"]),
        ("explain-json", ["explain", "--json"]),
        ("schema", ["schema"]),
    ]


def run(name: str, line: list[str], out: Path, tree: Path) -> bool:
    """Whether it failed; what it printed goes to `NAME.out` and `NAME.err`."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "verifiers")]),
        "OMP_NUM_THREADS": "1",
        "GRPO_CACHE": str(out / "cache"),
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "TERM": "dumb",
    }
    with (out / f"{name}.out").open("w") as stdout, (out / f"{name}.err").open("w") as stderr:
        done = subprocess.run([sys.executable, "-m", "grpo_cli", *line], env=env, cwd=out, stdout=stdout, stderr=stderr)
    print(f"{name}: {done.returncode}", flush=True)
    return done.returncode != EXPECTED.get(name, 0)


if __name__ == "__main__":
    sys.exit(main())
