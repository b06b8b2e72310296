"""The facts needed to repeat a run: versions, device, commit."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

from grpo_cli import __version__

PACKAGES = ("torch", "transformers", "trl", "peft", "math-verify")


def versions() -> dict[str, str]:
    """Versions of what computes."""
    found = {"grpo": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """The commit of the working directory, where it is a git checkout."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
