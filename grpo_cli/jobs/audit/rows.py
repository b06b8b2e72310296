"""What is known of each training row: by the data, by the model's samples, and by the way they would move the model.

Nothing here says that a row is poisoned. A row is flagged where a bar is passed that honest rows seldom pass; how often they
do is in `docs/benchmarks/data-safety.md`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import MOST_COPIES, MOST_EXPOSURE, RARE_SHAPE, RowSignals, gold_of_row
from grpo_cli.reward.group import Group
from grpo_cli.statistics.estimate import wilson
from grpo_cli.text import visible
from grpo_verifiers.verdict import Outcome

SCHEMA = 1
MOST_VOTES = 7 / 8
"""Share of a row's samples that one wrong answer must have for the label to stand against the model."""
LEAST_COSINE = -0.3
"""Below this a row's gradient points away from that of the others."""
SHOWN = 10
SAMPLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RowVotes:
    """What the samples of one row say: how many were judged, how many are right, and the wrong answer that most gave."""

    judged: int
    right: int
    answer: str
    votes: int
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: Group) -> RowVotes:
        """Count a group; answers differ where their text does, but for white space."""
        wrong = Counter(
            " ".join((_answer(j) or "").split()) for j in group.judgements if j.outcome is Outcome.WRONG
        )
        answer, votes = wrong.most_common(1)[0] if wrong else ("", 0)
        return cls(group.judged, group.right, answer, votes, tuple(group.texts[:SAMPLES_SHOWN]))

    @property
    def against(self) -> float | None:
        """The share of the samples that give the one wrong answer; None where nothing was judged."""
        return self.votes / self.judged if self.judged else None


def _answer(judgement: Any) -> str | None:
    verdict = judgement.verdicts.get(judgement.primary)
    return verdict.answer if verdict is not None else None


@dataclass
class DataAudit:
    """All signals of the rows of a recipe; `votes` and `cosines` of the rows that the model was asked, by place."""

    rows: Sequence[Row]
    signals: RowSignals
    draws: int
    votes: dict[int, RowVotes] = field(default_factory=dict)
    cosines: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0

    def flags(self) -> dict[int, list[str]]:
        """Rows past a bar, with the names of the bars."""
        found: dict[int, list[str]] = {}
        for name, rows in self.by_bar().items():
            for row in rows:
                found.setdefault(row, []).append(name)
        return found

    def by_bar(self) -> dict[str, list[int]]:
        """The rows past each bar."""
        # a row that no sample got right has no gradient: nothing speaks for it either
        against = [row for row, votes in self.votes.items() if (votes.against or 0.0) >= MOST_VOTES]
        return {
            "repeated": self.signals.repeated,
            "exposed": self.signals.exposed(self.draws),
            "two golds": sorted(self.signals.contradicting()),
            "rare gold": [rare.row for rare in self.signals.rare],
            "against the model": [row for row in against if self.cosines.get(row, -1.0) < LEAST_COSINE],
        }

    def scores(self) -> list[tuple[float, int]]:
        """Rows by how odd they are, the oddest first: the sum of the standard scores of exposure, votes, cosine and rareness.

        A signal that is not known of a row, or is the same of all, adds nothing.
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
            "bars": {
                "copies": MOST_COPIES,
                "exposure": MOST_EXPOSURE,
                "rare_gold": RARE_SHAPE,
                "votes": MOST_VOTES,
                "cosine": LEAST_COSINE,
            },
            "signals": {name: self._rate(name, len(rows)) for name, rows in bars.items()},
            "flagged": len(flags),
            "seconds": round(self.seconds, 3),
            "ranked": [self._row(row, rank, flags) for rank, row in enumerate(shown, 1)],
        }

    def _rate(self, name: str, count: int) -> dict[str, Any]:
        of = len(self.votes) if name == "against the model" else len(self.rows)
        found = wilson(count, of) if of else None
        return {
            "n": count,
            "of": of,
            "rate": found.mean if found else None,
            "ci": [found.low, found.high] if found else None,
        }

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
        verdict = (
            f"{found['flagged']:,} rows past a bar: read them" if found["flagged"] else "no row past a bar"
        )
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
    """Standard scores; nothing where there is no spread."""
    if len(values) < 2 or (spread := pstdev(values.values())) < 1e-12:
        return {}
    mean = fmean(values.values())
    return {row: (value - mean) / spread for row, value in values.items()}
