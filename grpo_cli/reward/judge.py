"""One judge for all three jobs: the recipe's verifiers, their weights, and which of them says what right means.

A completion without a verdict has no reward; it is never scored 0 on the verifier's account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import RecipeError, SetupError
from grpo_verifiers import BadOption, Outcome, Sample, Unavailable, Verdict, Verifier, build
from grpo_verifiers.combine import SUM, Rule, combine, outcome, primary_of
from grpo_verifiers.registry import kind_class

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe, Verify


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts on one completion, the primary's outcome, and the weighted reward (None: no verdict)."""

    verdicts: dict[str, Verdict]
    outcome: Outcome
    reward: float | None

    @property
    def is_right(self) -> bool:
        """Whether the primary verifier calls it right."""
        return self.outcome is Outcome.RIGHT


@dataclass(frozen=True, slots=True)
class Task:
    """What a completion is judged against: its prompt and the compiled gold of every verifier."""

    golds: Mapping[str, Any]
    prompt: str = ""


def own_options(spec: Verify, base: Path | None) -> dict[str, Any]:
    """The options of one verifier; for `python` the recipe's folder is one more to import from."""
    if spec.kind != "python" or base is None:
        return dict(spec.options)
    return {**spec.options, "path": [*spec.options.get("path", []), str(base)]}


def proxy_warnings(specs: Mapping[str, Any]) -> list[str]:
    """A warning for each verifier that is a learned score and no check; `specs` have a `kind`."""
    said = "`{}` is a learned proxy: check samples by eye, a policy learns what it overrates"
    return [said.format(name) for name, spec in specs.items() if kind_class(spec.kind).is_learned]


class Judge:
    """The verifiers of one recipe, ready to judge batches from any thread."""

    def __init__(self, specs: Mapping[str, Verify], base: Path | None = None, rule: Rule = SUM) -> None:
        """`base` is the recipe's folder: functions of the user's are also looked for there."""
        self.specs, self.rule = dict(specs), rule
        self.verifiers: dict[str, Verifier] = {}
        for name, spec in self.specs.items():
            try:
                self.verifiers[name] = build(spec.kind, **own_options(spec, base))
            except BadOption as err:
                raise RecipeError(str(err), place=f"`verify.{name}`") from err
        self.primary = primary_of(self.specs)

    @classmethod
    def of(cls, recipe: Recipe, base: Path | None = None) -> Judge:
        """The judge that a recipe describes."""
        how = recipe.combine
        return cls(recipe.verify, base, Rule(how.method, how.gate, how.by))

    def start(self) -> None:
        """Start workers and sandboxes.

        Raises:
            RecipeError: an option that only shows on starting, such as a function that cannot be imported.
            SetupError: a verifier cannot run on this machine.
        """
        for name, verifier in self.verifiers.items():
            try:
                verifier.start()
            except BadOption as err:
                raise RecipeError(str(err), place=f"`verify.{name}`") from err
            except Unavailable as err:
                raise SetupError(f"verifier `{name}`: {err}", hint=err.hint) from err

    def sandboxes(self) -> dict[str, dict[str, Any]]:
        """What the sandbox of each started verifier enforces here (tier, self-test, warnings), by verifier."""
        tiers = {name: getattr(verifier, "tier", None) for name, verifier in self.verifiers.items()}
        return {name: tier.as_json() for name, tier in tiers.items() if tier is not None}

    def close(self) -> None:
        """Stop workers and sandboxes."""
        for verifier in self.verifiers.values():
            verifier.close()

    def judge(self, completions: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        """Judge a batch; the order is kept. With `combine: by` each row goes to the verifier that it names."""
        verdicts: list[dict[str, Verdict]] = [{} for _ in completions]
        for name, verifier in self.verifiers.items():
            mine = [i for i, task in enumerate(tasks) if self._judges(name, task)]
            samples = [Sample(completions[i], tasks[i].golds[name], tasks[i].prompt) for i in mine]
            for i, verdict in zip(mine, verifier.judge(samples) if samples else [], strict=True):
                verdicts[i][name] = verdict
        return [self.combine(found) for found in verdicts]

    def combine(self, verdicts: dict[str, Verdict]) -> Judgement:
        """Outcome and reward of one sample; an error of any verifier that counts leaves it without a reward."""
        found = outcome(verdicts, self.specs, self.rule)
        return Judgement(verdicts, found or Outcome.ERROR, combine(verdicts, self.specs, rule=self.rule))

    def _judges(self, name: str, task: Task) -> bool:
        return self.rule.method != "by" or task.golds.get(name) is not None
