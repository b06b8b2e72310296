"""The verifiers that score lines, and the rule that turns their verdicts into a reward, as plain data that is sent to
workers.

How this works. `from_flags` makes a `ScoringPlan` of the options of `grpo verify`, `from_recipe` of a recipe. A plan
holds only names, options and weights, so it can be sent to a worker process, where `start` builds the verifiers. An
option is checked when the plan is made, so that a mistake is reported before any line is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_cli.errors import RecipeError, SetupError, UsageError
from grpo_cli.recipe.sections.rewards import KINDS, kind_class
from grpo_cli.reward.judge import own_options, rule_of
from grpo_cli.reward.pay import OutcomeRule, ShapingEntry, Terms, build_terms, shaping_entries
from grpo_cli.text import real_path
from grpo_verifiers import BadOption, Unavailable, Verifier, build
from grpo_verifiers.combine import SUM, CombineRule, RewardTerm, check_rule, primary_of


@dataclass(frozen=True, slots=True)
class ScoringEntry:
    """One verifier: kind, options, weight."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    term: RewardTerm = field(default_factory=RewardTerm)


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """Verifiers by name, in order. `source` is where they come from, for messages."""

    entries: Mapping[str, ScoringEntry]
    source: str
    rule: CombineRule = SUM
    shaping: Mapping[str, ShapingEntry] = field(default_factory=dict)
    max_tokens: int | None = None
    """The cap that completions were sampled under, for `overlong`."""
    alive_by: str | Sequence[str] = "outcome"
    """The rule for alive groups, as in `train`."""
    fines: Mapping[str, float] = field(default_factory=dict)
    """The amount that an environment's verifier subtracts for each invalid action."""

    @property
    def terms(self) -> dict[str, RewardTerm]:
        """The weights by name."""
        return {name: entry.term for name, entry in self.entries.items()}

    @property
    def primary(self) -> str:
        """Name of the verifier that decides the outcome."""
        return primary_of(self.terms)

    @property
    def is_gated(self) -> bool:
        """Whether anything is paid besides the outcome that decides whether a group is alive."""
        pays_more = len(self.entries) > 1 or bool(self.shaping) or any(self.fines.values())
        return self.alive_by != "reward" and pays_more

    @property
    def outcome(self) -> OutcomeRule:
        """What the outcome alone pays."""
        return OutcomeRule.of(self.terms, self.rule, self.alive_by, self.fines)

    def build(self) -> dict[str, Verifier]:
        """The verifiers, not started.

        Raises:
            UsageError: an option cannot be meant.
        """
        out = {}
        for name, entry in self.entries.items():
            try:
                out[name] = build(entry.kind, **entry.options)
            except BadOption as err:
                raise UsageError(str(err), place=self._place(name)) from err
        return out

    def shapers(self) -> Terms:
        """Weight and function of each shaping term.

        Raises:
            RecipeError: an option cannot be meant.
        """
        return build_terms(self.shaping, f"{self.source}: shaping `{{}}`")

    def start(self) -> dict[str, Verifier]:
        """The verifiers, started.

        Raises:
            UsageError: an option cannot be meant.
            SetupError: a verifier cannot run here.
        """
        verifiers = self.build()
        for name, verifier in verifiers.items():
            try:
                verifier.start()
            except BadOption as err:
                raise UsageError(str(err), place=self._place(name)) from err
            except Unavailable as err:
                raise SetupError(str(err), place=self._place(name), hint=err.hint) from err
        return verifiers

    def _place(self, name: str) -> str:
        return f"{self.source}: verifier `{name}`" if self.source else f"verifier `{name}`"


