"""A recipe checked and printed, for `grpo check` and `grpo train --dry-run` alike.

`run_check` prints each answer of `RecipeCheck` as soon as it is known, then the first row, or with `--show` its prompt exactly as
the model gets it, cut where special tokens stand; `show_plan` prints the effective recipe in their place. `--json` prints one
object at the end. Text of rows and models is escaped first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import Exit, UserError
from grpo_cli.text import Json, raw, strict_json

if TYPE_CHECKING:
    from grpo_cli.data.rows import Row
    from grpo_cli.jobs.check.findings import CheckFinding
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from grpo_cli.recipe.sections.recipe import Recipe

SCHEMA = 1
ALL = 1_000_000_000
"""Rows: a dry run looks at every one, as training does."""


COLOURS = {"ok": "32", "note": "36", "unknown": "33", "warn": "33", "fail": "31"}


def text(finding: CheckFinding, colour: bool) -> list[str]:
    """The text of one check; the level is written as a word, colour only repeats it."""
    word = f"{finding.level.value:<8}"
    if colour:
        word = f"\x1b[{COLOURS[finding.level.value]}m{word}\x1b[0m"
    lines = [f"{word}{finding.check:<12} {escaped(finding.message)}"]
    lines += [f"{'':<21}{escaped(line)}" for line in finding.lines]
    return lines + ([f"{'':<21}hint: {escaped(finding.hint)}"] if finding.hint else [])


def example(row: Row | None) -> list[str]:
    """The first row as the model will get it."""
    if row is None:
        return []
    turns = [("prompt", row.prompt)] if row.messages is None else [(m["role"], m["content"]) for m in row.messages]
    if (gold := row.fields.get("answer")) is not None:
        turns.append(("answer", gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)))
    return [f"the first row, {row.place}:", *(f"  {name:<10} {short(value)}" for name, value in turns), ""]


def summary(recipe: str, findings: Sequence[CheckFinding], seconds: float) -> str:
    """The last lines: counts, and the next command."""
    count = {level: sum(f.level.value == level for f in findings) for level in COLOURS}
    said = [f"{count[level]} {level}" for level in ("fail", "warn", "unknown") if count[level]]
    head = f"{len(findings)} checks in {seconds:.1f} s" + (f": {', '.join(said)}" if said else ", nothing found")
    return head if count["fail"] or recipe == "-" else f"{head}\nnext: grpo train {recipe}"


def short(value: str, most: int = 400) -> str:
    """A value on one line, cut at the end, control characters made visible."""
    line = escaped(value.replace("\n", "⏎"))
    return line if len(line) <= most else line[: most - 1] + "…"


def escaped(value: str) -> str:
    """Text that cannot steer a terminal: control and direction characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def first_prompt(check: RecipeCheck) -> dict[str, Any] | None:
    """The first row's prompt in pieces, each an added token or the tokens between two; None where a finding gives the reason."""
    from grpo_cli.jobs.check.tokens import UnknownTokens

    if (row := check.sample_row) is None:
        return None
    try:
        prompts, encodes = check.maker.prompts, check.maker.encodes
        (ids,) = check.maker.ids([row])
        pieces = []
        for is_added, run in groupby(ids, key=encodes.added.__contains__):
            for token_ids in [[token] for token in run] if is_added else [list(run)]:
                words = encodes.added[token_ids[0]] if is_added else encodes.decode(token_ids)
                pieces.append({"token_ids": token_ids, "text": words, "added": is_added})
        prefix = prompts.assistant_prefix(row)
        return {"place": row.place, "text": prompts.text(row), "begun": prefix, "pieces": pieces}
    except (UserError, UnknownTokens):
        return None


def prompt_lines(shown: dict[str, Any]) -> list[str]:
    """What a person reads: an added token with its id, other text with its number of tokens; escapes as in Python."""
    count = sum(len(piece["token_ids"]) for piece in shown["pieces"])
    lines = [f"the prompt of {shown['place']}, {count:,} tokens:"]
    for piece in shown["pieces"]:
        ids = piece["token_ids"]
        lines.append(f"  {f'[{ids[0]}]' if piece['added'] else f'{len(ids):,} x':>10}  {escaped(piece['text'])}")
    if shown["begun"]:
        lines.append(f"  the answer begins with {escaped(shown['begun'])!r}, which verifiers read")
    return [*lines, ""]


def run_check(check: RecipeCheck, name: str, *, as_json: bool, shows: bool = False) -> Exit:
    """Print each answer as soon as it is known, or one object at the end; `shows` the first prompt as the model gets it."""
    from grpo_cli.jobs.check.findings import exit_code

    began = time.perf_counter()
    findings: list[CheckFinding] = []
    for finding in check.findings():
        findings.append(finding)
        if not as_json:
            print("\n".join(text(finding, sys.stdout.isatty())), file=raw(sys.stdout), flush=True)
    code = exit_code(findings)
    seconds = time.perf_counter() - began
    shown = first_prompt(check) if shows else None
    if as_json:
        more: dict[str, Json] = {"prompt": shown} if shown else {}
        print(strict_json({**report(name, findings, code, seconds), **more}))
    else:
        prompt = prompt_lines(shown) if shown else example(check.sample_row)
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


def show_plan(recipe: Recipe, base: Path, name: str, *, as_json: bool) -> Exit:
    """What would be trained, and what `grpo check` says of it; what forbids it is printed on stderr, and nothing else then."""
    from grpo_cli.jobs.check.findings import Level, exit_code
    from grpo_cli.jobs.check.recipe import RecipeCheck
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
