"""`make check-package`: the wheel in a clean environment beside PyPI's `verifiers`. Prints each check; exits 1 at the first failure.

Not a pytest test: it builds, downloads and installs for minutes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INDEX = ["--index-url", os.environ["PIP_INDEX"]] if os.environ.get("PIP_INDEX") else []
ROW = {"response": "so it is \\boxed{0.5}", "answer": "\\frac{1}{2}"}


def main() -> None:
    """Build, install both, look, use, uninstall, look again."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run(sys.executable, "-m", "build", "--outdir", str(out / "dist"), str(ROOT))
        wheel = next((out / "dist").glob("*.whl"))
        names = zipfile.ZipFile(wheel).namelist()
        check(
            "no file of ours lies in `verifiers/` or `recipes/`",
            not [n for n in names if n.startswith(("verifiers/", "recipes/"))],
        )
        check("type markers are shipped", {"grpo_cli/py.typed", "grpo_verifiers/py.typed"} <= set(names))
        check("recipes are shipped", "grpo_cli/_recipes/quickstart.yaml" in names)

        run(sys.executable, "-m", "venv", str(out / "venv"))
        python = str(out / "venv/bin/python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *INDEX]
        run(*pip, "verifiers")
        theirs = recorded(python, "verifiers")
        before = run(python, "-c", PROBE)
        run(*pip, "-c", str(ROOT / "constraints.txt"), str(wheel))
        check("no file of theirs changed or went", theirs == recorded(python, "verifiers"))
        check("`import verifiers` is still theirs", before == run(python, "-c", PROBE))
        check(
            "`import grpo_verifiers` is ours",
            "grpo_verifiers" in run(python, "-c", "import grpo_verifiers as v; print(v.__file__)"),
        )

        grpo = str(out / "venv/bin/grpo")
        check("grpo --version", run(grpo, "--version").startswith("grpo "))
        check(
            "a shipped recipe is found by name",
            "completions a step" in run(grpo, "train", "quickstart", "--dry-run", cwd=out),
        )
        verdict = run(grpo, "verify", "-", "--math", stdin=json.dumps(ROW) + "\n", cwd=out)
        check("grpo verify judges", json.loads(verdict.splitlines()[0])["outcome"] == "right")
        run(python, "-m", "pip", "uninstall", "-q", "-y", "grpo-cli")
        check("nothing of theirs goes with ours", theirs == recorded(python, "verifiers"))


PROBE = "import verifiers, importlib.metadata as m; print(verifiers.__file__, m.version('verifiers'))"


def recorded(python: str, package: str) -> dict[str, bool]:
    """Each file that a package's RECORD names, and whether it is there unchanged."""
    found = run(
        python, "-c", f"import importlib.metadata as m; print(m.distribution({package!r}).locate_file(''))"
    )
    site = Path(found.strip())
    record = next(site.glob(f"{package}-*.dist-info/RECORD"))
    out = {}
    for name, digest, _ in csv.reader(record.read_text().splitlines()):
        if digest and not name.endswith(".pyc"):
            file = site / name
            is_same = file.is_file() and digest == "sha256=" + urlsafe_sha256(file)
            out[name] = is_same
    return out


def urlsafe_sha256(file: Path) -> str:
    """A digest as RECORD spells it."""
    return base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()


def check(what: str, holds: bool) -> None:
    """Print, or stop."""
    print(f"{'ok  ' if holds else 'FAIL'}  {what}", flush=True)
    if not holds:
        sys.exit(1)


def run(*command: str, stdin: str | None = None, cwd: Path | None = None) -> str:
    """stdout of a command that must succeed."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=clean, cwd=cwd, check=False
    )
    if done.returncode:
        print(f"FAIL  {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        sys.exit(1)
    return done.stdout


if __name__ == "__main__":
    main()
