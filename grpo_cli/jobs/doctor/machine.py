"""What a training run needs of this machine beside the sandbox: versions that agree, a torch that fits, room on disk.

Nothing here imports torch: its build is read from its files, so that `grpo doctor` answers at once.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OURS = "grpo-cli"
CHECKED = ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "vllm", "math-verify", "deepspeed")
"""Packages whose own demands are held against what is installed."""
PARSERS = ("4.13.2", "4.11.0", "4.9.3")
"""Versions of the antlr4 runtime that the LaTeX parser of math-verify was generated for; others fail at the first parse."""
LEAST_GIB = 2.0
"""Less room than this is a finding: a checkpoint of a small model with its optimizer."""
SHARED_GIB = 1.0
"""Less shared memory than this stops NCCL between several GPUs of one machine."""


@dataclass(frozen=True, slots=True)
class MachineProblem:
    """Something that will break a run here, and what to do."""

    text: str
    hint: str

    def as_json(self) -> dict[str, str]:
        """The object in `--json`."""
        return {"text": self.text, "hint": self.hint}


def troubles(runs: str, gpus: int) -> list[MachineProblem]:
    """Everything known to clash or to be short; empty on a good machine."""
    return [*_versions(), *_parser(), *_torch(), *_room(runs, gpus)]


def facts(runs: str) -> dict[str, Any]:
    """The torch build, the driver, and free space where runs, caches and temporary files go."""
    return {
        "torch_build": torch_build(),
        "driver": driver(),
        "disk_gib": {name: free_gib(path) for name, path in places(runs).items()},
    }


def torch_build() -> str | None:
    """`cuda 13.0`, `hip 6.4`, `cpu`; None without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return None
    for name in ("cuda", "hip"):
        if found := re.search(rf"^{name}\b[^=\n]*= *'([^']+)'", text, re.M):
            return f"{name} {found[1]}"
    return "cpu"


def driver() -> str | None:
    """Version of the NVIDIA driver that is loaded; None where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"Kernel Module[^\d\n]*([\d.]+)", text)
    return found[1] if found else "unknown"


def places(runs: str) -> dict[str, Path]:
    """Where much is written: run folders, our cache, the hub's cache, temporary files, shared memory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    ours = Path(os.environ.get("GRPO_CACHE") or cache / "grpo")
    hub = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    named = {"runs": Path(runs), "cache": ours, "hub": hub, "tmp": Path(tempfile.gettempdir())}
    return named | ({"shm": Path("/dev/shm")} if Path("/dev/shm").is_dir() else {})


def free_gib(path: Path) -> float | None:
    """Free GiB at a path that may not exist yet; None where it cannot be asked."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return round(shutil.disk_usage(place).free / 2**30, 1)
    except OSError:
        return None


def demands(name: str) -> list[str]:
    """What a distribution requires; our own also from a source tree that is not installed."""
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        project = Path(__file__).parents[3] / "pyproject.toml"
        if name != OURS or not project.is_file():
            return []
        told = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        extras = told.get("optional-dependencies", {})
        return [*told["dependencies"], *(f"{one}; extra == '{extra}'" for extra in extras for one in extras[extra])]


def unmet(name: str, required: Sequence[str]) -> Iterator[MachineProblem]:
    """Demands of a package on installed ones that are not met; what is not installed is only missed if it must be there."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in required:
        try:
            demand = Requirement(text)
        except InvalidRequirement:
            continue
        optional = demand.marker is not None and not demand.marker.evaluate({"extra": ""})
        if optional and name != OURS:
            continue
        try:
            found = metadata.version(demand.name)
        except metadata.PackageNotFoundError:
            if not optional:
                yield MachineProblem(
                    f"{name} needs {demand.name}{demand.specifier}, it is not installed", _install(demand)
                )
            continue
        if not demand.specifier.contains(found, prereleases=True):
            yield MachineProblem(
                f"{name} needs {demand.name}{demand.specifier}, installed is {found}", _install(demand)
            )


def _install(demand: Requirement) -> str:
    return f"pip install '{demand.name}{demand.specifier}'"


def _versions() -> Iterator[MachineProblem]:
    for name in (OURS, *CHECKED):
        yield from unmet(name, demands(name))


def _parser() -> Iterator[MachineProblem]:
    try:
        found = metadata.version("antlr4-python3-runtime")
    except metadata.PackageNotFoundError:
        return
    if found not in PARSERS:
        yield MachineProblem(
            f"antlr4-python3-runtime {found} cannot read the grammar of latex2sympy2-extended",
            f"pip install 'antlr4-python3-runtime=={PARSERS[0]}' (hydra and omegaconf ask for an older one)",
        )


def _torch() -> Iterator[MachineProblem]:
    build, loaded = torch_build(), driver()
    if build == "cpu" and loaded is not None:
        yield MachineProblem(
            f"an NVIDIA driver ({loaded}) is loaded, but this torch is built for the CPU",
            "install the CUDA build of torch from pytorch.org",
        )


def _room(runs: str, gpus: int) -> Iterator[MachineProblem]:
    for name, path in places(runs).items():
        free = free_gib(path)
        least = SHARED_GIB if name == "shm" else LEAST_GIB
        if free is None or free >= least or (name == "shm" and gpus < 2):
            continue
        where = {"runs": "`run.dir`", "cache": "`GRPO_CACHE`", "hub": "`HF_HOME`", "tmp": "`TMPDIR`"}.get(name)
        hint = f"free some, or set {where}" if where else "raise it: `docker run --shm-size=8g`, or remount /dev/shm"
        yield MachineProblem(f"{free:g} GiB are free in {path} ({name})", hint)
