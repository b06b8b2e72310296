"""The judge of all jobs: the recipe's verifiers with their weights, the primary verifier that decides the outcome, and
the recipe's environment if it has one.

How this works. `Judge.of` builds the verifiers of a recipe, `start` starts their workers. `judge` takes completions with their `Task`
(prompt and compiled golds, from `RowTasks`), calls each verifier once a batch and combines its verdicts into a `Judgement`.
`settled` is called last, when all samples of a prompt are judged.

A completion without a verdict has no reward; a verifier's failure never counts as 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Worlds, interpreter_of
from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.recipe.sections.rewards import kind_class
from grpo_cli.reward.errors import FailureLines
from grpo_verifiers import BadOption, Outcome, Sample, Unavailable, Verdict, Verifier, build
from grpo_verifiers.combine import SUM, CombineRule, combine, outcome, primary_of, without_skipped
from grpo_verifiers.verdict import error, floored
from grpo_verifiers.verifier import Played

if TYPE_CHECKING:
    from grpo_cli.environments.harness import Harness
    from grpo_cli.recipe.sections.recipe import Combine, Environment, Recipe, Verify


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts on one completion, the primary's outcome, and the weighted reward (None: no verdict)."""

    verdicts: dict[str, Verdict]
    outcome: Outcome
    reward: float | None
    primary: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the primary verifier judges it right."""
        return self.outcome is Outcome.RIGHT


@dataclass(frozen=True, slots=True)
class Task:
    """The data for judging a completion: its prompt and the compiled gold of every verifier; `assistant_prefix` as in
    `Sample`."""

    golds: Mapping[str, Any]
    prompt: str = ""
    assistant_prefix: str = ""


def own_options(spec: Verify, folders: Sequence[str]) -> dict[str, Any]:
    """The options of one verifier, including the import folders for `python`, and `right_at` if the kind has it."""
    options = dict(spec.options)
    # `right_at` is the score from which an answer is right; only kinds with scores between 0 and 1 have it
    if any(field.name == "right_at" for field in fields(kind_class(spec.kind).Options)):
        options["right_at"] = spec.right_at
    if spec.kind == "python" and folders:
        # the recipe's `path` first: folders that the user names go before those that happen to be there
        options["path"] = [*(os.path.join(folders[0], one) for one in options.get("path", [])), *folders]
    return options


def worlds_of(spec: Environment, base: Path | None) -> Worlds | Harness:
    """The environments of a recipe's `environment` section, or the program that plays, not started."""
    if (harness := spec.harness) is not None:
        from grpo_cli.environments.harness import Harness

        return Harness(
            harness.command,
            harness.given,
            harness.score,
            base=base,
            timeout_s=spec.timeout_s,
            memory_mb=spec.memory_mb,
            workers=spec.workers,
            env=spec.env,
            episode_s=spec.endpoint.episode_s,
        )
    interpreter = None if spec.interpreter is None else interpreter_of(spec.interpreter, base)
    if spec.is_taskset:
        from grpo_cli.environments.taskset import Taskset

        return Taskset(
            spec.verifiers or "",
            interpreter or sys.executable,
            spec.options,
            base=base,
            max_turns=spec.max_turns,
            workers=spec.workers,
            env=spec.env,
            episode_s=spec.endpoint.episode_s,
        )
    assert spec.kind != "harness"
    folder = str((base or Path()).resolve())
    servers = {name: {**one.model_dump(), "folder": folder} for name, one in (spec.mcp or {}).items()}
    secrets = {name for one in (spec.mcp or {}).values() for name in (*one.env, *one.header_env.values())}
    # a little less than the wall time after which a worker that waits is given up
    mcp = {"servers": servers, "allow": spec.allow, "scope": spec.scope, "step_s": 3 * spec.timeout_s}
    return Worlds(
        spec.named,
        spec.options,
        kind=spec.kind,
        path=[] if base is None else [str(base)],
        timeout_s=spec.timeout_s,
        memory_mb=spec.memory_mb,
        workers=spec.workers,
        env=[*spec.env, *secrets],
        interpreter=interpreter,
        mcp=mcp if servers else None,
    )


def rule_of(how: Combine) -> CombineRule:
    """The rule that a recipe's `combine` describes."""
    if how.by is None or isinstance(how.by, str):
        return CombineRule(how.method, dict(how.gate), how.by)
    return CombineRule(how.method, dict(how.gate), how.by.column, dict(how.by.values), how.by.default)


def proxy_warnings(specs: Mapping[str, Any]) -> list[str]:
    """A warning for each verifier that is a learned score, not a check; `specs` have a `kind`."""
    said = "`{}` is a learned proxy: check samples by eye, a policy learns what it overrates"
    return [said.format(name) for name, spec in specs.items() if kind_class(spec.kind).is_learned]


