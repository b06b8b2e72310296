"""What the teacher of a sample sees beside the prompt (`train.method: distil`), made of the verdicts of its group.

How this works. `Hints.of` goes through the samples of judged groups. Samples that were cut or have no verdict have no teacher, and with
`when` other than `all` neither have right ones. Of `distil.teacher` the first that a sample has counts: the reason of its verdict, a
right sample of its group without its thinking, the gold, or nothing. `Hints.row` is the row as the teacher is asked.

What a reason may show: the code of the verdict, and its detail only where the verifier declares it public (`reason_is_public`). A
reason that holds the gold is replaced by its code, and counted. `dealt_anew` is the placebo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError
from grpo_cli.recipe.sections.method import OWN_TEACHERS
from grpo_cli.recipe.sections.recipe import Distil, Recipe
from grpo_verifiers.thinking import after_thinking
from grpo_verifiers.verdict import Outcome

if TYPE_CHECKING:
    from grpo_cli.reward.group import Group
    from grpo_cli.reward.judge import Judge

WORDS = {
    "reason": "An earlier answer to this was wrong: {}.",
    "sibling": "A right answer to this is:\n{}",
    "gold": "The right result is {}.",
    "prompt": "{}",
}
"""What the teacher is told, by its kind."""
LEAST_GOLD = 4
"""Characters from which on a gold in a reason is no chance."""


@dataclass(frozen=True)
class Hint:
    """What the teacher of a sample sees more than the prompt, and whether a gold was taken out of it; with `contrast` also a wrong one."""

    text: str
    leaked: bool = False
    wrong: str | None = None


@dataclass(frozen=True)
class Hints:
    """Finds the hints of judged groups, by a recipe's `distil` section."""

    spec: Distil
    rows: Sequence[Row]
    judge: Judge
    is_placebo: bool = False
    """`train.control: shuffled`: hints are dealt out anew among the samples of a step."""

    def of(self, groups: Sequence[Group], signal_P: Sequence[bool]) -> list[list[Hint | None]]:
        """The hint of each sample of each group; `signal_P` is whether the groups teach without a teacher."""
        found = [
            [
                self._of(groups, number, i) if self.spec.when != "dead" or not signal else None
                for i in range(len(group.texts))
            ]
            for number, (group, signal) in enumerate(zip(groups, signal_P, strict=True))
        ]
        return dealt_anew(found) if self.is_placebo else found

    def _of(self, groups: Sequence[Group], number: int, at: int) -> Hint | None:
        group = groups[number]
        judgement = group.judgements[at]
        if group.completions[at].finish == "length" or (self.spec.when != "all" and judgement.is_right):
            return None
        if judgement.outcome is Outcome.ERROR and self.spec.teacher[0] in OWN_TEACHERS:
            return None
        for kind in self.spec.teacher:
            text, leaked = self._said(kind, group, at)
            if text is None:
                continue
            wrong = self._wrong(kind, groups, number, at) if self.spec.contrast else None
            if not self.spec.contrast or wrong is not None:
                return Hint(text, leaked, wrong)
        return None

    def _said(self, kind: str, group: Group, at: int) -> tuple[str | None, bool]:
        """The hint of this kind of teacher, None where the sample has none, and whether the gold was taken out of it."""
        if kind not in OWN_TEACHERS or kind == "prompt":
            return "", False
        if kind == "sibling":
            answers = [answer_of(group.texts[i]) for i, j in enumerate(group.judgements) if j.is_right and i != at]
            return (WORDS[kind].format(answers[0]) if answers else None), False
        row, gold = self.rows[group.row], self.gold(group.row)
        if kind == "gold":
            return (WORDS[kind].format(gold) if gold else None), False
        if group.judgements[at].is_right:
            return None, False
        verdict = group.judgements[at].verdicts[self.judge.primary]
        is_public = self.judge.verifiers[self.judge.primary].reason_is_public
        said = (verdict.detail if is_public else "") or verdict.reason
        hidden = {text for text in (gold, str(row.fields.get("answer", ""))) if text and len(text) >= LEAST_GOLD}
        leaked = any(text in said and text not in row.prompt for text in hidden)
        if leaked:
            said = "" if any(text in verdict.reason for text in hidden) else verdict.reason
        return (WORDS[kind].format(said.rstrip(".")) if said else None), leaked

    def _wrong(self, kind: str, groups: Sequence[Group], number: int, at: int) -> str | None:
        """A hint of the same form that is wrong; None where there is none."""
        group = groups[number]
        if kind == "sibling":
            judged = enumerate(group.judgements)
            wrong = [i for i, j in judged if i != at and not j.is_right and j.outcome is not Outcome.ERROR]
            return WORDS[kind].format(answer_of(group.texts[wrong[0]])) if wrong else None
        own = self.gold(group.row)
        others = (self.gold(groups[(number + i) % len(groups)].row) for i in range(1, len(groups)))
        other = next((gold for gold in others if gold and gold != own), None)
        return None if other is None else WORDS["gold"].format(other)

    def gold(self, row: int) -> str | None:
        """The gold of a row as a text."""
        text = self.judge.verifiers[self.judge.primary].gold_text(self.rows[row].fields)
        return (
            None
            if text is None
            else text.strip().removeprefix("\\boxed{").removesuffix("}" if "\\boxed{" in text else "")
        )

    def row(self, row: Row, hint: str) -> Row:
        """The row as the teacher is asked; without a hint as it is."""
        if not hint:
            return row

        def filled(prompt: str) -> str:
            # not `format`: prompts and hints have braces of their own
            before, slot, after = self.spec.template.partition("{prompt}")
            return before.replace("{hint}", hint) + (prompt if slot else "") + after.replace("{hint}", hint)

        if row.messages is None:
            return replace(row, prompt=filled(row.prompt))
        *first, last = row.messages
        return replace(row, messages=[*first, {**last, "content": filled(str(last["content"]))}])


def answer_of(text: str) -> str:
    """A sample's answer without its thinking."""
    return after_thinking(text).text.strip()


def dealt_anew(hints: Sequence[Sequence[Hint | None]]) -> list[list[Hint | None]]:
    """The same hints, each on a sample of another group where there are several groups with one: the placebo."""
    places = [(n, i) for n, own in enumerate(hints) for i, hint in enumerate(own) if hint is not None]
    # moved on by the largest group: no sample gets one of its own group
    step = max((sum(hint is not None for hint in own) for own in hints), default=0)
    found = [list(own) for own in hints]
    for at, (n, i) in enumerate(places):
        m, j = places[(at + step) % len(places)]
        found[n][i] = hints[m][j]
    return found


def hints_of(recipe: Recipe, rows: Sequence[Row], judge: Judge) -> Hints | None:
    """What finds the hints of a run, if the recipe has a teacher.

    Raises:
        DataError: no sample of any row could have one.
    """
    if recipe.train.method != "distil":
        return None
    assert recipe.distil is not None
    found = Hints(recipe.distil, rows, judge, recipe.train.control == "shuffled")
    if recipe.distil.teacher == ["gold"] and all(found.gold(row) is None for row in range(len(rows))):
        raise DataError(
            f"no row has a teacher: `verify.{judge.primary}` names no gold as a text, and `distil.teacher` is `gold`",
            hint="say `teacher: [sibling, reason]`; a `python` verifier has the option `gold`",
        )
    return found
