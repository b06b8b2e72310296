"""The subjects of `grpo explain`: the names of each kind, the data about a name, and its text.

How this works: a `Subject` finds its names and describes one. A verifier is described from its class, and its examples
are judged at that moment; a finding from its rule's docstring; a key from the reference that `docs.generate` writes.
Methods and rows have texts of their own, in the other files of this folder. `find` looks a name up in all subjects.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from grpo_cli.curriculum.select import SELECTORS
from grpo_cli.errors import SetupError, UsageError
from grpo_cli.findings import alarms, health, samples, trends
from grpo_cli.findings.evidence import EVIDENCE
from grpo_cli.findings.finding import Limits
from grpo_cli.jobs.explain import methods, rows
from grpo_cli.recipe.checking.episodes import CREDITS, describe_credit
from grpo_cli.recipe.checking.other_names import method_elsewhere, misspelt, same_letters
from grpo_cli.recipe.sections.course import STRATEGIES, describe_strategy
from grpo_cli.recipe.sections.rewards import kind_class
from grpo_cli.recipe.widening import PRESETS
from grpo_verifiers import KINDS, BadGold, BadOption, Unavailable, build
from grpo_verifiers.names import nearest

WIDTH = 100


class Subject(NamedTuple):
    """A kind of subject: functions that list its names and describe one."""

    title: str
    names: Callable[[], Iterable[str]]
    describe: Callable[[str], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    brief: str = ""
    """What is listed in place of the names, if they are too many."""


def describe_selector(name: str) -> dict[str, Any]:
    """What a way to choose rows does, from its class."""
    return {"selector": name, "summary": inspect.getdoc(SELECTORS[name]) or ""}


def render_named(described: dict[str, Any]) -> str:
    """A selector, a way to give credit or a strategy: its name, what it does, and the line that sets it."""
    (kind, name), about = next(iter(described.items())), described["summary"]
    key = {"selector": "train.select", "credit": "train.credit", "strategy": "launch.strategy"}[kind]
    how = f"set with `{key}: {name}`"
    if kind == "credit":
        reads = ", ".join(f"`{key}`" for key in described["reads"])
        how += f", or `{{method: {name}, …}}` with {reads}"
    return f"{name}\n\n{about if kind == 'selector' else textwrap.fill(about, WIDTH)}\n\n{how}"


@cache
def keys_by_path() -> dict[str, dict[str, Any]]:
    """Summary, values, default, example and inner keys of every key of a recipe. `docs.generate` writes the file from the schema."""
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("keys.json").read_text("utf-8"))
    return found


@cache
def key_names() -> dict[str, str]:
    """The names of a key: its path, and its last part if no other key ends in it."""
    paths = keys_by_path()
    ends = Counter(path.rsplit(".", 1)[-1] for path in paths)
    short = {path.rsplit(".", 1)[-1]: path for path in paths}
    return {name: path for name, path in short.items() if ends[name] == 1} | {path: path for path in paths}


def describe_key(name: str) -> dict[str, Any]:
    """Path, meaning, values, default and an example of a key, and the keys inside it."""
    path = key_names()[name]
    return {"key": path, **keys_by_path()[path]}


def render_key(described: dict[str, Any]) -> str:
    """The text form of `describe_key`."""
    lines = [described["key"], "", *textwrap.wrap(described["summary"], WIDTH), ""]
    if described["values"]:
        lines += textwrap.wrap(described["values"], WIDTH, initial_indent="values   ", subsequent_indent=" " * 9)
    if described["default"] is not None and not described["keys"]:
        lines.append(f"default  {json.dumps(described['default'])}")
    lines += textwrap.indent(described["example"], " " * 9).replace(" " * 9, "example  ", 1).splitlines()
    for path, about in described["keys"].items():
        lines += textwrap.wrap(f"{path}  {about}", WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines).rstrip()


# Verifiers, from their classes.

WORDS = {"str": "text", "int": "integer", "float": "number", "bool": "true | false"}


def describe_verifier(kind: str) -> dict[str, Any]:
    """Summary, columns, options and examples of a verifier, from its class; those that this machine cannot judge have the reason."""
    try:
        cls = kind_class(kind)
    except BadOption as err:
        raise SetupError(str(err), hint="fix or remove the package that adds it") from err
    columns = cls.columns if isinstance(cls.columns, tuple) else ()
    examples: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for one in getattr(cls, "examples", list)():
            options = one.options or {}
            line = {"row": one.row, "completion": one.completion, "options": options, "shows": one.why}
            try:
                verifier = build(kind, **options)
                stack.callback(verifier.close)
                verdict = verifier.verify(one.completion, one.row)
                line |= {"outcome": verdict.outcome.value, "score": verdict.score, "reason": verdict.reason}
            except (BadGold, BadOption, Unavailable) as err:
                line |= {"outcome": None, "score": None, "reason": str(err)}
            examples.append(line)
    return {
        "kind": kind,
        "summary": " ".join((cls.__doc__ or "").split()),
        "columns": list(columns),
        "options": options_of(cls.Options),
        "examples": examples,
    }


def options_of(options: type) -> list[dict[str, Any]]:
    """Every option with its type, default and the text that stands below it in the source."""
    documented: dict[str, str] = {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(options)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                documented[field.target.id] = " ".join(value.value.split())
    out = []
    for f in dataclasses.fields(options):
        if f.default is not dataclasses.MISSING:
            default = f.default
        else:
            default = f.default_factory() if f.default_factory is not dataclasses.MISSING else None
        kind = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        if kind.isidentifier() and kind not in WORDS:  # a type alias: its name means nothing to a user
            kind = str(typing.get_type_hints(options)[f.name]).replace("typing.", "")
        out.append({"name": f.name, "type": kind, "default": default, "about": documented.get(f.name, "")})
    return out


def render_verifier(described: dict[str, Any]) -> str:
    """The text form of `describe_verifier`."""
    lines = [f"{described['kind']}: {described['summary']}"]
    if described["columns"]:
        lines += ["", f"reads      {', '.join(described['columns'])}"]
    lines += ["", "options"]
    for option in described["options"]:
        default = "" if option["default"] is None else f", default {json.dumps(option['default'], default=str)}"
        lines.append(f"  {option['name']}: {in_words(option['type'])}{default}")
        lines += wrapped(option["about"], "      ")
    if described["examples"]:
        lines += ["", "examples, judged now"]
        lines += table(described["examples"])
    return "\n".join(lines)


def in_words(kind: str) -> str:
    """A type of Python in the words of a recipe's values: `'a' | 'b'`, `text`, `list of number`."""
    words = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace("'", "").replace(", ", " | "), kind)
    words = re.sub(r"\s*\|\s*None\b", "", words)
    words = re.sub(r"dict\[[^\]]*\]", "mapping", words)
    words = re.sub(r"list\[(\w+)\]", r"list of \1", words)
    return re.sub(r"\b(str|int|float|bool)\b", lambda found: WORDS[found[1]], words)


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of a paragraph."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def table(examples: list[dict[str, Any]]) -> list[str]:
    """Outcome, reason, gold and completion of every example, and what it shows."""
    rows = []
    for one in examples:
        gold = one["row"].get("answer", "")
        options = " ".join(f"[{k}: {v}]" for k, v in one["options"].items())
        rows.append(
            (
                "right" if one["outcome"] == "right" else str(one["outcome"] or "—"),
                one["reason"],
                cut(str(gold), 24),
                cut(one["completion"], 40),
                f"{one['shows']} {options}".rstrip(),
            )
        )
    heads = ("verdict", "reason", "gold", "completion", "shows")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(4)]
    return [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in [heads, *rows]
    ]


