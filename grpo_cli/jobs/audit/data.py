"""`grpo audit data`: searches the training rows of a recipe for rows that could steer a run.

`audit_data` counts copies, contradictions and exposure from the rows alone. With samples it also draws answers to the rows
that `choose` picks: `RowVotes` compares their labels with the model's answers, and gradients show which rows move the
model against the others. `DataAudit` ranks the rows by these signals and prints them.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import MOST_COPIES, MOST_EXPOSURE, RARE_SHAPE, RowSignals, gold_of_row
from grpo_cli.display.protocol import Display
from grpo_cli.errors import UsageError
from grpo_cli.jobs.open_job import open_rows, open_start
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.statistics.estimate import wilson
from grpo_cli.text import visible
from grpo_verifiers.verdict import Outcome

# The signals of each training row: from the data, from the model's samples, and from the way they would move the model.

SCHEMA = 1
MOST_VOTES = 7 / 8
"""Share of a row's samples with the same wrong answer from which the model contradicts the label."""
LEAST_COSINE = -0.3
"""Cosine below which a row's gradient points against that of the others."""
SHOWN = 10
SAMPLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RowVotes:
    """Counts of one row's samples: how many were judged, how many are right, and the most frequent wrong answer."""

    judged: int
    right: int
    answer: str
    votes: int
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: Group) -> RowVotes:
        """Count a group; two answers are the same if their texts differ only in white space."""
        verdicts = [j.verdicts.get(j.primary) for j in group.judgements if j.outcome is Outcome.WRONG]
        wrong = Counter(" ".join((one.answer or "").split()) if one else "" for one in verdicts)
        answer, votes = wrong.most_common(1)[0] if wrong else ("", 0)
        return cls(group.judged, group.right, answer, votes, tuple(group.texts[:SAMPLES_SHOWN]))

    @property
    def against(self) -> float | None:
        """The share of the samples that give the one wrong answer; None where nothing was judged."""
        return self.votes / self.judged if self.judged else None


