"""What can be explained, kind by kind; each is imported when it is asked for, so that listing names stays quick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from grpo_cli.errors import UsageError
from grpo_cli.recipe.checking.other_names import method_elsewhere, misspelt, same_letters
from grpo_verifiers.names import nearest

WIDTH = 100


class Subject(NamedTuple):
    """A kind of thing that can be explained: how its names are found and what is said about one."""

    title: str
    names: Callable[[], Iterable[str]]
    describe: Callable[[str], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    brief: str = ""
    """What stands for the names where all are listed, if they are too many."""


def verifier_names() -> Iterable[str]:
    """Kinds of verifiers."""
    from grpo_verifiers import KINDS

    return KINDS


def describe_verifier(kind: str) -> dict[str, Any]:
    """Summary, columns, options and examples, from its class."""
    from grpo_cli.jobs.explain.verifiers import describe

    return describe(kind)


def render_verifier(described: dict[str, Any]) -> str:
    """The text form of `describe_verifier`."""
    from grpo_cli.jobs.explain.verifiers import render

    return render(described)


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


def preference_names() -> Iterable[str]:
    """`prefer`, and values of `prefer.loss`."""
    from grpo_cli.jobs.explain.preferences import names

    return names()


def describe_preference(name: str) -> dict[str, Any]:
    """What a step of pairs is, or a loss with its formula and source."""
    from grpo_cli.jobs.explain.preferences import describe

    return describe(name)


def render_preference(described: dict[str, Any]) -> str:
    """The text form of `describe_preference`."""
    from grpo_cli.jobs.explain.preferences import render

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


def credit_names() -> Iterable[str]:
    """Ways to give credit to turns, of `train.credit`."""
    from grpo_cli.recipe.checking.turn_credit import CREDITS

    return CREDITS


def describe_credit(name: str) -> dict[str, Any]:
    """What it compares, and when it cannot help."""
    from grpo_cli.recipe.checking.turn_credit import describe

    return describe(name)


def render_credit(described: dict[str, Any]) -> str:
    """The text form of `describe_credit`."""
    import textwrap

    name, about = described["credit"], textwrap.fill(described["summary"], WIDTH)
    reads = ", ".join(f"`{key}`" for key in described["reads"])
    return f"{name}\n\n{about}\n\nset with `train.credit: {name}`, or `{{method: {name}, …}}` with {reads} or `weight`"


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
    import textwrap

    about = textwrap.fill(described["summary"], WIDTH)
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


def row_pages() -> Iterable[str]:
    """Templates, filters and chat rows, and each filter."""
    from grpo_cli.jobs.explain.rows import names

    return names()


def describe_rows(name: str) -> dict[str, Any]:
    """How rows become prompts and golds, with examples worked now."""
    from grpo_cli.jobs.explain.rows import describe

    return describe(name)


def render_rows(described: dict[str, Any]) -> str:
    """The text form of `describe_rows`."""
    from grpo_cli.jobs.explain.rows import render

    return render(described)


SUBJECTS: tuple[Subject, ...] = (
    Subject("verifiers", verifier_names, describe_verifier, render_verifier),
    Subject("credit", credit_names, describe_credit, render_credit),
    Subject("algorithms", algorithm_names, describe_algorithm, render_algorithm),
    Subject("preferences", preference_names, describe_preference, render_preference),
    Subject("selectors", selector_names, describe_selector, render_selector),
    Subject("strategies", strategy_names, describe_strategy, render_strategy),
    Subject("findings", finding_codes, describe_finding, render_finding),
    Subject("rows", row_pages, describe_rows, render_rows),
    Subject("keys", recipe_keys, describe_key, render_key, "of the recipe, as `train.prune` or `prune`"),
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
    methods = [*algorithm_names(), *preference_names()]
    if (
        near
        and near[0] in methods
        and (own := same_letters(name, methods) or misspelt(name, methods)) != near[0]
    ):
        near = [own] if own else []
    raise UsageError(
        f"nothing is called `{name}`",
        hint=f"did you mean {' or '.join(f'`{n}`' for n in near)}?"
        if near
        else method_elsewhere(name) or "`grpo explain` lists the names",
    )
