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

if TYPE_CHECKING:
    from grpo_cli.recipe.models import Verify


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


class Judge:
    """The verifiers of one recipe, ready to judge batches from any thread."""

    def __init__(self, specs: Mapping[str, Verify], base: Path | None = None) -> None:
        """`base` is the recipe's folder: functions of the user's are also looked for there."""
        self.specs = dict(specs)
        self.verifiers: dict[str, Verifier] = {}
        for name, spec in self.specs.items():
            try:
                self.verifiers[name] = build(spec.kind, **own_options(spec, base))
            except BadOption as err:
                raise RecipeError(str(err), place=f"`verify.{name}`") from err
        self.primary = next(name for name, spec in self.specs.items() if spec.primary)

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

    def close(self) -> None:
        """Stop workers and sandboxes."""
        for verifier in self.verifiers.values():
            verifier.close()

    def judge(self, completions: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        """Judge a batch; the order is kept."""
        by_name = {
            name: verifier.judge(
                [Sample(c, t.golds[name], t.prompt) for c, t in zip(completions, tasks, strict=True)]
            )
            for name, verifier in self.verifiers.items()
        }
        return [self.combine({name: by_name[name][i] for name in by_name}) for i in range(len(completions))]

    def combine(self, verdicts: dict[str, Verdict]) -> Judgement:
        """The weighted sum of scores; an error of any verifier that counts leaves the sample without a reward."""
        primary = verdicts[self.primary]
        outcome = primary.outcome
        if primary.score is not None and outcome in (Outcome.RIGHT, Outcome.WRONG):
            outcome = Outcome.RIGHT if primary.score >= self.specs[self.primary].right_at else Outcome.WRONG
        reward: float | None = 0.0
        for name, verdict in verdicts.items():
            weight = self.specs[name].weight
            if weight == 0:
                continue
            if verdict.score is None:
                reward = None
                break
            assert reward is not None
            reward += weight * verdict.score
        return Judgement(verdicts, outcome, reward)
