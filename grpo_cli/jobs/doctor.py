"""`grpo doctor`: finds problems of a finished or running run, and of this machine.

`examine_run` collects the data of a run and lists the findings about it. `examine_machine` compares this machine with what a
training run needs: versions that agree, a torch that fits, room on disk. Nothing here imports torch: its build is read from
its files, so that the answer comes at once.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grpo_cli.errors import Exit, UsageError
from grpo_cli.findings.evidence import Diagnosis, diagnose
from grpo_cli.findings.samples import split_of
from grpo_cli.run.find import find_run
from grpo_cli.run.records import SampleRecord, dump_line
from grpo_cli.sizing.cards import NO_BF16
from grpo_cli.text import strict_json, visible
from grpo_verifiers.processes.pool import allowed_cores
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lanes import default_count
from grpo_verifiers.verifier import BadOption, Unavailable

OURS = "grpo-cli"
CHECKED = ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "vllm", "math-verify", "deepspeed")
"""Packages whose requirements are compared with the installed versions."""
PARSERS = ("4.13.2", "4.11.0", "4.9.3")
"""Versions of the antlr4 runtime that the LaTeX parser of math-verify was generated for; others fail at the first parse."""
LEAST_GIB = 2.0
"""Less free disk space than this is a finding: it is the size of a checkpoint of a small model with its optimizer."""
SHARED_GIB = 1.0
"""Less shared memory than this stops NCCL between several GPUs of one machine."""


@dataclass(frozen=True, slots=True)
class MachineProblem:
    """A problem that will break a run here, with a hint."""

    text: str
    hint: str

    def as_json(self) -> dict[str, str]:
        """The object in `--json`."""
        return {"text": self.text, "hint": self.hint}


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
    """Folders that need much space: run folders, our cache, the hub's cache, temporary files, shared memory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    ours = Path(os.environ.get("GRPO_CACHE") or cache / "grpo")
    hub = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    named = {"runs": Path(runs), "cache": ours, "hub": hub, "tmp": Path(tempfile.gettempdir())}
    return named | ({"shm": Path("/dev/shm")} if Path("/dev/shm").is_dir() else {})