def cut(text: str, most: int) -> str:
    """One line of at most `most` characters."""
    text = text.replace("\n", "⏎")
    return text if len(text) <= most else text[: most - 1] + "…"


# Findings, from their rules.

Rule = Callable[..., Any]

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
    "W22": "read the longest samples to find what is rewarded there; `shaping.length` and `train.overlong` take reward off length",
    "W23": "`shaping.repetition` takes reward off such answers; a lower `train.lr` keeps the model nearer to its start",
    "W30": "lower `train.lr`, or raise `train.clip.high`; an earlier checkpoint still has its entropy",
    "W31": "stop at the best checkpoint, or raise `train.kl.beta` (with `train.dead_groups: keep`)",
    "W32": "go back to an earlier checkpoint and lower `train.lr`, or add `train.lr_warmup_steps`",
    "W33": "go back to an earlier checkpoint with a lower `train.lr` or a higher `train.clip.high`; or rows that are less hard",
    "W34": "raise `train.critic.warmup_steps`, or change `train.critic.lr`",
    "W35": "a warm-up that repeats its rows less often (`steps`, or more rows), a higher `sample.temperature`; a larger group helps nothing",
    "W40": "read `reason` in the samples without a verdict and fix the verifier; they have no reward until then",
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
    "W54": "compare model, rows, settings and packages with those of the recipe; above the band, read right samples and look for held-out rows among the training rows",
    "W60": "drop the copies: they weigh double, and leak where they are held out; `grpo audit data` shows them",
    "W61": "more rows, or fewer steps; `grpo audit data` shows the rows",
    "W62": "`train.alive_by: outcome`, the default, or a list of the verifiers that may teach while all is wrong; `docs/shaping.md` says why",
    "W63": "lower the weight of what is paid beside the outcome, or `only: right` of a shaping term; raise `sample.max_tokens` for `overlong`",
    "W64": "a teacher closer to the policy (`distil.rate`), less of it (`distil.mix`), or `distil.contrast`, which takes off what any hint changes",
    "W65": "have the verifier say what is wrong without the gold; its details are shown only with `public_detail`",
    "W70": "read the samples that only the training verifier likes, and fix it; train on from the best gold score",
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