@dataclass
class DataAudit:
    """All signals of a recipe's rows; `votes` and `cosines` are given, by row index, for rows that the model
    answered."""

    rows: Sequence[Row]
    signals: RowSignals
    draws: int
    votes: dict[int, RowVotes] = field(default_factory=dict)
    cosines: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0

    def flags(self) -> dict[int, list[str]]:
        """Rows beyond a threshold, with the names of these thresholds."""
        found: dict[int, list[str]] = {}
        for name, rows in self.by_bar().items():
            for row in rows:
                found.setdefault(row, []).append(name)
        return found

    def by_bar(self) -> dict[str, list[int]]:
        """The rows past each bar."""
        # a row that no sample got right has no gradient: no evidence for it either
        against = [row for row, votes in self.votes.items() if (votes.against or 0.0) >= MOST_VOTES]
        return {
            "repeated": self.signals.repeated,
            "exposed": self.signals.exposed(self.draws),
            "two golds": sorted(self.signals.contradicting()),
            "rare gold": [rare.row for rare in self.signals.rare],
            "against the model": [row for row in against if self.cosines.get(row, -1.0) < LEAST_COSINE],
        }

    def scores(self) -> list[tuple[float, int]]:
        """Rows sorted by suspicion, the most suspicious first: the sum of the z-scores of exposure, votes, cosine and
        rareness.

        A signal that is unknown for a row, or equal for all rows, adds nothing.
        """
        n = len(self.rows)
        parts = [
            _standard(dict(enumerate(self.signals.shares()))),
            _standard({row: v.against for row, v in self.votes.items() if v.against is not None}),
            _standard({row: -cosine for row, cosine in self.cosines.items()}),
            _standard(dict.fromkeys(range(n), 0.0) | {r.row: 1 - r.share for r in self.signals.rare}),
            _standard(dict.fromkeys(range(n), 0.0) | dict.fromkeys(self.signals.contradicting(), 1.0)),
        ]
        total = [math.fsum(part.get(row, 0.0) for part in parts) for row in range(n)]
        return sorted(((score, row) for row, score in enumerate(total)), key=lambda one: (-one[0], one[1]))

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        flags, bars = self.flags(), self.by_bar()
        ranked = [row for _, row in self.scores()]
        shown = ranked[:SHOWN] + [row for row in ranked[SHOWN:] if row in flags][: 10 * SHOWN]
        return {
            "schema": SCHEMA,
            "rows": len(self.rows),
            "draws": self.draws,
            "asked": len(self.votes),
            "bars": {"copies": MOST_COPIES, "exposure": MOST_EXPOSURE, "rare_gold": RARE_SHAPE}
            | {"votes": MOST_VOTES, "cosine": LEAST_COSINE},
            "signals": {name: self._rate(name, len(rows)) for name, rows in bars.items()},
            "flagged": len(flags),
            "seconds": round(self.seconds, 3),
            "ranked": [self._row(row, rank, flags) for rank, row in enumerate(shown, 1)],
        }

    def _rate(self, name: str, count: int) -> dict[str, Any]:
        of = len(self.votes) if name == "against the model" else len(self.rows)
        found = wilson(count, of) if of else None
        known = {"rate": found.mean, "ci": [found.low, found.high]} if found else {"rate": None, "ci": None}
        return {"n": count, "of": of, **known}

    def _row(self, row: int, rank: int, flags: dict[int, list[str]]) -> dict[str, Any]:
        votes, one = self.votes.get(row), self.rows[row]
        rare = next((r for r in self.signals.rare if r.row == row), None)
        return {
            "rank": rank,
            "row": one.id,
            "place": one.place,
            "flags": flags.get(row, []),
            "prompt": one.prompt,
            "gold": gold_of_row(one.fields),
            "copies": self.signals.copies[row],
            "share": self.signals.shares()[row],
            "usual_gold": rare.usual if rare else None,
            "judged": votes.judged if votes else None,
            "right": votes.right if votes else None,
            "wrong_answer": votes.answer if votes and votes.votes else None,
            "votes": votes.votes if votes else None,
            "cosine": self.cosines.get(row),
            "samples": list(votes.texts) if votes else [],
        }

    def text(self) -> str:
        """Lines for people: each signal with its rate, then the oddest rows."""
        found = self.as_json()
        lines = [
            f"{found['rows']:,} rows, {found['draws']:,} draws in the run; the model was asked {found['asked']:,}"
            f" of them; {found['seconds']:.1f} s"
        ]
        for name, rate in found["signals"].items():
            if not rate["of"]:
                lines.append(f"  {name:<18} not looked at")
                continue
            low, high = rate["ci"]
            lines.append(
                f"  {name:<18} {rate['n']:>6,} of {rate['of']:,}   {rate['rate']:.2%} ({low:.2%} to {high:.2%})"
            )
        lines += ["", "the oddest rows, which need not be wrong ones:"]
        for one in found["ranked"][:SHOWN]:
            lines += self._shown(one)
        verdict = f"{found['flagged']:,} rows past a bar: read them" if found["flagged"] else "no row past a bar"
        return "\n".join([*lines, "", verdict])

    @staticmethod
    def _shown(one: dict[str, Any]) -> list[str]:
        said = [f"copies {one['copies']}"] if one["copies"] > 1 else []
        if one["judged"]:
            said.append(f"{one['right']} of {one['judged']} samples right")
        if one["wrong_answer"] is not None:
            said.append(f"{one['votes']} say {visible(one['wrong_answer'])[:30]}")
        if one["cosine"] is not None:
            said.append(f"cosine {one['cosine']:+.2f}")
        if one["usual_gold"] is not None:
            said.append(f"other golds are like `{visible(one['usual_gold'])[:30]}`")
        mark = f"   [{', '.join(one['flags'])}]" if one["flags"] else ""
        prompt = visible(" ".join(one["prompt"].split()))
        lines = [
            f"  {one['rank']:>2} {one['place'] or one['row']}{mark}",
            f"     {prompt[:110]}  gold {visible(str(one['gold']))[:40]}",
        ]
        lines += [f"     {'; '.join(said)}"] if said else []
        return lines + [f"     > {visible(' '.join(text.split()))[-110:]}" for text in one["samples"][:1]]


