"""`make lock`: every package that the README's commands install, with the hashes of its files, from `constraints.txt`.

    python -m tests.package.write_locks UV [--index URL]

Writes four files, for every system and Python. `requirements-build.lock` is what builds packages that have no wheel, and this
project: it is installed first. `requirements-cpu.lock` is torch's CPU build, taken where pip is offered it; else
`requirements-cuda.lock` is installed, torch as the package index has it and the gigabytes that its CUDA build needs. All else
is in `requirements.lock`. UV is the command `uv`, which resolves without installing anything.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "requirements-build.lock": r"(setuptools|wheel|hatchling|editables|packaging|pathspec|pluggy|trove-classifiers)==",
    "requirements-cuda.lock": r"(torch|triton|nvidia-.+|cuda-.+)==",
    "requirements.lock": "",
}
"""File -> how its entries begin; the first that fits takes an entry."""
CPU_BUILD = {"torch==2.13.0": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"}
"""SHA-256 of the wheel `+cpu` of this version (Linux, x86-64, Python 3.11), which the package index does not have."""
HEAD = "# Written by `make lock` from pyproject.toml and constraints.txt; `make setup` installs it.\n"


def entries(text: str) -> list[str]:
    """The requirements of a lock file, each with the lines of its hashes."""
    return [one for one in re.split(r"(?m)^(?=[A-Za-z])", text) if re.match("[A-Za-z]", one)]


def cpu_build(entry: str) -> str:
    """The CPU build of an entry of torch.

    Raises:
        SystemExit: torch has another version than the one whose CPU build is known.
    """
    pin = entry.split()[0]
    if pin not in CPU_BUILD:
        raise SystemExit(f"{pin}: put the SHA-256 of its CPU build into `CPU_BUILD` of {Path(__file__).name}")
    return f"{pin}+cpu --hash=sha256:{CPU_BUILD[pin]}\n"


def main() -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("uv")
    parser.add_argument("--index")
    args = parser.parse_args()
    command = [
        *(args.uv, "pip", "compile", "pyproject.toml", "-", "--extra", "dev", "-c", "constraints.txt"),
        *("--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"),
        *(("--default-index", args.index) if args.index else ()),
    ]
    resolved = subprocess.run(
        command,
        cwd=ROOT,
        # nothing is built in an environment of its own, whose packages would have no hashes
        input="setuptools\nwheel\nhatchling\neditables\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    files: dict[str, list[str]] = {name: [] for name in KINDS}
    for entry in entries(resolved.stdout):
        name = next(name for name, begin in KINDS.items() if re.match(begin, entry))
        files[name].append(entry)
        if entry.startswith("torch=="):
            files["requirements-cpu.lock"] = [cpu_build(entry)]
    for name, own in files.items():
        (ROOT / name).write_text(HEAD + "".join(own))
        print(f"{name}: {len(own)} packages")


if __name__ == "__main__":
    main()