def describe_finding(code: str) -> dict[str, Any]:
    """The finding as data: its rule's docstring, the numbers it shows, and the bounds it goes by."""
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


def render_finding(described: dict[str, Any]) -> str:
    """The text form of `describe_finding`."""
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


SUBJECTS: tuple[Subject, ...] = (
    Subject("verifiers", lambda: KINDS, describe_verifier, render_verifier),
    Subject("credit", lambda: CREDITS, describe_credit, render_named),
    Subject("algorithms", lambda: PRESETS, methods.describe_algorithm, methods.render_algorithm),
    Subject(
        "preferences",
        lambda: [*methods.METHODS, *methods.LOSSES],
        methods.describe_preference,
        methods.render_preference,
    ),
    Subject("beside", lambda: methods.BESIDE, methods.describe_beside, methods.render_beside),
    Subject("selectors", lambda: SELECTORS, describe_selector, render_named),
    Subject("strategies", lambda: STRATEGIES, describe_strategy, render_named),
    Subject("findings", rules, describe_finding, render_finding),
    Subject("rows", rows.names, rows.describe, rows.render),
    Subject("keys", key_names, describe_key, render_key, "of the recipe, as `train.prune` or `prune`"),
)
"""What can be explained, in the order in which several things of one name are."""


def find(name: str) -> list[Subject]:
    """The kinds of things that know the name, at least one: `json` is a verifier and a filter.

    Raises:
        UsageError: nothing is called so; the hint holds the nearest names.
    """
    if found := [subject for subject in SUBJECTS if name in subject.names()]:
        return found
    known = [one for subject in SUBJECTS for one in subject.names()]
    near = [one for one in known if one.endswith(f".{name}")] or [n for n in [nearest(name, known)] if n]
    ways = [*PRESETS, *methods.METHODS, *methods.LOSSES]
    if near and near[0] in ways and (own := same_letters(name, ways) or misspelt(name, ways)) != near[0]:
        near = [own] if own else []
    raise UsageError(
        f"nothing is called `{name}`",
        hint=f"did you mean {' or '.join(f'`{n}`' for n in near)}?"
        if near
        else method_elsewhere(name) or "`grpo explain` lists the names",
    )