def _standard(values: dict[int, float]) -> dict[int, float]:
    """The z-scores; empty if there is no spread."""
    if len(values) < 2 or (spread := pstdev(values.values())) < 1e-12:
        return {}
    mean = fmean(values.values())
    return {row: (value - mean) / spread for row, value in values.items()}


BATCH = 64
"""Rows sampled in one call of the engine."""
MORE = 7
"""Rows whose samples are all wrong in the same way get this many times as many further samples, to find a right one."""
MOST_AGAIN = 32
"""Such rows at most."""


def audit_data(
    recipe: Recipe, base: Path | None, display: Display, *, asked: int, samples: int, seed: int | None = None
) -> DataAudit:
    """Check all rows, and let the model, as training would start it, answer `asked` of them `samples` times each.

    With 0 rows no model is loaded. Rows that the data show as suspicious are asked first, the others are drawn by the
    seed.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
        UsageError: the recipe has an environment or images, and the model was to answer rows.
    """
    began = time.perf_counter()
    draws = recipe.train.steps * recipe.sample.prompts
    if not asked:
        with open_rows(recipe, base, display, ["train"]) as job:
            found = DataAudit(job.train.rows, RowSignals.of(job.train.rows), draws)
        found.seconds = time.perf_counter() - began
        return found
    why = "of an environment: its turns have no one answer" if recipe.environment is not None else ""
    why = why or ("with images: their gradients are not sketched" if recipe.data.images else "")
    if why:
        raise UsageError(f"the model is not asked about rows {why}", hint="`--rows 0` looks at the data alone")
    with open_start(recipe, base, display, splits=["train"]) as job:
        rows = job.train.rows
        found = DataAudit(rows, RowSignals.of(rows), draws)
        chosen = choose(found, asked, recipe.train.seed if seed is None else seed)
        from grpo_cli.measure.gradients import GradientSketch, against_the_rest
        from grpo_cli.rollout.collect import EngineCall
        from grpo_cli.train.clock import Clock, StepProgress
        from grpo_cli.train.credit import Method
        from grpo_cli.train.loop import RolloutParts, judged_rollouts

        progress = StepProgress(Clock(), job.display)
        parts = RolloutParts(job.recipe, job.train.rows, job.train.golds, job.judge, job.engine, job.policy)
        collect = judged_rollouts(parts, progress)
        groups: dict[int, Group] = {}
        for start in range(0, len(chosen), BATCH):
            job.display.progress("samples", start, len(chosen))
            drawn = collect(chosen[start : start + BATCH], samples, EngineCall(0, 1 + start // BATCH))
            groups |= {group.row: group for group in drawn}
        found.votes = {row: RowVotes.of(group) for row, group in groups.items()}
        method, sketcher = Method.of(job.recipe), GradientSketch(job.policy, seed or 0)
        again = sorted(
            (row for row, v in found.votes.items() if not v.right and (v.against or 0) >= MOST_VOTES),
            key=lambda row: -(found.votes[row].against or 0),
        )[:MOST_AGAIN]
        for row in again:
            groups[row] = groups[row].joined(collect([row], MORE * samples, EngineCall(1, 1), samples)[0])
            found.votes[row] = RowVotes.of(groups[row])
        sketches = []
        for done, group in enumerate(groups.values(), 1):
            advantages = method.credit([group]).A_PG[0].tolist()
            ids = [completion.token_ids for completion in group.completions]
            sketches.append(sketcher.of(group.prompt_ids, ids, advantages))
            job.display.progress("gradients", done, len(groups))
        cosines = against_the_rest(sketches)
        found.cosines = {row: c for row, c in zip(groups, cosines, strict=True) if c is not None}
    found.seconds = time.perf_counter() - began
    return found


def choose(found: DataAudit, asked: int, seed: int) -> list[int]:
    """The rows to ask about: those past a bar of the data first, then any."""
    flagged = list(found.flags())
    rest = [row for row in range(len(found.rows)) if row not in set(flagged)]
    random.Random(seed).shuffle(rest)
    return sorted((flagged + rest)[:asked])
