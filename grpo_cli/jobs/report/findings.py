"""Findings as the page shows them: one entry a code, however often it was said, with the completions behind the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo_cli.findings.finding import Finding
from grpo_cli.findings.run_data import RunData
from grpo_cli.findings.samples import duplicate_rows, nearest_step, samples_behind, split_of
from grpo_cli.run.records import SampleRecord

MOST_SAID = 40
"""Times that one code is listed."""


@dataclass
class FindingGroup:
    """All findings of one code in the order of their steps; `samples` are those of `sample_step` behind the first."""

    code: str
    found: list[Finding] = field(default_factory=list)
    samples: Sequence[SampleRecord] = ()
    sample_step: int | None = None
    is_held_out: bool = False

    @property
    def count(self) -> int:
        """How often it was said."""
        return len(self.found)

    @property
    def when(self) -> str:
        """`step 12`, or `5 times, steps 12 to 90`."""
        first, last = self.found[0].step, self.found[-1].step
        return (
            f"step {first}" if len(self.found) == 1 else f"{len(self.found)} times, steps {first} to {last}"
        )

    @property
    def earlier(self) -> list[Finding]:
        """What was said before the last, the last of it at most."""
        return self.found[:-1][-MOST_SAID:]


def grouped_findings(run: RunData) -> list[FindingGroup]:
    """The run's findings by code, the code that spoke first in front; copies among its rows last."""
    groups: dict[str, FindingGroup] = {}
    for finding in run.findings:
        groups.setdefault(finding.code, FindingGroup(finding.code)).found.append(finding)
    copies = duplicate_rows(run.folder)
    if copies is not None:
        groups[copies[0].code] = FindingGroup(copies[0].code, [copies[0]])
    for group in groups.values():
        split = split_of(group.code)
        step = nearest_step(run.folder, group.found[0].step, split)
        if step is None:
            continue
        of_copies = copies[1] if copies is not None and group.code == copies[0].code else None
        group.samples = of_copies or samples_behind(group.code, list(run.folder.samples(step, split)))
        group.sample_step, group.is_held_out = step, split == "eval"
    return list(groups.values())
