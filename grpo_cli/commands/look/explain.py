"""`grpo explain`: parse, look the name up, print. What is printed is generated from the code, so it cannot be out of date."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from grpo_cli.errors import SetupError, UsageError

if TYPE_CHECKING:
    from grpo_verifiers.verifier import Verifier

WIDTH = 100


class Subject(NamedTuple):
    """A kind of thing that can be explained: how its names are found and what is said about one."""

    title: str
    names: Callable[[], Iterable[str]]
    describe: Callable[[str], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    brief: str = ""
    """What stands for the names where all are listed, if they are too many."""


def explain(
    name: Annotated[str | None, typer.Argument(help="A name; without one the names are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object on stdout.")] = False,
) -> None:
    """Say what a verifier does, with examples judged now, what an algorithm computes, what a key of the recipe means.

    \b
    Examples:
      grpo explain
      grpo explain math
      grpo explain dapo
      grpo explain train.prune
      grpo explain math --json
    """
    if name is None:
        listed = {subject.title: sorted(subject.names()) for subject in SUBJECTS}
        lines = [f"{s.title}: {s.brief or ', '.join(listed[s.title])}" for s in SUBJECTS]
        print(json.dumps(listed) if as_json else "\n".join(lines))
        return
    for subject in SUBJECTS:
        if name in subject.names():
            described = subject.describe(name)
            print(json.dumps(described, ensure_ascii=False) if as_json else subject.render(described))
            return
    from grpo_verifiers.names import nearest

    known = [one for subject in SUBJECTS for one in subject.names()]
    near = [one for one in known if one.endswith(f".{name}")] or [n for n in [nearest(name, known)] if n]
    raise UsageError(
        f"nothing is called `{name}`",
        hint=f"did you mean {' or '.join(f'`{n}`' for n in near)}?"
        if near
        else "`grpo explain` lists the names",
    )


def verifier_names() -> Iterable[str]:
    """Kinds of verifiers."""
    from grpo_verifiers import KINDS

    return KINDS


def describe_verifier(kind: str) -> dict[str, Any]:
    """Summary, columns, options and examples of a verifier, from its class."""
    from grpo_verifiers import BadOption
    from grpo_verifiers.registry import kind_class

    try:
        cls = kind_class(kind)
    except BadOption as err:
        raise SetupError(str(err), hint="mend or remove the package that brings it") from err
    columns = cls.columns if isinstance(cls.columns, tuple) else ()
    return {
        "kind": kind,
        "summary": " ".join((cls.__doc__ or "").split()),
        "columns": list(columns),
        "options": options_of(cls.Options),
        "examples": examples_of(kind, cls),
    }


def options_of(options: type) -> list[dict[str, Any]]:
    """Every option with its type, default and the text that stands below it in the source."""
    import ast
    import dataclasses
    import inspect
    import textwrap

    documented: dict[str, str] = {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(options)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for field, text in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
        ):
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
        out.append({"name": f.name, "type": kind, "default": default, "about": documented.get(f.name, "")})
    return out


def examples_of(kind: str, cls: type[Verifier]) -> list[dict[str, Any]]:
    """The verifier's own examples, judged now; those that this machine cannot judge say so."""
    from grpo_verifiers import BadGold, BadOption, Unavailable, build

    out: list[dict[str, Any]] = []
    open_verifiers: list[Verifier] = []
    for example in getattr(cls, "examples", list)():
        line: dict[str, Any] = {
            "row": example.row,
            "completion": example.completion,
            "options": example.options or {},
            "shows": example.why,
        }
        try:
            verifier = build(kind, **(example.options or {}))
            open_verifiers.append(verifier)
            verdict = verifier.verify(example.completion, example.row)
            line |= {"outcome": verdict.outcome.value, "score": verdict.score, "reason": verdict.reason}
        except (BadGold, BadOption, Unavailable) as err:
            line |= {"outcome": None, "score": None, "reason": str(err)}
        out.append(line)
    for verifier in open_verifiers:
        verifier.close()
    return out


