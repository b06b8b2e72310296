"""What the ranks of this machine do, for the message of a hang: each leaves its phase in a file once a second.

A rank that waits for another is as silent as the one it waits for, so the message lists both; one whose file grows
old does not run at all (stopped, swapped out, dead).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_cli.launch import CONTROL

OLD_S = 3.0
"""A file older than this belongs to a rank that does not run: it is written every second."""


@dataclass(frozen=True)
class Beats:
    """The folder of the ranks' files, and which rank this is; None where there is one process."""

    folder: Path | None
    rank: int = 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Beats:
        """Where `launch` keeps what it knows of its ranks."""
        control = environ.get(CONTROL)
        return cls(Path(control) if control else None, int(environ.get("RANK", "0")))

    def leave(self, phase: str, silent_s: float) -> None:
        """Say what this rank does and for how long nothing has moved in it."""
        if self.folder is None:
            return
        with suppress(OSError):  # the launch may be over
            file = self.folder / f"rank-{self.rank}.beat"
            file.with_suffix(".new").write_text(json.dumps({"phase": phase, "silent_s": silent_s}))
            file.with_suffix(".new").replace(file)

    def others(self) -> str:
        """The other ranks in words, one after another; empty where there are none."""
        if self.folder is None:
            return ""
        said = []
        for file in sorted(self.folder.glob("rank-*.beat")):
            rank = file.stem.removeprefix("rank-")
            if rank == str(self.rank):
                continue
            with suppress(OSError, ValueError, KeyError):
                age, beat = time.time() - file.stat().st_mtime, json.loads(file.read_text())
                state = f"does not run for {age:.0f}s, in" if age > OLD_S else f"{beat['silent_s']:.0f}s in"
                said.append(f"rank {rank}: {state} `{beat['phase']}`")
        return "; ".join(said)