def from_flags(
    kinds: Sequence[str],
    *,
    patterns: Sequence[str] = (),
    options: Sequence[str] = (),
    weights: Sequence[str] = (),
    primary: str | None = None,
) -> ScoringPlan:
    """The plan of `--math`, `--code`, `--regex`, `--verifier`, `--option`, `--weight`, `--primary`.

    Raises:
        UsageError: one of them is invalid.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for kind in kinds:
        _add(found, kind, {})
    for pattern in patterns:
        _add(found, "regex", {"pattern": pattern})
    if not found:
        raise UsageError(
            "no verifier",
            hint=f"say `--math`, `--regex PATTERN`, `--recipe FILE` or `--verifier KIND` (known: {', '.join(sorted(KINDS))})",
        )
    for text in options:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise UsageError(f"`--option {text}` is not `KEY=VALUE`")
        name, dot, key = path.partition(".")
        if not dot:
            # a bare key belongs to the only verifier; with several it would be ambiguous
            if len(found) > 1:
                raise UsageError(
                    f"`--option {text}`: say for which verifier", hint=f"such as `{next(iter(found))}.{text}`"
                )
            name, key = next(iter(found)), path
        if name not in found:
            raise UsageError(f"`--option {text}`: no verifier `{name}`", hint=f"verifiers: {', '.join(found)}")
        kind, own = found[name]
        own[key] = _typed(kind, key, value)
    from grpo_cli.recipe.named import refuse_foreign_options

    for kind, own in found.values():
        refuse_foreign_options(kind, own)
    weight_of = {}
    for text in weights:
        name, equals, value = text.partition("=")
        try:
            weight_of[name] = float(value)
        except ValueError:
            equals = ""  # both mistakes get the same message
        if not equals:
            raise UsageError(f"`--weight {text}` is not `NAME=NUMBER`")
        if name not in found:
            raise UsageError(f"`--weight {text}`: no verifier `{name}`", hint=f"verifiers: {', '.join(found)}")
    if primary is not None and primary not in found:
        raise UsageError(f"`--primary {primary}` is none of the verifiers {', '.join(found)}")
    terms = {name: RewardTerm(weight_of.get(name, 1.0), name == primary) for name in found}
    mistakes = check_rule(SUM, terms)
    if mistakes:
        raise UsageError(mistakes[0])
    return ScoringPlan({name: ScoringEntry(kind, opts, terms[name]) for name, (kind, opts) in found.items()}, "")


def _add(found: dict[str, tuple[str, dict[str, Any]]], kind: str, options: dict[str, Any]) -> None:
    # two patterns are two verifiers: `regex`, `regex2`, …
    name, n = kind, 1
    while name in found:
        n += 1
        name = f"{kind}{n}"
    found[name] = (kind, options)


def _typed(kind: str, key: str, text: str) -> Any:
    """The value as the option's declared type; names that no option has are left for `build` to refuse."""
    import typing

    try:
        hint = typing.get_type_hints(kind_class(kind).Options).get(key)
    except BadOption as err:
        raise UsageError(str(err)) from err
    if hint is None or hint is str:
        return text
    from pydantic import TypeAdapter, ValidationError

    from grpo_cli.recipe.checking.values import describe
    from grpo_cli.recipe.reading.source import eaten_commands

    if '"' in text and (eaten := next(eaten_commands(text), None)) is not None:
        raise UsageError(f"`--option {key}`: {eaten.message}")
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    # try JSON first, then a plain string: `5` is a number, `a` is not
    for spelled in (text, json.dumps(text)):
        try:
            return adapter.validate_json(spelled, strict=True)
        except ValidationError:
            continue
    raise UsageError(f"`{key}` of verifier `{kind}` must be {describe(hint)}, got `{text}`")


def from_recipe(source: str, sets: Sequence[str] = ()) -> ScoringPlan:
    """The plan of a recipe's `verify` and `shaping` sections; the recipe's folder is searched for `python` functions.

    Raises:
        RecipeError: the recipe has mistakes.
    """
    from grpo_cli.recipe.reading.load import load
    from grpo_cli.recipe.reading.source import folder_of

    recipe = load(source, sets, of_run=True)
    folders = [str(real_path(folder_of(source)))]
    entries = {}
    for name, spec in recipe.verify.items():
        options = own_options(spec, folders)
        entries[name] = ScoringEntry(spec.kind, options, RewardTerm(spec.weight, spec.primary, spec.right_at))
    combine = recipe.combine
    plan = ScoringPlan(
        entries,
        source,
        rule_of(combine),
        shaping_entries(recipe),
        recipe.sample.max_tokens,
        recipe.train.alive_by,
        recipe.fines,
    )
    plan.shapers()  # called only to report its mistakes before any line is read
    mistakes = check_rule(plan.rule, plan.terms)
    if mistakes:
        raise RecipeError(mistakes[0], place=source)
    return plan


def recipe_beside(files: Sequence[str]) -> str | None:
    """The recipe of the run folder that all files lie in (`RUN/samples/…`, `RUN/eval/…`), if there is one."""
    # files of two runs, or standard input, have no recipe in common
    found = {str(real_path(Path(file)).parent.parent / "recipe.yaml") for file in files if file != "-"}
    if len(found) == 1 and "-" not in files and all(Path(f).parent.name in ("samples", "eval") for f in files):
        recipe = next(iter(found))
        return recipe if Path(recipe).is_file() else None
    return None