def render_verifier(described: dict[str, Any]) -> str:
    """The text form of `describe_verifier`."""
    lines = [f"{described['kind']}: {described['summary']}"]
    if described["columns"]:
        lines += ["", f"reads      {', '.join(described['columns'])}"]
    lines += ["", "options"]
    for option in described["options"]:
        lines.append(f"  {option['name']}: {option['type']} = {option['default']!r}")
        lines += wrapped(option["about"], "      ")
    if described["examples"]:
        lines += ["", "examples, judged now"]
        lines += table(described["examples"])
    return "\n".join(lines)


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of a paragraph."""
    import textwrap

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


def algorithm_names() -> Iterable[str]:
    """Named methods of `train.algorithm`."""
    from grpo_cli.recipe.presets import PRESETS

    return PRESETS


def describe_algorithm(name: str) -> dict[str, Any]:
    """Formula, source and the fields its preset sets."""
    from grpo_cli.jobs.explain.algorithms import describe

    return describe(name)


def render_algorithm(described: dict[str, Any]) -> str:
    """The text form of `describe_algorithm`."""
    from grpo_cli.jobs.explain.algorithms import render

    return render(described)


def selector_names() -> Iterable[str]:
    """Ways to choose rows, of `train.select`."""
    from grpo_cli.curriculum.select import strategies

    return strategies()


def describe_selector(name: str) -> dict[str, Any]:
    """What a strategy does, from its class."""
    from inspect import getdoc

    from grpo_cli.curriculum.select import strategies

    return {"selector": name, "summary": getdoc(strategies()[name]) or ""}


def render_selector(described: dict[str, Any]) -> str:
    """The text form of `describe_selector`."""
    return f"{described['selector']}\n\n{described['summary']}\n\nset with `train.select: {described['selector']}`"


def sampling_names() -> Iterable[str]:
    """Ways to draw samples that are no engine's own."""
    return ["reuse"]


def describe_sampling(name: str) -> dict[str, Any]:
    """What it does and what it biases, from its class."""
    from inspect import getdoc

    from grpo_cli.rollout.reuse.engine import PrefixReuse

    return {"sampling": name, "summary": getdoc(PrefixReuse) or "", "set": "sample.reuse: {lenience: 1.0}"}


def render_sampling(described: dict[str, Any]) -> str:
    """The text form of `describe_sampling`."""
    return f"{described['sampling']}\n\n{described['summary']}\n\nset with `{described['set']}`"


def strategy_names() -> Iterable[str]:
    """How processes share the training, of `launch.strategy`."""
    from grpo_cli.recipe.checking.strategy import STRATEGIES

    return STRATEGIES


def describe_strategy(name: str) -> dict[str, Any]:
    """What each process holds."""
    from grpo_cli.recipe.checking.strategy import describe

    return describe(name)


def render_strategy(described: dict[str, Any]) -> str:
    """The text form of `describe_strategy`."""
    about = "\n".join(wrapped(described["summary"], ""))
    return f"{described['strategy']}\n\n{about}\n\nset with `launch.strategy: {described['strategy']}`"


def finding_codes() -> Iterable[str]:
    """Codes of what can be found wrong with a run."""
    from grpo_cli.jobs.explain.findings import rules

    return rules()


def describe_finding(code: str) -> dict[str, Any]:
    """What a rule looks at, from its function."""
    from grpo_cli.jobs.explain.findings import describe

    return describe(code)


def render_finding(described: dict[str, Any]) -> str:
    """The text form of `describe_finding`."""
    from grpo_cli.jobs.explain.findings import render

    return render(described)


def recipe_keys() -> Iterable[str]:
    """Keys of a recipe, by path or by a last part that is theirs alone."""
    from grpo_cli.jobs.explain.keys import key_names

    return key_names()


def describe_key(name: str) -> dict[str, Any]:
    """Meaning, values and default, from the recipe's models."""
    from grpo_cli.jobs.explain.keys import describe

    return describe(name)


def render_key(described: dict[str, Any]) -> str:
    """The text form of `describe_key`."""
    from grpo_cli.jobs.explain.keys import render

    return render(described)


SUBJECTS: tuple[Subject, ...] = (
    Subject("verifiers", verifier_names, describe_verifier, render_verifier),
    Subject("algorithms", algorithm_names, describe_algorithm, render_algorithm),
    Subject("selectors", selector_names, describe_selector, render_selector),
    Subject("sampling", sampling_names, describe_sampling, render_sampling),
    Subject("strategies", strategy_names, describe_strategy, render_strategy),
    Subject("findings", finding_codes, describe_finding, render_finding),
    Subject("keys", recipe_keys, describe_key, render_key, "of the recipe, as `train.prune` or `prune`"),
)
"""What can be explained, the first that knows a name; metrics join by adding a line."""
