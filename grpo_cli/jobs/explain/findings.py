"""What a finding means, for `grpo explain CODE`: its rule's docstring, the numbers it shows, and the bounds it goes by."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

from grpo_cli.findings import alarms, health, samples, trends
from grpo_cli.findings.evidence import EVIDENCE
from grpo_cli.findings.finding import Limits

Rule = Callable[..., Any]


SHOWN_AS = {
    "W23": {"repeated_growth": "growth"},
    "W32": {"kl_far": "kl", "kl_jump": "kl_growth"},
    "W33": {"stalled_entropy_left": "entropy_left", "flat_gain": "gain", "stalled_steps": "flat_steps"},
    "W44": {"right_gain": "flat", "stalled_steps": "flat_steps"},
}
"""Bounds that `--json` has always named without what tells them from another finding's: its keys are a promise."""


def rules() -> dict[str, Rule]:
    """Every rule by the code its docstring begins with."""
    every: tuple[Rule, ...] = (*health.RULES, *trends.RULES, *alarms.ALARM_RULES, samples.duplicate_rows)
    found: dict[str, Rule] = {}
    for rule in every:
        if match := re.match(r"(W\d\d): ", inspect.getdoc(rule) or ""):
            found[match[1]] = rule
    return dict(sorted(found.items()))


def describe(code: str) -> dict[str, Any]:
    """The finding as data."""
    rule = rules()[code]
    source = inspect.getsource(rule)
    bounds = {
        SHOWN_AS.get(code, {}).get(field.name, field.name): field.default
        for field in dataclasses.fields(Limits)
        if re.search(rf"\blimits\.{field.name}\b", source)
    }
    return {
        "finding": code,
        "summary": (inspect.getdoc(rule) or "").split(": ", 1)[1],
        "evidence": list(EVIDENCE.get(code, ())),
        "bounds": bounds,
        "monitor": alarms.MONITORS.get(code),
        "when": "during the run and after it"
        if rule.__module__ == health.__name__ or code in alarms.MONITORS
        else "by `grpo doctor RUN` and in the report",
    }


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    summary = described["summary"]
    lines = [
        f"{described['finding']}: {summary[:1].lower()}{summary[1:]}",
        "",
        f"said       {described['when']}",
    ]
    if described["monitor"]:
        lines.append(f"an alarm   `monitor.on_alarm: {{{described['monitor']}: warn | pause | roll_back}}`")
    if described["evidence"]:
        lines.append(f"looks at   {', '.join(described['evidence'])}")
    if described["bounds"]:
        lines.append(
            "bounds     " + "   ".join(f"{name} {value:g}" for name, value in described["bounds"].items())
        )
    return "\n".join(lines)
