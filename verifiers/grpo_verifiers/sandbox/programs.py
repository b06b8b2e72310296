"""Programs of other languages in a lane of their own kind: `namespaces` only, since they need exec, fork and files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lane import OUTPUT_BYTES, Lane, LaneReport, limits_of, memory_files, read_file
from grpo_verifiers.sandbox.memory import MemoryWatch
from grpo_verifiers.verifier import Unavailable

PRODUCT_BYTES = 64 << 20
TAIL = 4000


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Limits of one run of a program; wall time may be three times its CPU time, on a machine that is busy six times.

    `reserved` is how many times its memory a process may reserve: a thread's stack is reserved and hardly ever used.
    """

    cpu_s: float
    memory_mb: int
    reserved: int = 1
    output_bytes: int = OUTPUT_BYTES

    def as_json(self) -> dict[str, Any]:
        """The limits in the form that a lane expects."""
        limits = limits_of("programs", self.cpu_s, self.reserved * self.memory_mb, output_bytes=self.output_bytes)
        return {**limits, "data_only": True, "tasks": 128}


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended, what it printed, whether that was cut, what files it made, and whether it held too much memory."""

    report: LaneReport
    stdout: bytes
    stderr: str
    is_cut: bool = False
    products: Mapping[str, bytes] = field(default_factory=dict)
    is_over_memory: bool = False


def need_programs(names: Sequence[str], what: str) -> tiers.Tier:
    """The tier `namespaces`, with these programs there.

    Raises:
        Unavailable: no such tier on this machine, or a program is missing.
    """
    found = tiers.try_tier("namespaces")
    if isinstance(found, str):
        raise Unavailable(
            f"{what} needs the sandbox tier `namespaces`, which this machine refuses ({found})", tiers.FIXES
        )
    for name in names:
        if shutil.which(name) is None:
            raise Unavailable(
                f"{what} needs `{name}`, which is not installed", f"install the package that has `{name}`"
            )
    return found


def run_program(
    lane: Lane,
    argv: Sequence[str],
    files: Mapping[str, str],
    limits: ProgramLimits,
    stdin: bytes = b"",
    keep: bool = False,
    products: Mapping[str, bytes] | None = None,
) -> ProgramResult:
    """Run a program over these files. `keep`: hand out the files it makes; `products`: lay out what was kept before.

    Raises:
        LaneFailed: the sandbox broke.
    """
    given = dict(products or {})
    sizes = [[name, len(data)] for name, data in given.items()]
    payload = {"argv": list(argv), "files": dict(files), "keep": keep, "products": sizes}
    contents: dict[str, bytes | None] = {
        "payload": json.dumps(payload).encode(), "stdin": stdin, "products": b"".join(given.values()), "stdout": None, "stderr": None,
    }  # fmt: skip
    if keep:
        contents["results"] = None
    with memory_files(**contents) as fds:
        watch = MemoryWatch(lane, limits.memory_mb)
        report = lane.run("program", fds, limits.as_json(), watch)
        out_size = os.fstat(fds["stdout"]).st_size
        return ProgramResult(
            report,
            read_file(fds["stdout"], limits.output_bytes),
            read_file(fds["stderr"], 1 << 16)[-TAIL:].decode("utf-8", "replace"),
            out_size >= limits.output_bytes,
            _unpacked(read_file(fds["results"], PRODUCT_BYTES)) if keep else {},
            watch.judge(report.rss_kb),
        )


def _unpacked(data: bytes) -> dict[str, bytes]:
    """The files that a run handed out, by name; none where it did not come so far."""
    head, _, rest = data.partition(b"\n")
    files, at = {}, 0
    for name, size in json.loads(head or "[]"):
        files[name] = rest[at : at + size]
        at += size
    return files
