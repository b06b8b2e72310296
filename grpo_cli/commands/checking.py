"""A recipe checked and said, for `grpo check` and `grpo train --dry-run` alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.errors import Exit, UserError
from grpo_cli.text import Json, raw, strict_json

if TYPE_CHECKING:
    from grpo_cli.jobs.check.findings import CheckFinding
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from grpo_cli.jobs.check.show import ShownPrompt
    from grpo_cli.recipe.sections.recipe import Recipe

SCHEMA = 1
ALL = 1_000_000_000
"""Rows: a dry run looks at every one, as training does."""


def run_check(check: RecipeCheck, name: str, *, as_json: bool, shows: bool = False) -> Exit:
    """Print each answer as soon as it is known, or one object at the end; `shows` the first prompt as the model gets it."""
    from grpo_cli.jobs.check.findings import exit_code
    from grpo_cli.jobs.check.show import example, summary, text

    began = time.perf_counter()
    findings: list[CheckFinding] = []
    for finding in check.findings():
        findings.append(finding)
        if not as_json:
            print("\n".join(text(finding, sys.stdout.isatty())), file=raw(sys.stdout), flush=True)
    code = exit_code(findings)
    seconds = time.perf_counter() - began
    shown = _shown(check) if shows else None
    if as_json:
        more: dict[str, Json] = {"prompt": shown.as_json()} if shown else {}
        print(strict_json({**report(name, findings, code, seconds), **more}))
    else:
        prompt = shown.lines() if shown else example(check.sample_row)
        print("\n".join(["", *prompt, summary(name, findings, seconds)]))
    return code


def report(name: str, findings: Sequence[CheckFinding], code: Exit, seconds: float) -> dict[str, Json]:
    """The object that `--json` prints."""
    return {
        "schema": SCHEMA,
        "recipe": name,
        "ok": code == Exit.OK,
        "exit": int(code),
        "seconds": round(seconds, 3),
        "checks": [finding.as_json() for finding in findings],
    }


def _shown(check: RecipeCheck) -> ShownPrompt | None:
    """The prompt of the first row; None where a finding says why there is none."""
    from grpo_cli.jobs.check.show import show_prompt
    from grpo_cli.jobs.check.tokens import UnknownTokens

    if check.sample_row is None:
        return None
    try:
        return show_prompt(check.maker, check.sample_row)
    except (UserError, UnknownTokens):
        return None


def show_plan(recipe: Recipe, base: Path, name: str, *, as_json: bool) -> Exit:
    """What would be trained, and what `grpo check` says of it; what forbids it is told on stderr, and nothing else then."""
    from grpo_cli.jobs.check.findings import Level, exit_code
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from grpo_cli.jobs.check.show import text
    from grpo_cli.recipe.reading.dump import to_yaml
    from grpo_cli.recipe.sections.course import STRATEGIES

    began = time.perf_counter()
    findings = list(RecipeCheck(recipe, base, ALL, all_golds=True, is_stdin=name == "-").findings())
    code = exit_code(findings)
    if as_json:
        effective: Json = recipe.model_dump(mode="json", by_alias=True)
        print(strict_json({**report(name, findings, code, time.perf_counter() - began), "effective": effective}))
        return code
    failed = [finding for finding in findings if finding.level is Level.FAIL]
    if failed:
        print("\n".join(line for finding in failed for line in text(finding, False)), file=sys.stderr)
        return code
    print(to_yaml(recipe))
    for finding in findings:
        print("\n".join(text(finding, sys.stdout.isatty())), file=raw(sys.stdout))
    if recipe.launch.strategy != "ddp":
        print(f"{recipe.launch.strategy}: {STRATEGIES[recipe.launch.strategy]}")
    return code
