"""What `grpo doctor` prints of this machine. The sandbox table is the self-test that a run makes before its first verdict, in every tier."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from grpo_cli.errors import Exit, UsageError
from grpo_cli.findings.evidence import Diagnosis, diagnose
from grpo_cli.findings.samples import split_of
from grpo_cli.jobs.doctor.machine import MachineProblem, facts, troubles
from grpo_cli.run.find import find_run
from grpo_cli.run.records import SampleRecord, dump_line
from grpo_cli.text import strict_json, visible
from grpo_verifiers.processes.pool import allowed_cores
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lanes import default_count
from grpo_verifiers.verifier import BadOption, Unavailable

# What `grpo doctor RUN` prints: each finding with what stands behind it.

SCHEMA = 1


def examine_run(named: str, folder: str, as_json: bool) -> int:
    """Print the findings of a run with what stands behind them; the exit code.

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
    """What a person reads; model text cannot steer the terminal."""
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
    """Print what the machine has and what its sandbox holds; the exit code.

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
    known = machine() | facts(runs)
    found = troubles(runs, len(known["gpus"]))
    if as_json:
        told = {name: t if isinstance(t, str) else t.as_json() for name, t in tried.items()}
        out = {"machine": known, "troubles": [t.as_json() for t in found]}
        print(strict_json({**out, "sandbox": {"tier": chosen, "tiers": told}}, indent=2))
    else:
        page = [*_machine_lines(known), *_trouble_lines(found), "", *_sandbox_lines(chosen, tried, why)]
        print("\n".join(page))
    if not chosen:
        return int(Exit.SETUP)
    return int(Exit.BAR_MISSED if found else Exit.OK)


def machine() -> dict[str, Any]:
    """Interpreter, cores, memory, GPUs, versions of what matters, programs that some verifiers call."""
    return {
        "python": f"{platform.python_version()} {platform.machine()} {sys.platform}",
        "kernel": platform.release(),
        "cores": allowed_cores(),
        "memory_gib": _memory_gib(),
        "gpus": _gpus(),
        "lanes": default_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "programs": {name: shutil.which(name) for name in PROGRAMS},
    }


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _gpus() -> list[str]:
    if not any(os.path.exists(f"/dev/{name}") for name in ("nvidiactl", "kfd")):
        return []  # torch takes a second to say the same
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _trouble_lines(found: Sequence[MachineProblem]) -> list[str]:
    if not found:
        return ["troubles  none known"]
    return [line for one in found for line in (f"trouble   {one.text}", f"          hint: {one.hint}")]


def _machine_lines(facts: Mapping[str, Any]) -> list[str]:
    packages = "  ".join(f"{name} {version or '—'}" for name, version in facts["packages"].items())
    programs = "  ".join(f"{name} {'yes' if path else '—'}" for name, path in facts["programs"].items())
    disk = "  ".join(f"{name} {'—' if free is None else f'{free:g}'}" for name, free in facts["disk_gib"].items())
    return [
        f"python    {facts['python']}   kernel {facts['kernel']}",
        f"machine   {facts['cores']} cores   {facts['memory_gib'] or '—'} GiB   gpus: {', '.join(facts['gpus']) or 'none'}",
        f"torch     built for {facts['torch_build'] or '—'}   driver {facts['driver'] or 'none'}",
        f"free GiB  {disk}",
        f"packages  {packages}",
        f"programs  {programs}",
        f"lanes     {facts['lanes']} at a time for model code (cores less gpus)",
    ]


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
    columns = [["", *rows]] + [
        [name, *(_cell(next((c for c in tier.checks if c.name == row), None)) for row in rows)]
        for name, tier in found.items()
    ]
    widths = [max(map(len, column)) + 2 for column in columns]
    lines += ["", "tried inside a run (asked / got)"]
    for cells in zip(*columns, strict=True):
        lines.append("".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())
    for name, tier in found.items():
        lines += [f"{name}: {warning}" for warning in tier.warnings]
    return lines


def _cell(check: tiers.SelfCheck | None) -> str:
    return "—" if check is None else f"{check.asked} / {check.got}" + (" !" if check.is_breach else "")
