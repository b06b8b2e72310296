"""`make test-pythons`: wheels and sdists built once, installed into a clean environment of every Python here, and used there.

    python tests/package/check_pythons.py [--dist FOLDER] [--whole 3.11,3.12] [PYTHON …]

Everywhere: the verifiers alone judge maths, JSON and programs in the sandbox; then the command, with all that it needs but
torch and what needs torch, judges the file of the README and writes, explains and checks recipes. On the versions of `--whole`
everything is installed and a model is trained, measured, reported and resumed. Prints each check, at the end a line a Python;
exits 1 where one failed. Not a pytest test: it downloads and installs for minutes.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from tests.package.check_package import INDEX, INSTALLED, JUDGE, ROOT, ROW, build_both, check, run

CLASSIFIER = re.compile(r"^Programming Language :: Python :: (3\.\d+)$")
NEED_TORCH = {"torch", "transformers", "trl", "datasets", "peft"}
"""What only training needs; torch alone is several GB where the index has no build for a CPU."""
SHORT = ["train.steps=2", "eval.limit=8", "run.dir=runs", "run.name=short"]
PROGRAMS = """
from grpo_verifiers import build
code = build("code")
row = {"tests": ["assert f(2) == 3", "assert f(0) == 1"]}
for body in ("return n + 1", "return n", "import os; os.remove('/etc/hostname')", "while True: pass"):
    print(code.verify(f"```python\\ndef f(n):\\n    {body}\\n```", row).outcome.value)
