"""The value of each cut of a thinking: how likely the policy would give a right answer right there (`train.credit: rredcot`).

How this works. `reward/group_judge.py` has cut each answer behind the lines of its thinking. `CutValues.valued` runs after the samples
are judged and before the update: it leaves at most `segments` of an answer, by the policy's entropy behind each cut, and
puts values on them. With y the tokens up to a cut, f the forced text and A the right spellings,

    V(y) = sum over a in A of p(a | prompt, y, f)

is one forward pass over the cuts of a group, without gradients. The first cut is behind the mark that opens the thinking, if the
answer has one. Its bias is never positive: a right answer in another spelling is
missing. Groups without signal are left out, since there is nothing to divide. Each rank values its own samples. `train/credit.py`
makes credit of the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from grpo_cli.algorithm.turn_credit import kept_cuts
from grpo_cli.errors import TrainingError
from grpo_cli.policy.modes import evaluating
from grpo_cli.recipe.sections.recipe import TurnCredit
from grpo_cli.reward.group import Group
from grpo_cli.rollout.engine import Completion, Turn
from grpo_cli.rollout.scoring import DraftScorer

if TYPE_CHECKING:
    from grpo_cli.train.log_probs import ScoringTrainer
    from grpo_cli.train.loop import Loop
    from grpo_cli.train.step import StepBatch

LEAST_START = 0.02
"""Mean value before the first line below which the model does not know the forced text."""
BRACKETS = {"{": "}", "(": ")", "[": "]"}


@dataclass(frozen=True)
class CutValues:
    """Values for one recipe's samples; `tokenizer` gives ids without special tokens, `end` ends an answer that no bracket closes."""

    loop: Loop
    spec: TurnCredit
    scorer: DraftScorer
    tokenizer: Any
    end: int

    @classmethod
    def where_asked(
        cls, loop: Loop, model: nn.Module, tokenizer: Any, autocast: torch.dtype | None
    ) -> CutValues | None:
        """One, if the recipe gives credit by cuts."""
        spec = loop.recipe.train.credit
        if spec is None or spec.method != "rredcot":
            return None
        return cls(loop, spec, DraftScorer(model, autocast), tokenizer, int(tokenizer.eos_token_id))

    def valued(
        self,
        trainer: ScoringTrainer,
        before: StepBatch,
        out: dict[str, Any],
        places: Sequence[int],
        back: Sequence[int],
    ) -> StepBatch:
        """The batch with a value on each segment, and the credit that comes of it; `places` and `back` as in `RankSamples`.

        Raises:
            TrainingError: in the first step nearly no chance of a right answer follows the forced text.
        """
        size = self.loop.recipe.sample.group
        spans = self._segments(trainer, out, [before.groups[p // size].completions[p % size] for p in places])
        own = list[tuple[Turn, ...]]()
        at = 0
        for number, group in enumerate(before.groups):
            here = [p - number * size for p in places if p // size == number]
            cuts = spans[at : at + len(here)]
            at += len(here)
            if before.credit.signal_P[number]:
                cuts = self._values(group, [group.completions[i] for i in here], cuts)
            own += cuts
        gathered = self.loop.ranks.gathered(own)
        marks = iter(gathered[place] for place in back)
        groups = [
            replace(group, completions=[replace(c, marks=next(marks)) for c in group.completions])
            for group in before.groups
        ]
        credit = self.loop.method.credit(groups)
        metrics = value_metrics(groups)
        start = metrics.get("credit/start_value")
        if before.step == 0 and start is not None and start < LEAST_START:
            raise TrainingError(
                f"`train.credit: rredcot`: behind `{self.spec.force}` the model gives the right answer a chance of {start:.2g}: it"
                " does not know this text, and values would be noise",
                hint="say in `train.credit.force` what stands between thinking and answer in this model's own answers",
            )
        return replace(before, groups=groups, credit=replace(credit, metrics={**credit.metrics, **metrics}))

    @torch.no_grad()
    def _segments(
        self, trainer: ScoringTrainer, out: dict[str, Any], completions: Sequence[Completion]
    ) -> list[tuple[Turn, ...]]:
        """The segments of each of this rank's samples, at most so many."""
        most = self.spec.segments
        entropies_BT: Tensor | None = None
        if any(len(c.marks) > most for c in completions):
            ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
            attention = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
            keep, rows = out["completion_ids"].shape[1], trainer.args.per_device_train_batch_size
            with evaluating(trainer.whole), trainer.accelerator.autocast():
                _, entropies_BT, _ = trainer._get_per_token_logps_and_entropies(
                    trainer.whole, ids, attention, keep, batch_size=rows, compute_entropy=True
                )
        found = []
        for row, completion in enumerate(completions):
            cuts = [mark.start for mark in completion.marks[1:]]
            if len(cuts) >= most:
                assert entropies_BT is not None
                cuts = kept_cuts(cuts, entropies_BT[row, cuts].tolist(), most)
            ends = [*cuts, len(completion.token_ids)]
            lines = [Turn(start, end) for start, end in zip([0, *cuts], ends, strict=True)]
            opened = completion.marks[0].planned
            found.append((replace(lines[0], planned=opened), *lines[1:]))
        return found

    def _values(
        self, group: Group, completions: Sequence[Completion], segments: Sequence[tuple[Turn, ...]]
    ) -> list[tuple[Turn, ...]]:
        """These segments of samples of a group, with values; as they are where the row has no gold text."""
        answers = [self._ids(text + self._closing) or [self.end] for text in self._spellings(group)]
        if not self._closing:
            answers = [[*ids, self.end] for ids in answers]
        if not answers or all(len(own) < 2 for own in segments):
            return list(segments)
        forced = self._ids(self.spec.force)
        prefixes = [
            [*group.prompt_ids, *c.token_ids[: turn.start + turn.planned], *forced]
            for c, own in zip(completions, segments, strict=True)
            for turn in own
        ]
        pairs = [(prefix, ids) for prefix in prefixes for ids in answers]
        logps = self.scorer([p for p, _ in pairs], [a for _, a in pairs], self.loop.recipe.sample.temperature)
        chances = iter([math.exp(math.fsum(one)) for one in logps])
        # spellings of which one begins another share their chance: together at most 1
        values = iter([min(sum(next(chances) for _ in answers), 1.0) for _ in prefixes])
        return [tuple(replace(turn, value=next(values)) for turn in own) for own in segments]

    def _spellings(self, group: Group) -> list[str]:
        """The gold's text, and those of right answers of the group, each once."""
        judge = self.loop.collect.judges.judge  # type: ignore[attr-defined]
        row = self.loop.rows[group.row]
        gold = judge.verifiers[judge.primary].gold_text(row.fields)
        found = (
            []
            if gold is None
            else [gold.removeprefix("\\boxed{").removesuffix("}") if gold.startswith("\\boxed{") else gold]
        )
        if self.spec.answers == "gold+right":
            verdicts = [
                j.verdicts[judge.primary] for j in group.judgements if j.is_right and judge.primary in j.verdicts
            ]
            found += [verdict.answer for verdict in verdicts if verdict.answer]
        return list(dict.fromkeys(text.strip() for text in found if text.strip()))

    @property
    def _closing(self) -> str:
        """The brackets that the forced text leaves open, closed."""
        opened = list[str]()
        for sign in self.spec.force:
            if sign in BRACKETS:
                opened.append(BRACKETS[sign])
            elif opened and sign == opened[-1]:
                opened.pop()
        return "".join(reversed(opened))

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)


def value_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Segments of an answer, the mean value before the first, and how the value before the last goes with being right; of answers
    that have values."""
    valued = [
        (c.marks, float(j.is_right))
        for group in groups
        for c, j in zip(group.completions, group.judgements, strict=True)
        if c.marks and c.marks[0].value is not None
    ]
    if not valued:
        return {}
    last, right = [marks[-1].value or 0.0 for marks, _ in valued], [ok for _, ok in valued]
    found = {
        "credit/segments": sum(len(marks) for marks, _ in valued) / len(valued),
        "credit/start_value": math.fsum(marks[0].value or 0.0 for marks, _ in valued) / len(valued),
    }
    both = torch.tensor([last, right], dtype=torch.float64)
    if bool((both.std(dim=1) > 0).all()):
        found["credit/value_correlation"] = float(torch.corrcoef(both)[0, 1])
    return found
