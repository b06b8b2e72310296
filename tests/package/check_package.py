"""`make check-package`: the verifiers' wheel alone in a clean environment, an editable install in another, and both wheels
beside PyPI's `verifiers` in a third. Prints each check; exits 1 at the first failure. `--light` leaves out the third.

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
    """Build, install, look, use, uninstall, look again."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        dist = build_both(out / "dist")
        wheel, own = (next(dist.glob(f"{name}-*.whl")) for name in ("grpo_cli", "grpo_verifiers"))
        names, theirs_too = (zipfile.ZipFile(one).namelist() for one in (wheel, own))
        check("no file lies in both wheels", not set(names) & set(theirs_too))
        check(
            "no file of ours lies in `verifiers/` or `recipes/`",
            not [n for n in [*names, *theirs_too] if n.startswith(("verifiers/", "recipes/"))],
        )
        check("type markers are shipped", {"grpo_cli/py.typed", "grpo_verifiers/py.typed"} <= {*names, *theirs_too})
        check("recipes are shipped", "grpo_cli/_recipes/quickstart.yaml" in names)
        check("both carry the licence", all(any(n.endswith("LICENSE") for n in own) for own in (names, theirs_too)))
        alone(out, own)
        editable(out)
        if "--light" in sys.argv:
            return

        python, pip = environment(out, "venv")
        run(*pip, "verifiers")
        theirs = recorded(python, "verifiers")
        before = run(python, "-c", PROBE)
        run(*pip, "-c", str(ROOT / "constraints.txt"), str(own), str(wheel))
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
        run(python, "-m", "pip", "uninstall", "-q", "-y", "grpo-cli", "grpo-verifiers")
        check("nothing of theirs goes with ours", theirs == recorded(python, "verifiers"))


def build_both(dist: Path) -> Path:
    """An sdist of each distribution, and a wheel out of it, in `dist`."""
    for source in (ROOT, ROOT / "verifiers"):
        run(sys.executable, "-m", "build", "--outdir", str(dist), str(source))
    return dist


def environment(out: Path, name: str) -> tuple[str, list[str]]:
    """The interpreter of a new one, and the beginning of its `pip install`."""
    run(sys.executable, "-m", "venv", str(out / name))
    python = str(out / name / "bin/python")
    return python, [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *INDEX]


def alone(out: Path, wheel: Path) -> None:
    """The verifiers without trainer or torch."""
    python, pip = environment(out, "alone")
    run(*pip, "-c", str(ROOT / "constraints.txt"), str(wheel))
    have = set(json.loads(run(python, "-c", INSTALLED)))
    check(
        "the verifiers alone bring no torch, TRL or transformers",
        not have & {"torch", "trl", "transformers", "grpo-cli"},
    )
    judged = run(python, "-c", JUDGE, stdin=json.dumps(ROW))
    check("the verifiers alone judge", judged.split() == ["right", "1.0", "[1.0,", "0.0]"])


def editable(out: Path) -> None:
    """Without the libraries, which are not what is looked at here."""
    python, pip = environment(out, "editable")
    run(*pip, "--no-deps", "-e", str(ROOT))
    found = run(python, "-c", "import grpo_cli, grpo_verifiers as v; print(grpo_cli.__file__, v.__file__)").split()
    check(
        "an editable install has both folders",
        found == [str(ROOT / "grpo_cli/__init__.py"), str(ROOT / "verifiers/grpo_verifiers/__init__.py")],
    )
    needs = json.loads(
        run(python, "-c", "import importlib.metadata as m, json; print(json.dumps(m.requires('grpo-cli')))")
    )
    check("and needs no package of ours", not [n for n in needs if n.startswith("grpo-verifiers")])


INSTALLED = (
    "import importlib.metadata as m, json; print(json.dumps([d.metadata['Name'].lower() for d in m.distributions()]))"
)
JUDGE = """
import json, sys
from grpo_verifiers import as_reward, build
row = json.load(sys.stdin)
verdict = build("math").verify(row["response"], {"answer": row["answer"]})
paid = as_reward(build("math"))(completions=[row["response"], "7"], answer=[row["answer"]] * 2)
print(verdict.outcome.value, verdict.score, paid)
"""
PROBE = "import verifiers, importlib.metadata as m; print(verifiers.__file__, m.version('verifiers'))"


def recorded(python: str, package: str) -> dict[str, bool]:
    """Each file that a package's RECORD names, and whether it is there unchanged."""
    found = run(python, "-c", f"import importlib.metadata as m; print(m.distribution({package!r}).locate_file(''))")
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
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=clean, cwd=cwd, check=False)
    if done.returncode:
        print(f"FAIL  {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        sys.exit(1)
    return done.stdout


if __name__ == "__main__":
    main()