code.close()
schema = {"type": "object", "required": ["a"]}
json_value = build("json", json_schema=schema, compare=False)
print(*(json_value.verify(text, {}).outcome.value for text in ('{"a": 1}', '{"b": 1}')))
"""
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def main() -> None:
    """Build once; then every Python in turn."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("pythons", nargs="*", help="interpreters; by default each promised one that is found")
    parser.add_argument("--dist", type=Path, help="wheels that were built already")
    parser.add_argument("--whole", default="", help="versions on which everything is installed: 3.11,3.12")
    asked = parser.parse_args()
    whole = [part for part in re.split(r"[ ,]+", asked.whole) if part]
    promised = promised_versions(ROOT / "pyproject.toml")
    check("both distributions promise the same", promised == promised_versions(ROOT / "verifiers/pyproject.toml"))
    found = {version_of(python): python for python in asked.pythons or find_pythons(promised)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        dist = asked.dist or build_both(out / "dist")
        cli, own = (next(dist.glob(f"{name}-*.whl")) for name in ("grpo_cli", "grpo_verifiers"))
        said = {version: use(python, version, whole, out / version, cli, own) for version, python in found.items()}
    for version in promised:
        had = [name for name in said if name.startswith(f"{version}.")]
        for name in had or [version]:
            print(f"{name:8} {said.get(name, 'not on this machine')}")


def promised_versions(project: Path) -> list[str]:
    """The classifiers' versions, from the one in `requires-python` on."""
    about = tomllib.loads(project.read_text())["project"]
    named = [found[1] for line in about["classifiers"] if (found := CLASSIFIER.match(line))]
    check(
        f"{about['name']}: the classifiers begin where requires-python does",
        about["requires-python"] == f">={named[0]}",
    )
    return named


def find_pythons(versions: list[str]) -> list[str]:
    """By name on the path, and in pyenv's and uv's folders; a shim that starts nothing is none."""
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR", str(Path.home() / ".local/share/uv/python"))
    found = []
    for version in versions:
        named = shutil.which(f"python{version}")
        places = [
            *glob.glob(f"{pyenv}/versions/{version}.*/bin/python"),
            *glob.glob(f"{uv}/cpython-{version}.*/bin/python"),
        ]
        working = [one for one in [*([named] if named else []), *sorted(places)] if starts(one)]
        found += working[:1]
    return found


def starts(python: str) -> bool:
    """Whether it is an interpreter."""
    return subprocess.run([python, "-c", VERSION], capture_output=True, check=False).returncode == 0


def version_of(python: str) -> str:
    """As `3.12.1`."""
    return run(python, "-c", VERSION).strip()


def use(python: str, version: str, whole: list[str], out: Path, cli: Path, own: Path) -> str:
    """What was done with it, for its line at the end."""
    print(f"Python {version}", flush=True)
    out.mkdir()
    run(python, "-m", "venv", str(out / "venv"))
    inner = str(out / "venv/bin/python")
    pip = [inner, "-m", "pip", "--disable-pip-version-check", "install", "-q", *INDEX]
    pip += ["-c", str(ROOT / "constraints.txt")]
    use_verifiers(inner, pip, own)
    if version.rpartition(".")[0] in whole:
        run(*pip, str(own), str(cli))
        use_command(out)
        train(out)
        return "verifiers, command, training"
    run(*pip, "--no-deps", str(cli))
    needs = json.loads(run(inner, "-c", NEEDS))
    light = [one for one in needs if re.split(r"[^\w.-]", one)[0].lower() not in {*NEED_TORCH, "grpo-verifiers"}]
    run(*pip, *light)
    use_command(out)
    return "verifiers, command; training not tried (see --whole)"


def use_verifiers(python: str, pip: list[str], wheel: Path) -> None:
    """Alone: they bring no torch, and judge."""
    run(*pip, str(wheel))
    have = set(json.loads(run(python, "-c", INSTALLED)))
    check("the verifiers alone bring no torch", not have & {*NEED_TORCH, "grpo-cli"})
    judged = run(python, "-W", "error::SyntaxWarning", "-c", JUDGE, stdin=json.dumps(ROW))
    check("they judge maths", judged.split() == ["right", "1.0", "[1.0,", "0.0]"])
    outcomes = run(python, "-c", PROGRAMS).split()
    check(
        f"they judge programs and JSON: {' '.join(outcomes)}",
        outcomes == ["right", "wrong", "wrong", "over_limit", "right", "wrong"],
    )


def use_command(out: Path) -> None:
    """What needs no torch."""
    grpo = str(out / "venv/bin/grpo")
    check("grpo --version", run(grpo, "--version").strip() == f"grpo {version_in_tree()}")
    check("grpo --help lists the commands", "verify" in run(grpo, "--help"))
    answers = str(ROOT / "examples/answers.jsonl")
    lines = run(grpo, "verify", answers, "--math", cwd=out).splitlines()
    outcomes = [json.loads(line)["outcome"] for line in lines]
    check("grpo verify judges the README's file", outcomes == ["right", "wrong"] * 2 + ["right", "no_answer"])
    check("grpo explain", run(grpo, "explain", "math", cwd=out).startswith("math: "))
    check("grpo schema is JSON", "properties" in json.loads(run(grpo, "schema", cwd=out)))
    run(grpo, "init", "--task", "custom", "mine", "--model", "builtin:tiny", cwd=out)
    check("grpo init writes a recipe", (out / "mine/recipe.yaml").is_file())


def train(out: Path) -> None:
    """The quickstart, short: train, go on, measure, report."""
    grpo = str(out / "venv/bin/grpo")
    keys = [part for key in SHORT for part in ("--set", key)]
    run(grpo, "check", "mine/recipe.yaml", cwd=out)
    run(grpo, "train", "quickstart", *keys, cwd=out)
    steps = (out / "runs/short/metrics.jsonl").read_text().splitlines()
    check(f"grpo train: {len(steps)} lines of metrics", len(steps) >= 2)
    run(grpo, "train", "--resume", "runs/short", "--set", "train.steps=3", cwd=out)
    check("grpo train --resume goes on", len((out / "runs/short/metrics.jsonl").read_text().splitlines()) > len(steps))
    run(grpo, "eval", "runs/short", "--json", cwd=out)
    run(grpo, "report", "runs/short", cwd=out)
    check("grpo report", (out / "runs/short/report.html").is_file())


def version_in_tree() -> str:
    """As its one place says."""
    text = (ROOT / "verifiers/grpo_verifiers/__init__.py").read_text()
    return re.findall(r'^__version__ = "(.+)"$', text, re.M)[0]


NEEDS = """
import importlib.metadata as m, json
print(json.dumps([one for one in m.requires("grpo-cli") if "extra ==" not in one]))
"""


if __name__ == "__main__":
    main()
