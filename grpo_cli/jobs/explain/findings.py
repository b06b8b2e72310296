"""What a finding means, for `grpo explain CODE`: its rule's docstring, the numbers it shows, and the bounds it goes by."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

from grpo_cli.findings import alarms, health, samples, trends
from grpo_cli.findings.evidence import EVIDENCE
from grpo_cli.findings.finding import Limits

Rule = Callable[..., Any]
WIDTH = 100


SHOWN_AS = {
    "W23": {"repeated_growth": "growth"},
    "W32": {"kl_far": "kl", "kl_jump": "kl_growth"},
    "W33": {"stalled_entropy_left": "entropy_left", "flat_gain": "gain", "stalled_steps": "flat_steps"},
    "W44": {"right_gain": "flat", "stalled_steps": "flat_steps"},
}
"""Bounds that `--json` has always named without what distinguishes them from another finding's: its keys are a promise."""

REMEDIES = {
    "W10": "easier or other rows, a larger `sample.group`, a higher `sample.temperature`; `grpo probe` says which would help",
    "W11": "easier rows, a larger `sample.group`, a `warmup`, or a stronger model; `grpo probe` measures before the next run",
    "W12": "harder rows: `data.where` keeps some, `train.select: screen` leaves out what is solved",
    "W20": "raise `sample.max_tokens`, or shape with `train.overlong`; see that the chat template is the model's",
    "W21": "read the right samples that became short; where they guess, make another verifier a condition (`combine.gate`)",
    "W22": "read the longest samples for what earns there; `shaping.length` and `train.overlong` take reward off length",
    "W23": "`shaping.repetition` takes reward off such answers; a lower `train.lr` keeps the model nearer to its start",
    "W30": "lower `train.lr`, or raise `train.clip.high`; an earlier checkpoint still has its entropy",
    "W31": "stop at the best checkpoint, or raise `train.kl.beta` (with `train.dead_groups: keep`)",
    "W32": "go back to an earlier checkpoint and lower `train.lr`, or add `train.lr_warmup_steps`",
    "W33": "go back to an earlier checkpoint with a lower `train.lr` or a higher `train.clip.high`; or rows that are less hard",
    "W34": "raise `train.critic.warmup_steps`, or change `train.critic.lr`",
    "W35": "a warm-up that repeats its rows less often (`steps`, or more rows), a higher `sample.temperature`; a larger group helps nothing",
    "W40": "read `reason` in the samples without a verdict and mend the verifier; they have no reward until then",
    "W41": "more cores, or a tighter time limit in the verifier's options",
    "W42": "score samples from before and after that step again with `grpo verify`: the verifier, or what it calls, has changed",
    "W43": "lower the weight of one part, or make it a condition (`combine.gate`)",
    "W44": "lower the weight of the part that is full, or make it a condition (`combine.gate`)",
    "W45": "read the part's reasons in the samples; take it out of `verify`, or set `weight: 0`, if it can give nothing else",
    "W46": "show the form of an action in the prompt or by a `warmup`; raise `environment.turn_tokens` where it cuts them off",
    "W47": "lower `train.credit.reward`, or name fewer milestones",
    "W48": "let the environment return a `state` without history or step counter, set `train.credit.similarity`; name milestones that are reached now and then; or do without",
    "W49": "`trusted_objects: true` in the verifier's options lets such objects decide, at the risk of being cheated",
    "W50": "a smaller `train.max_grad_norm`, a lower `train.lr`, or more `train.lr_warmup_steps`",
    "W51": "resume from the last checkpoint, which is good, with a lower `train.lr`",
    "W52": "go back to the checkpoint with the best held-out score, with a lower `train.lr`",
    "W53": "keep the weights it began with; a lower `train.lr`, a higher `train.kl.beta`; read what the reward pays for that held-out rows do not",
    "W60": "drop the copies: they weigh double, and leak where they are held out; `grpo audit data` shows them",
    "W61": "more rows, or fewer steps; `grpo audit data` shows the rows",
    "W62": "`train.alive_by: outcome`, the default, or a list of the verifiers that may teach while all is wrong; `docs/shaping.md` says why",
    "W63": "lower the weight of what is paid beside the outcome, or `only: right` of a shaping term; raise `sample.max_tokens` for `overlong`",
    "W70": "read the samples that only the training verifier likes, and mend it; train on from the best gold score",
    "W71": "read the canary's samples: `grpo audit data` ranks the rows that may teach this; or the reward pays for it",
}
"""What to do about each, in the order in which it is worth trying."""


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
        "remedy": REMEDIES[code],
        "bounds": bounds,
        "monitor": alarms.MONITORS.get(code),
        "when": "during the run and after it"
        if rule in (*health.RULES, *alarms.ALARM_RULES) or code in alarms.MONITORS
        else "by `grpo doctor RUN` and in the report",
    }


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    summary = described["summary"]
    lines = [f"{described['finding']}: {summary[:1].lower()}{summary[1:]}", "", f"said       {described['when']}"]
    lines += textwrap.wrap(described["remedy"], WIDTH, initial_indent="remedy     ", subsequent_indent=" " * 11)
    if described["monitor"]:
        lines.append(f"an alarm   `monitor.on_alarm: {{{described['monitor']}: warn | pause | roll_back}}`")
    if described["evidence"]:
        lines.append(f"looks at   {', '.join(described['evidence'])}")
    if described["bounds"]:
        lines.append("bounds     " + "   ".join(f"{name} {value:g}" for name, value in described["bounds"].items()))
    return "\n".join(lines)
