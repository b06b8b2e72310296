"""Failures of verifiers, counted in one way wherever a verifier runs: by sample, and by verifier and kind.

A sample has failed where any verifier gave it no verdict, also one of weight 0, also where others judged it: `error` of
a step, `eval/without_verdict`, and `without_verdict` in every `--json`. Where that verifier has a weight the sample has
no reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from grpo_cli.errors import kind_of
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Verdict

MOST_KINDS = 100
"""Kinds that are counted apart; later ones are counted together by verifier and reason."""
MOST_ROWS = 8
"""Rows listed for a kind."""
LONGEST = 400
"""Characters kept of a message."""


@dataclass(frozen=True, slots=True)
class FailureKind:
    """One kind of failure: the verifier, its reason code and first message, the first rows, and how many samples it cost."""

    verifier: str
    reason: str
    message: str
    rows: Sequence[str]
    samples: int = 1

    def __str__(self) -> str:
        return f"`{self.verifier}`: {self.reason}: {self.message} ({self.rows[0]})"


@dataclass(slots=True)
class Failures:
    """The failures among `samples`; `failed` of them lack a verdict."""

    samples: int = 0
    failed: int = 0
    kinds: dict[str, FailureKind] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[SampleRecord], places: Mapping[str, str] | None = None) -> Failures:
        """Those of records; `places` maps a row's id to where it stands."""
        found = cls()
        for record in records:
            place = (places or {}).get(record.row) or record.row
            found.add(record.verdicts, place, record.fields)
        return found

    def add(self, verdicts: Mapping[str, Verdict], row: str, fields: Mapping[str, Any]) -> None:
        """Count one sample of a row."""
        self.samples += 1
        failing = {name: verdict for name, verdict in verdicts.items() if verdict.score is None}
        self.failed += bool(failing)
        for name, verdict in failing.items():
            message = (verdict.detail or verdict.reason)[:LONGEST]
            kind = f"{name}: {verdict.reason}: {kind_of(message, fields.values())}"
            self._count(kind, FailureKind(name, verdict.reason, message, [row]))

    def merge(self, other: Failures, file: str = "") -> None:
        """Add those of other samples, whose rows are lines of `file` where one is named."""
        self.samples, self.failed = self.samples + other.samples, self.failed + other.failed
        for kind, failure in other.kinds.items():
            rows = [f"{file}:{row}" for row in failure.rows] if file else failure.rows
            self._count(kind, replace(failure, rows=rows))

    def _count(self, kind: str, failure: FailureKind) -> None:
        if kind not in self.kinds and len(self.kinds) >= MOST_KINDS:
            kind = f"{failure.verifier}: {failure.reason}"
        if (known := self.kinds.get(kind)) is not None:
            rows = list(dict.fromkeys([*known.rows, *failure.rows]))[:MOST_ROWS]
            failure = replace(known, rows=rows, samples=known.samples + failure.samples)
        self.kinds[kind] = failure

    @property
    def commonest(self) -> Sequence[FailureKind]:
        """The kinds, those of most samples first."""
        return sorted(self.kinds.values(), key=lambda failure: -failure.samples)

    def text(self) -> str:
        """One sentence; empty where nothing failed."""
        if not self.failed:
            return ""
        more = f"; {len(self.kinds) - 1} more kinds" if len(self.kinds) > 1 else ""
        return f"{self.failed:,} of {self.samples:,} samples have no verdict: {self.commonest[0]}{more}"

    def as_json(self) -> dict[str, Any]:
        """`without_verdict` and `failures`."""
        return {"without_verdict": self.failed, "failures": [asdict(one) for one in self.commonest]}

    def packed(self) -> list[Any]:
        """The same as a JSON list."""
        return [self.samples, self.failed, {kind: astuple(one) for kind, one in self.kinds.items()}]

    @classmethod
    def unpacked(cls, packed: Sequence[Any]) -> Failures:
        """The inverse of `packed`."""
        samples, failed, kinds = packed
        return cls(samples, failed, {kind: FailureKind(*one) for kind, one in kinds.items()})
