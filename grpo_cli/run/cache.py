"""The folder for files that the program can recreate."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Converted and warmed-up models, how long libraries took to load: `$GRPO_CACHE`, else `$XDG_CACHE_HOME/grpo`, else `~/.cache/grpo`."""
    if named := os.environ.get("GRPO_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grpo"