def free_gib(path: Path) -> float | None:
    """Free GiB at a path that may not exist yet; None if unknown."""
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
    """Unmet requirements of a package. A package that is not installed is reported only if it is required."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in required:
        try:
            demand = Requirement(text)
        except InvalidRequirement:
            continue
        needed = f"{demand.name}{demand.specifier}"
        optional = demand.marker is not None and not demand.marker.evaluate({"extra": ""})
        if optional and name != OURS:
            continue
        try:
            found = metadata.version(demand.name)
        except metadata.PackageNotFoundError:
            if not optional:
                yield MachineProblem(f"{name} needs {needed}, it is not installed", f"pip install '{needed}'")
            continue
        if not demand.specifier.contains(found, prereleases=True):
            yield MachineProblem(f"{name} needs {needed}, installed is {found}", f"pip install '{needed}'")


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


# The output of `grpo doctor RUN`: each finding with its evidence.

SCHEMA = 1


def examine_run(named: str, folder: str, as_json: bool) -> int:
    """Print the findings of a run with their evidence; returns the exit code.

    Raises:
        DataError: no such run, nothing was recorded yet, or a line is broken.
    """
    run = find_run(named, folder)
    found = diagnose(run)
    if as_json:
        told = {"schema": SCHEMA, "run": str(run.path), "findings": [one.as_json() for one in found]}
        print(dump_line(told), end="")
    else:
        print("\n".join(lines_of(found, run.path)))
    return int(Exit.BAR_MISSED if found else Exit.OK)


def lines_of(found: Sequence[Diagnosis], run: Path) -> list[str]:
    """The text for the terminal; control characters in model text are made harmless."""
    if not found:
        return ["no finding"]
    lines: list[str] = []
    for one in found:
        f = one.finding
        lines += [f"{f.code}  step {f.step}  {visible(f.text)}", f"     hint: {f.hint}"]
        lines += [f"     {e.key:<20} {_number(e.start):>8} → {_number(e.now)}" for e in one.evidence]
        if one.samples:
            held_out = "held-out " if split_of(f.code) == "eval" else ""
            lines.append(f"     {held_out}samples of step {one.samples_step}:")
        lines += [f"       {_sample(record)}" for record in one.samples]
        lines += [f"     next: {visible(one.next)}", ""]
    codes = ", ".join(dict.fromkeys(one.finding.code for one in found))
    return [*lines, f"{len(found)} finding{'s' if len(found) > 1 else ''} in {visible(str(run))}: {codes}"]


def _sample(record: SampleRecord, most: int = 90) -> str:
    text = visible(" ".join(record.completion[-4 * most :].split()))[-most:]
    outcome = record.outcome.value if record.outcome is not None else "no verdict"
    cut = ", cut off" if record.truncated else ""
    return f"{visible(record.row[:12])}  {outcome}  {record.tokens} tokens{cut}  …{text}"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"


PACKAGES = ("torch", "transformers", "trl", "datasets", "peft", "vllm", "math-verify", "numpy", "pandas")
PROGRAMS = ("g++", "node", "coqc")


def examine_machine(least: str, as_json: bool, runs: str = "runs") -> int:
    """Print the machine's properties and the self-test of its sandbox; returns the exit code.

    Raises:
        UsageError: no such tier.
    """
    try:
        least = tiers.least_tier(least)
    except BadOption as err:
        raise UsageError(str(err), place="--least") from err
    try:
        chosen, why = tiers.choose(least).name, ""
    except Unavailable as err:
        chosen, why = None, str(err)
    tried = {name: tiers.try_tier(name) for name in tiers.ORDER}
    known = machine() | {
        "torch_build": torch_build(),
        "driver": driver(),
        "disk_gib": {name: free_gib(path) for name, path in places(runs).items()},
    }
    found = [problem for name in (OURS, *CHECKED) for problem in unmet(name, demands(name))]
    found += [*_parser(), *_torch(), *_room(runs, len(known["gpus"]))]
    if as_json:
        told = {name: t if isinstance(t, str) else t.as_json() for name, t in tried.items()}
        out = {"machine": known, "troubles": [t.as_json() for t in found]}
        print(strict_json({**out, "sandbox": {"tier": chosen, "tiers": told}}, indent=2))
    else:
        packages = "  ".join(f"{name} {version or '—'}" for name, version in known["packages"].items())
        programs = "  ".join(f"{name} {'yes' if path else '—'}" for name, path in known["programs"].items())
        disk = "  ".join(f"{name} {'—' if free is None else f'{free:g}'}" for name, free in known["disk_gib"].items())
        page = [
            f"python    {known['python']}   kernel {known['kernel']}",
            f"machine   {known['cores']} cores   {known['memory_gib'] or '—'} GiB   gpus: {', '.join(known['gpus']) or 'none'}",
            *(f"          {name}: {NO_BF16}" for name in known["no_bfloat16"]),
            f"torch     built for {known['torch_build'] or '—'}   driver {known['driver'] or 'none'}",
            f"free GiB  {disk}",
            f"packages  {packages}",
            f"programs  {programs}",
            f"lanes     {known['lanes']} at a time for model code (cores less gpus)",
            *([] if found else ["troubles  none known"]),
            *(line for one in found for line in (f"trouble   {one.text}", f"          hint: {one.hint}")),
            "",
            *_sandbox_lines(chosen, tried, why),
        ]
        print("\n".join(page))
    if not chosen:
        return int(Exit.SETUP)
    return int(Exit.BAR_MISSED if found else Exit.OK)


def machine() -> dict[str, Any]:
    """Interpreter, cores, memory, GPUs, versions of what matters, programs that some verifiers call."""
    try:
        memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (ValueError, OSError):
        memory = None
    gpus, no_bfloat16 = list[str](), list[str]()
    # torch takes a second to say that there are none
    if any(os.path.exists(f"/dev/{name}") for name in ("nvidiactl", "kfd")) and find_spec("torch") is not None:
        import torch

        from grpo_cli.policy.policy import half_precision

        here = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        gpus = [torch.cuda.get_device_name(device) for device in here]
        no_bfloat16 = sorted({n for n, d in zip(gpus, here, strict=True) if half_precision(d) != torch.bfloat16})
    return {
        "python": f"{platform.python_version()} {platform.machine()} {sys.platform}",
        "kernel": platform.release(),
        "cores": allowed_cores(),
        "memory_gib": memory,
        "gpus": gpus,
        "no_bfloat16": no_bfloat16,
        "lanes": default_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "programs": {name: shutil.which(name) for name in PROGRAMS},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _sandbox_lines(chosen: str | None, tried: Mapping[str, tiers.Tier | str], why: str) -> list[str]:
    lines = [f"sandbox   {chosen or 'none'}"]
    if not chosen:
        lines += [f"          {why}", f"hint: {tiers.FIXES}"]
    found = {name: tier for name, tier in tried.items() if isinstance(tier, tiers.Tier)}
    for name, tier in tried.items():
        if isinstance(tier, str):
            lines.append(f"          {name} cannot be had: {tier}")
    rows = list(dict.fromkeys(check.name for tier in found.values() for check in tier.checks))
    if not found:
        return lines
    tried_in = {
        name: {c.name: f"{c.asked} / {c.got}" + (" !" if c.is_breach else "") for c in tier.checks}
        for name, tier in found.items()
    }
    columns = [["", *rows]] + [[name, *(cells.get(row, "—") for row in rows)] for name, cells in tried_in.items()]
    widths = [max(map(len, column)) + 2 for column in columns]
    lines += ["", "tried inside a run (asked / got)"]
    for cells in zip(*columns, strict=True):
        lines.append("".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())
    for name, tier in found.items():
        lines += [f"{name}: {warning}" for warning in tier.warnings]
    return lines