class Judge:
    """The verifiers of one recipe, ready to judge batches from any thread."""

    def __init__(
        self,
        specs: Mapping[str, Verify],
        base: Path | None = None,
        rule: CombineRule = SUM,
        worlds: Worlds | Harness | None = None,
    ) -> None:
        """`base` is the recipe's folder: functions of the user are also looked for there."""
        self.specs, self.rule, self.worlds = dict(specs), rule, worlds
        self.verifiers: dict[str, Verifier] = {}
        folders = [] if base is None else [str(base)]
        for name, spec in self.specs.items():
            try:
                self.verifiers[name] = build(spec.kind, **own_options(spec, folders))
            except BadOption as err:
                raise RecipeError(str(err), place=f"`verify.{name}`") from err
        self.primary = primary_of(self.specs)
        self.lines = FailureLines()

    @classmethod
    def of(cls, recipe: Recipe, base: Path | None = None) -> Judge:
        """The judge that a recipe describes."""
        worlds = None if recipe.environment is None else worlds_of(recipe.environment, base)
        return cls(recipe.verify, base, rule_of(recipe.combine), worlds)

    def start(self) -> None:
        """Start workers and sandboxes.

        Raises:
            RecipeError: an option that only shows on starting, such as a function that cannot be imported.
            SetupError: a verifier cannot run on this machine.
        """
        if self.worlds is not None:
            self.worlds.start()
            # whether an environment scores is known only once it exists; without a score the `environment` verifier
            # gives no verdict
            for name, spec in self.specs.items():
                if spec.kind == "environment" and not self.worlds.scores:
                    raise RecipeError(
                        f"`{self.worlds.name}` says nothing of how good an episode is: it has no `get_reward`",
                        place=f"`verify.{name}`",
                        hint="add `get_reward()` to it, or a verifier for the answer under `verify`",
                    )
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
        if self.worlds is not None:
            self.worlds.close()

    def judge(
        self,
        completions: Sequence[str],
        tasks: Sequence[Task],
        token_ids: Sequence[Sequence[int]] | None = None,
        played: Sequence[Played | None] | None = None,
    ) -> list[Judgement]:
        """Judge a batch; the order is kept. With `combine: by` each row is judged by the verifier that it names.
        `played` are the environments' results for completions that are episodes.

        The scores of `no_answer` and `over_limit` are final only after `settled` has seen all samples of a prompt.
        """
        verdicts: list[dict[str, Verdict]] = [{} for _ in completions]
        for name, verifier in self.verifiers.items():
            # with `by` a row has a gold only for the verifier that it names
            indices = [
                i for i, task in enumerate(tasks) if self.rule.method != "by" or task.golds.get(name) is not None
            ]
            lost = {i: one for i in indices if played and (one := played[i]) is not None and one.is_lost}
            for i, one in lost.items():
                verdicts[i][name] = error(one.reason, one.problem)
            indices = [i for i in indices if i not in lost]
            samples = [
                Sample(
                    completions[i],
                    tasks[i].golds[name],
                    tasks[i].prompt,
                    token_ids[i] if token_ids else None,
                    played[i] if played else None,
                    tasks[i].assistant_prefix,
                )
                for i in indices
            ]
            # one call for each verifier: sandboxes and models are faster on batches
            with self.lines.timed(name, len(samples)):
                found = verifier.judge(samples) if samples else []
            for i, verdict in zip(indices, found, strict=True):
                verdicts[i][name] = verdict
        return [self.combine(found) for found in verdicts]

    def settled(self, group: Sequence[Judgement]) -> list[Judgement]:
        """The judgements of all samples of one prompt, adjusted so that no sample gains by giving no answer or
        exceeding a limit."""
        out = list(group)
        for name, verifier in self.verifiers.items():
            indices = [i for i, judgement in enumerate(out) if name in judgement.verdicts]
            before = [out[i].verdicts[name] for i in indices]
            # no answer gets the lowest score that the verifier can give: it must never pay more than a wrong one
            for i, old, new in zip(indices, before, floored(before, verifier.low), strict=True):
                if new is not old:
                    out[i] = self.combine({**out[i].verdicts, name: new})
        # after the lowest scores were set, which needs all verdicts of a verifier
        kept = without_skipped([judgement.verdicts for judgement in out])
        return [j if verdicts is j.verdicts else self.combine(verdicts) for j, verdicts in zip(out, kept, strict=True)]

    @property
    def wants_whole_batch(self) -> bool:
        """Whether some verdict may depend on the other completions of a step."""
        return any(verifier.wants_whole_batch for verifier in self.verifiers.values())

    def remarks(self) -> list[str]:
        """The verifiers' notes about themselves, for the screen."""
        return [f"`verify.{name}`: {text}" for name, v in self.verifiers.items() for text in v.remarks()]

    @property
    def printed(self) -> dict[str, int]:
        """Lines printed by the user's code, by verifier; verifiers without any are left out."""
        found = {name: verifier.printed for name, verifier in self.verifiers.items() if verifier.printed}
        return found | ({"environment": self.worlds.printed} if self.worlds and self.worlds.printed else {})

    def combine(self, verdicts: dict[str, Verdict]) -> Judgement:
        """Outcome and reward of one sample; an error of any verifier with weight leaves the sample without a reward."""
        # two results: the outcome by the primary verifier, and the reward by all of them
        found = outcome(verdicts, self.specs)
        reward = combine(verdicts, self.specs, rule=self.rule)
        return Judgement(verdicts, found or Outcome.ERROR, reward, self.primary)


def no_assistant_prefix(row: Row) -> str:
    """The sample of an episode: its text is the transcript, which contains every turn in full."""
    return ""


class RowTasks:
    """The tasks of rows by index; `assistant_prefix` returns the beginning of the assistant's turn that a row's prompt
    contains.

    A task is made when its row is first used, because rendering all rows takes time.
    """

    def __init__(
        self, rows: Sequence[Row], golds: Mapping[str, Sequence[Any]], assistant_prefix: Callable[[Row], str]
    ) -> None:
        self.rows, self.golds, self.assistant_prefix = rows, golds, assistant_prefix
        self._made: dict[int, Task] = {}

    def __getitem__(self, i: int) -> Task:
        if i not in self._made:
            row = self.rows[i]
            # compiled once a row, whatever the number of its samples
            own = {name: of[i] for name, of in self.golds.items()}
            self._made[i] = Task(own, row.prompt, self.assistant_prefix(row))
        return self._made[i]
