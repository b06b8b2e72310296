"""The page of what else has a name: methods, losses of preferences, ways to choose rows, credit, strategies, findings."""

from __future__ import annotations

import re
from typing import Any

from docs.generate.markdown import code, fenced, head, table
from grpo_cli.jobs.explain import methods
from grpo_cli.jobs.explain.subjects import SUBJECTS, describe_finding, rules

ABOUT = """\
What `grpo explain NAME` says of methods, losses, ways to choose rows and to give credit, strategies and findings. The guides are
[methods](../methods.md), [preferences and stages](../preferences.md), [environments](../environments.md),
[several GPUs](../several-gpus.md) and [when nothing learns](../when-nothing-learns.md)."""


def names_page() -> str:
    """`reference/names.md`."""
    parts = [
        head("Methods and findings", ABOUT),
        "## Methods: `train.algorithm`\n",
        f"In formulas: {methods.LEGEND}.\n",
    ]
    parts += [part for name in methods.ALGORITHMS for part in _method(methods.describe_algorithm(name))]
    parts += ["## Preferences: `train.method`\n"]
    parts += [f"### `{name}`\n\n{_lines(about)}\n" for name, about in methods.METHODS.items()]
    parts += ["## Losses of preferences: `prefer.loss`\n", f"In formulas: {methods.LOSS_LEGEND}.\n"]
    parts += [_loss(methods.describe_preference(name)) for name in methods.LOSSES]
    parts += ["## Beside the algorithm\n"]
    parts += [_beside(methods.describe_beside(name)) for name in methods.BESIDE]
    parts += [_named("Row selection: `train.select`", "selectors")]
    parts += [_named("Credit of turns: `train.credit`", "credit")]
    parts += [_named("Sharing the training: `launch.strategy`", "strategies")]
    parts += [
        "## Findings\n",
        "A finding is said with its numbers, during a run or by `grpo doctor RUN` and in the report.\n",
    ]
    parts += [part for code_ in rules() for part in _finding(describe_finding(code_))]
    return "\n".join(parts)


def _lines(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _method(said: dict[str, Any]) -> list[str]:
    sets = ((code(f"train.{key}"), code(_yaml(said["sets"][key]))) for key in said["differs"])
    parts = [f"### `{said['algorithm']}`\n", fenced(said["formula"].replace(";  ", "\n"), "text")]
    parts.append(
        f"Source: {said['source']}. {said['note'][:1].upper()}{said['note'][1:]}{'.' if said['note'] else ''}\n".replace(
            " \n", "\n"
        )
    )
    return [*parts, *([table(("sets, unlike `default`", "to"), sets)] if said["differs"] else [])]


def _yaml(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _loss(said: dict[str, Any]) -> str:
    formula = fenced(said["formula"].replace(";  ", "\n"), "text")
    return f"### `{said['preference']}`\n\n{formula}\nSource: {said['source']}. {said['note'][:1].upper()}{said['note'][1:]}.\n"


def _beside(said: dict[str, Any]) -> str:
    formula = fenced(said["formula"].replace(";  ", "\n"), "text")
    note = f"{said['note'][:1].upper()}{said['note'][1:]}"
    return f"### `{said['beside']}`\n\n{formula}\nSet with `{said['set']}`. Source: {said['source']}. {note}.\n"


def _named(title: str, subject: str) -> str:
    known = next(one for one in SUBJECTS if one.title == subject)
    said = {name: known.describe(name)["summary"] for name in known.names()}
    return f"## {title}\n\n" + "\n".join(f"### `{name}`\n\n{_lines(one)}\n" for name, one in said.items())


def _finding(said: dict[str, Any]) -> list[str]:
    summary = " ".join(said["summary"].split())
    facts = [f"Said {said['when']}.", f"Remedy: {said['remedy']}."]
    if said["monitor"]:
        facts.append(f"An alarm: `monitor.on_alarm: {{{said['monitor']}: warn}}`, or `pause`, or `roll_back`.")
    if said["evidence"]:
        facts.append(f"Looks at {', '.join(code(name) for name in said['evidence'])}.")
    if said["bounds"]:
        facts.append(f"Bounds: {', '.join(code(f'{name} {value:g}') for name, value in said['bounds'].items())}.")
    return [f"### {said['finding']}\n", f"{summary[:1].upper()}{summary[1:]}\n", " ".join(facts) + "\n"]
