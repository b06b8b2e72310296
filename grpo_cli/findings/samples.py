"""Findings that only samples show, and the samples that support a finding of the metrics.

How this works: `duplicate_rows` reads sample files of the whole run. `samples_behind` takes the samples of one step and
returns those that show a finding best, by the function that `PICKS` names for its code. W49 reads the reasons of
verdicts; other commands that count reasons use the same warning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from grpo_cli.findings.finding import Finding, History, Limits, finding_at
from grpo_cli.run.folder import RunFolder, Split
from grpo_cli.run.reading import spread, steps_to_read
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import repeated_turns
from grpo_cli.statistics.step import GroupCounts, Kind, group_samples, mean, repetition
from grpo_verifiers.verdict import Outcome

FILES = 24
"""Sample files read for duplicates, spread over the run."""
SHARE = 0.05
LEAST = 2
"""Duplicates are a finding from this many rows and this share of the rows seen."""


def duplicate_rows(folder: RunFolder) -> tuple[Finding, list[SampleRecord]] | None:
    """W60: the same prompt under several row ids, with one sample of each; the text also counts differing answers."""
    rows: dict[str, dict[str, SampleRecord]] = defaultdict(dict)
    steps = spread(steps_to_read(folder), FILES)
    for step in steps:
        for record in folder.samples(step):
            rows[" ".join(record.prompt.split())].setdefault(record.row, record)
    seen = sum(len(same) for same in rows.values())
    repeated = [list(same.values()) for same in rows.values() if len(same) > 1]
    extra = sum(len(same) - 1 for same in repeated)
    if extra < LEAST or extra < SHARE * seen:
        return None
    differing = sum(len({str(r.fields.get("answer")) for r in same}) > 1 for same in repeated)
    text = f"{extra} of {seen} rows seen repeat the prompt of another"
    if differing:
        text += f"; {differing} of these prompts have different answers"
    finding = Finding("W60", steps[-1], text, "drop the copies: they weigh double, and leak where they are held out")
    return finding, [record for same in repeated[:2] for record in same[:2]]


def samples_behind(code: str, records: Sequence[SampleRecord], most: int = 3) -> list[SampleRecord]:
    """The samples of a step that show a finding best, from different prompts where there are some."""
    choose = PICKS.get(code, _lowest)
    by_row: dict[str, SampleRecord] = {}
    chosen = choose(records)
    for record in chosen:
        by_row.setdefault(record.row, record)
    first = list(by_row.values())
    return [*first, *(r for r in chosen if all(r is not kept for kept in first))][:most]


def split_of(code: str) -> Split:
    """Which samples a finding is about."""
    return {"W53": "eval", "W54": "eval", "W70": "eval", "W71": "canary"}.get(code, "train")  # type: ignore[return-value]


def nearest_step(folder: RunFolder, step: int, split: Split = "train") -> int | None:
    """The last step with samples up to this one, else the first."""
    steps = folder.steps(split)
    return max((s for s in steps if s <= step), default=min(steps, default=None))


Pick = Callable[[Sequence[SampleRecord]], list[SampleRecord]]


def _of_kinds(records: Sequence[SampleRecord], *kinds: Kind) -> list[SampleRecord]:
    """One sample of each group of these kinds."""
    groups = list(group_samples(records).values())
    of_kind = {kind: [g for g in groups if GroupCounts.of(r.outcome for r in g).kind == kind] for kind in kinds}
    return [next(r for r in group if r.is_judged) for kind in kinds for group in of_kind[kind]]


def _torn(records: Sequence[SampleRecord]) -> list[SampleRecord]:
    """The samples, those first whose verifiers disagree most."""
    scores = [[v.score for v in record.verdicts.values() if v.score is not None] or [0.0] for record in records]
    order = sorted(range(len(records)), key=lambda i: min(scores[i]) - max(scores[i]))
    return [records[i] for i in order]


def _lowest(records: Sequence[SampleRecord]) -> list[SampleRecord]:
    return sorted((r for r in records if r.reward is not None), key=lambda r: (r.reward or 0.0, -r.tokens))


def _with(records: Sequence[SampleRecord], *outcomes: Outcome) -> list[SampleRecord]:
    """Those that some verifier gave one of these outcomes."""
    return [r for r in records if any(v.outcome in outcomes for v in r.verdicts.values())]


PICKS: dict[str, Pick] = {
    "W10": lambda records: _of_kinds(records, "all_wrong", "all_right"),
    "W11": lambda records: _of_kinds(records, "all_wrong"),
    "W12": lambda records: _of_kinds(records, "all_right"),
    "W20": lambda records: [r for r in records if r.truncated],
    "W21": lambda records: sorted((r for r in records if r.is_right), key=lambda r: r.tokens),
    "W22": lambda records: sorted(records, key=lambda r: -r.tokens),
    "W23": lambda records: sorted(records, key=lambda r: -repetition(r.completion)),
    "W33": lambda records: _of_kinds(records, "all_wrong"),
    "W35": lambda records: _of_kinds(records, "all_wrong"),
    "W40": lambda records: _with(records, Outcome.ERROR, Outcome.OVER_LIMIT),
    "W41": lambda records: sorted(records, key=lambda r: -sum(v.seconds for v in r.verdicts.values())),
    "W49": lambda records: [r for r in records if any(v.reason == UNTRUSTED for v in r.verdicts.values())],
    "W46": lambda records: sorted(records, key=lambda r: -sum(not t.get("valid", True) for t in r.turns)),
    # episodes that reach a milestone again most often first, then those that reach any and are not right
    "W47": lambda records: sorted(
        (r for r in records if any(turn.get("milestone") is not None for turn in r.turns)),
        key=lambda r: (-repeated_turns(r), r.is_right),
    ),
    "W62": lambda records: _of_kinds(records, "all_wrong", "all_right"),
    "W63": lambda records: _lowest([r for r in records if r.is_right]),
    "W43": _torn,
    "W44": lambda records: [r for r in _torn(records) if not r.is_right],
    # right by the primary verifier, and not right by another one
    "W70": lambda records: [
        r for r in _with(_torn(records), Outcome.WRONG, Outcome.NO_ANSWER, Outcome.OVER_LIMIT) if r.is_right
    ],
    "W53": lambda records: [r for r in records if not r.is_right],
    "W54": list,
    "W71": lambda records: [r for r in records if not r.is_right],
}
"""For other codes the samples of least reward are shown."""


# Reasons that blame the options of a verifier, not the completion, and how to fix them.

UNTRUSTED = "untrusted_objects"
TAIL = "/reason/" + UNTRUSTED
"""Of the metric `verify/NAME/reason/untrusted_objects`."""
FIX = (
    "their tests compare objects of classes that the completion defines, whose word decides nothing: set"
    " `trusted_objects: true` in the options of the verifier to let it, at the risk of being cheated"
)


def untrusted_objects(history: History, limits: Limits) -> Finding | None:
    """W49: many answers have no verdict because the tests depend on objects of the completion, which decide nothing."""
    if len(history) < limits.window:
        return None
    history = history[-limits.window :]
    # few runs have the key, so check for any first: one key at a time would take a tenth of a second
    said = [m for m in history if TAIL in "\n".join(m)]
    keys = {key for m in said for key in m if key.endswith(TAIL)}
    shares = {key.split("/")[1]: mean([m.get(key) or 0.0 for m in history]) or 0.0 for key in sorted(keys)}
    name, share = max(shares.items(), key=lambda item: item[1], default=("", 0.0))
    if share < limits.untrusted:
        return None
    text = f"{share:.0%} of the verdicts of `{name}` in {limits.window} steps are `{UNTRUSTED}`"
    return finding_at("W49", history, text, FIX)


def untrusted_warning(counted: Iterable[tuple[str, int]]) -> str | None:
    """The same for (reason, count) of verdicts on samples; None where no reason is `untrusted_objects`."""
    n = sum(count for reason, count in counted if reason == UNTRUSTED)
    return f"{n:,} {'sample has' if n == 1 else 'samples have'} no verdict, `{UNTRUSTED}`: {FIX}" if n else None
