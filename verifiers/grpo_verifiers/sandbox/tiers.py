"""Which isolation this machine can enforce, found by trying, and the self-test that shows what holds.

`namespaces` before `landlock` before nothing. `weak` (system call list and limits, but every file the user can read stays
readable) is only taken where it was asked for by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.sandbox.folder import ScratchFolder
from grpo_verifiers.sandbox.lane import Lane, LaneFailed, limits_of, memory_files, read_file
from grpo_verifiers.sandbox.view import host_view
from grpo_verifiers.verifier import BadOption, Unavailable

ORDER = ("namespaces", "landlock", "weak")
PROBE_MB = 512
# what each tier promises; the rest is told as open
ALWAYS = (  # noqa: SIM905 - a row of names reads better than eleven lines
    "network, unix sockets, new processes, run programs, write outside, signal others, trace others, environment, "
    "privileges, memory over the limit, mount"
).split(", ")
ENFORCED: dict[str, tuple[str, ...]] = {
    "namespaces": (*ALWAYS, "files outside", "home folder", "process list"),
    "landlock": (*ALWAYS, "files outside", "home folder", "process list"),
    "weak": tuple(name for name in ALWAYS if name != "environment"),
}
FIXES = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces=10000), "
    "or use a kernel with Landlock (5.13 or newer, Linux on x86-64 or aarch64), "
    "or set `sandbox: {least: weak}` to run model code with the system call list alone, at your own risk"
)

# what a limit of the shell or a folder is to blame for, by the words of the system's message
MENDS = (
    ("temporary directory", "make a folder for temporary files that may be written, and name it in TMPDIR"),
    ("resource temporarily unavailable", "raise the limit of processes (`ulimit -u`): a sandbox needs a few"),
    ("cannot allocate memory", "raise the limit of memory (`ulimit -v`): a sandbox needs 1 GB of address space"),
    ("too many open files", "raise the limit of open files (`ulimit -n`)"),
    ("no space left", "free some space where temporary files lie, or name another folder in TMPDIR"),
)


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """One line of the self-test: what was tried, whether the tier promises to refuse it, what happened ("" = refused)."""

    name: str
    asked: str
    got: str

    @property
    def is_breach(self) -> bool:
        """Promised and yet open."""
        return self.asked == "refused" and self.got != "refused"


@dataclass(frozen=True, slots=True)
class Tier:
    """The chosen tier with its self-test, the notes of the lane, and why better tiers failed."""

    name: str
    checks: tuple[SelfCheck, ...]
    notes: Mapping[str, Any]
    failed: Mapping[str, str]

    @property
    def has_scratch(self) -> bool:
        """Whether runs may write temporary files."""
        return bool(self.notes.get("scratch"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What this tier does not cover, for every report of a run."""
        if self.name == "namespaces":
            return ()
        missing = ["names and sizes of files can be seen"]
        if not self.has_scratch:
            missing.insert(0, "no scratch files")
        if self.notes.get("uid") == os.getuid():
            missing.append("same user as the trainer")
        if self.name == "weak":
            missing = ["every file of this user can be read, the environment of its processes too", *missing]
        return tuple(missing)

    def as_json(self) -> dict[str, Any]:
        """For the manifest of a run."""
        return {
            "tier": self.name,
            "checks": {c.name: {"asked": c.asked, "got": c.got} for c in self.checks},
            "notes": dict(self.notes),
            "failed": dict(self.failed),
            "warnings": list(self.warnings),
        }


_lock = threading.Lock()
_found: dict[str, Tier | str] = {}


def least_tier(option: object) -> str:
    """The least tier an option `sandbox` accepts: a name, or `{least: name}`.

    Raises:
        BadOption: neither.
    """
    name = option.get("least") if isinstance(option, Mapping) and set(option) == {"least"} else option
    if name in (None, "auto"):
        return "landlock"
    if name not in ORDER:
        raise BadOption("sandbox", f"`sandbox` is `least: namespaces | landlock | weak`, not {option!r}")
    return str(name)


def choose(least: str = "landlock") -> Tier:
    """The best tier of this machine that is at least `least`; tried once a process.

    Raises:
        Unavailable: none is; the hint holds the three fixes.
    """
    failed: dict[str, str] = {}
    for name in ORDER[: ORDER.index(least) + 1]:
        tier = try_tier(name)
        if isinstance(tier, Tier):
            return Tier(tier.name, tier.checks, tier.notes, failed)
        failed[name] = tier
    reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
    hint = next((mend for words, mend in MENDS if words.lower() in reasons.lower()), FIXES)
    raise Unavailable(f"no sandbox for model code on this machine ({reasons})", hint)


def try_tier(name: str) -> Tier | str:
    """The tier with its self-test, or why it cannot be had."""
    with _lock:
        if name not in _found:
            _found[name] = _try(name)
        return _found[name]


def _try(name: str) -> Tier | str:
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    try:
        with ScratchFolder() if name == "landlock" else contextlib.nullcontext("") as scratch:
            return _tried(name, scratch)
    except (LaneFailed, OSError) as err:
        return str(err)


def _tried(name: str, scratch: str) -> Tier | str:
    lane = Lane(name, scratch=scratch)
    try:
        checks = self_test(lane)
    except (LaneFailed, OSError, ValueError) as err:
        return f"the self-test failed: {err}"
    finally:
        lane.close()
    broken = [c for c in checks if c.is_breach]
    if broken:
        return "the self-test found open: " + ", ".join(f"{c.name} ({c.got})" for c in broken)
    return Tier(name, checks, lane.notes, {})


def self_test(lane: Lane) -> tuple[SelfCheck, ...]:
    """Try inside a run of this lane what must not work."""
    with tempfile.TemporaryDirectory(prefix="grpo-probe-") as folder:
        canary = os.path.join(folder, "canary")
        with open(canary, "w", encoding="utf-8") as file:
            file.write("x")
        home = os.path.realpath(os.path.expanduser("~"))
        given: dict[str, Any] = {
            "canary": canary,
            "home": home,
            "home_names": _private_names(home),
            "outside": os.path.join(folder, "written"),
            "host_pid": os.getpid(),
            "variable": next(iter(os.environ), "PATH"),
            "memory_mb": PROBE_MB,
        }
        with memory_files(payload=json.dumps(given).encode(), results=None) as fds:
            lane.run("probe", fds, limits_of("plain", 5.0, PROBE_MB, output_bytes=1 << 20))
            got = json.loads(read_file(fds["results"], 1 << 16))
        if os.path.exists(given["outside"]):
            got["write outside"] = "wrote it"
    promised = ENFORCED[lane.tier]
    rows = [
        SelfCheck(name, "refused" if name in promised else "open", what or "refused")
        for name, what in got.items()
        if name not in ("scratch files", "own uid")
    ]
    wanted = "writable" if lane.notes.get("scratch") else "none"
    rows.append(SelfCheck("scratch files", wanted, got["scratch files"] or "none"))
    return (*rows, SelfCheck("own uid", "not the trainer's" if lane.tier == "namespaces" else "any", got["own uid"]))


def _private_names(folder: str) -> list[str]:
    """Names in a folder that lead to nothing a lane may see."""
    shown = host_view().readable
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [n for n in names if not any((s + "/").startswith(os.path.join(folder, n) + "/") for s in shown)][:200]
