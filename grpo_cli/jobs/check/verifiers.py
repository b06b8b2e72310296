"""Checks that the verifiers run here, that every gold passes its verifier, and that wrong answers do not.

That a verifier accepts each gold proves little: one that accepts everything does so too. So the empty completion and
the golds of other rows are judged as well, and both should be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.data.audit import GoldAudit, audit_golds
from grpo_cli.data.rows import Row, Split
from grpo_cli.data.sources import Which
from grpo_cli.errors import DataError, Exit, Mistake, UserError, alike, said_once
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.reading import spread_parts
from grpo_cli.jobs.open_job import Notes
from grpo_cli.jobs.rows import load_canary
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.hints import WORDS, hints_of
from grpo_cli.reward.judge import Judge
from grpo_cli.statistics.failures import Failures
from grpo_cli.text import visible
from grpo_verifiers import Outcome, Sample, Verifier
from grpo_verifiers.combine import SUM, CombineRule, judges_of

if TYPE_CHECKING:
    from grpo_verifiers.sandbox.tiers import Tier

CROSSED = 64
SHOWN = 10
MANY = 0.1
TRIED = 64
"""Number of rows on which each verifier is tried; rows that differ are chosen."""
VALUES = 32
"""A column with at most this many values is taken as the kind of a row."""
TRIED_S = 5.0


def check_verifiers(
    recipe: Recipe, base: Path | None, rows: Mapping[Which, Sequence[Row]], budget_s: float | None
) -> Generator[CheckFinding, None, tuple[GoldAudit | None, Sequence[Row]]]:
    """Whether the verifiers run here, pass the golds of these rows and nothing else; the audit of the first split, and the rows
    of `monitor.canary`."""
    first: GoldAudit | None = None
    canary: Split | None = None
    unjudged: list[CheckFinding] = []
    try:
        judge = Judge.of(recipe, base)
    except UserError as err:
        yield failed("verify", err)
        return None, ()
    try:
        started = check_start(judge)
        yield from started
        if any(finding.level is Level.FAIL for finding in started):
            return None, ()
        for which, own in rows.items():
            drops = recipe.data.on_bad_gold == "drop"
            audit, finding = check_golds(which, own, judge.verifiers, drops, budget_s, judge.rule)
            yield finding
            first = first or audit
            if audit is not None and audit.rows:
                unjudged += check_rows_judged(which, audit, judge.verifiers, judge.rule)
        yield from unjudged
        fails = {finding.check for finding in unjudged}
        if first is not None and first.rows:
            refusals = check_refusals(first, judge.verifiers, judge.rule)
            yield from (finding for finding in refusals if finding.check not in fails)
        yield from check_teacher(recipe, judge, rows.get("train", ()))
        # whether the verifier that defines what is right can reach that score at all
        name = judge.primary
        most, right_at = judge.verifiers[name].most, judge.specs[name].right_at
        if not (most is None or most >= right_at):
            others = [other for other in judge.verifiers if other != name]
            other = f", or make another primary: `verify.{others[0]}.primary: true`" if others else ""
            yield CheckFinding(
                f"verify.{name}",
                Level.WARN,
                f"says what right means and gives {most:g} at most, where right begins at {right_at:g}: no completion can be right,"
                " pass@1 stays 0",
                data={"most": most, "right_at": right_at},
                hint=f"say `verify.{name}.right_at: {most:g}`{other}",
                code=Exit.DATA,
            )
        canary = load_canary(recipe, base, judge, Notes(), rows.get("train", ()))
    except UserError as err:
        yield failed("canary", err)
    finally:
        judge.close()
    return first, canary.rows if canary is not None else ()


def check_start(judge: Judge) -> list[CheckFinding]:
    """Start workers and sandboxes."""
    began = time.perf_counter()
    try:
        judge.start()
    except UserError as err:
        return [failed("verify", err)]
    names = ", ".join(f"{name}{' (primary)' if name == judge.primary else ''}" for name in judge.verifiers)
    started = CheckFinding("verify", Level.OK, f"{names} started in {time.perf_counter() - began:.2f} s")
    sandboxes = [_sandbox(name, tier) for name, v in judge.verifiers.items() if (tier := getattr(v, "tier", None))]
    return [started, *sandboxes]


def _sandbox(name: str, tier: Tier) -> CheckFinding:
    """What the verifier's sandbox blocked in its self-test, and what its tier does not guarantee."""
    check = f"verify.{name}"
    forbidden = [one for one in tier.checks if one.asked == "refused"]
    breaches = [one.name for one in forbidden if one.is_breach]
    refused = len(forbidden) - len(breaches)
    message = f"sandbox `{tier.name}` refused {refused} of {len(forbidden)} forbidden things that were tried"
    if breaches:
        return CheckFinding(check, Level.FAIL, f"{message}; open: {', '.join(breaches)}", code=Exit.SETUP)
    lines = tuple(f"not covered: {what}" for what in tier.warnings)
    return CheckFinding(check, Level.OK, message, lines, tier.as_json())


def check_golds(
    which: str,
    rows: Sequence[Row],
    verifiers: Mapping[str, Verifier],
    drops: bool,
    budget_s: float | None,
    rule: CombineRule = SUM,
) -> tuple[GoldAudit | None, CheckFinding]:
    """The golds of one split, judged by their verifiers. After the time budget the rest is skipped, and the count shows
    this."""
    check = f"golds {which}"
    began = time.perf_counter()
    audited = GoldAudit([], {name: [] for name in verifiers}, [])
    seen = 0
    for part in spread_parts(rows):
        try:
            found = audit_golds(part, verifiers, "drop", rule)
        except DataError as err:  # every row of this part is bad
            found = GoldAudit([], {name: [] for name in verifiers}, err.mistakes)
        except UserError as err:
            return None, failed(check, err)
        seen += len(part)
        audited.rows.extend(found.rows)
        audited.dropped.extend(found.dropped)
        audited.doubtful.extend(found.doubtful)
        for name, golds in found.golds.items():
            audited.golds[name].extend(golds)
            # `describe` counts them all: a gold without a verdict is one of its data set, too
            audited.refused.setdefault(name, []).extend(found.refused.get(name, ()))
        if budget_s is not None and time.perf_counter() - began > budget_s:
            break
    seconds = time.perf_counter() - began
    finding = _golds_finding(check, which, len(rows), seen, audited.dropped, drops, seconds)
    if not audited.dropped:
        # these verifiers cannot write a right completion: their golds were not tried
        untried = [
            name
            for name, verifier in verifiers.items()
            if not any(
                gold is not None and verifier.gold_text(row.fields) is not None
                for row, gold in zip(audited.rows, audited.golds[name], strict=True)
            )
        ]
        if untried:
            names = ", ".join(f"`{name}`" for name in untried)
            text = f"{names} name{'s' * (len(untried) == 1)} no gold; nothing was tried"
            if len(untried) < len(verifiers):
                finding = replace(finding, lines=(*finding.lines, text))
            else:
                finding = replace(finding, level=Level.NOTE, message=text)
    kinds = [
        f"`{name}` reads {line}"
        for name, verifier in verifiers.items()
        for line in verifier.describe(
            [gold for gold in (*audited.golds[name], *audited.refused.get(name, ())) if gold is not None]
        )
    ]
    finding = replace(finding, lines=(*kinds, *finding.lines))
    if doubtful := audited.doubtful:  # golds such as `N/A`, which a verifier of text cannot distinguish from an answer
        said = f"{len(doubtful):,} of {seen:,} golds read like none: `data.where` leaves such rows out"
        lines = (*finding.lines, said, *(f"{m.place}: {m.message}" for m in doubtful[:SHOWN]))
        level = Level.NOTE if finding.level is Level.OK else finding.level
        finding = replace(finding, level=level, lines=lines, data={**finding.data, "doubtful": len(doubtful)})
    return audited, finding


def _golds_finding(
    check: str, which: str, total: int, seen: int, bad: Sequence[Mistake], drops: bool, seconds: float
) -> CheckFinding:
    whole = f"{seen:,}{f' of {total:,}' if seen < total else ''} {which} rows"
    data: dict[str, Any] = {"rows": total, "n": seen, "bad": len(bad), "seconds": seconds}
    if not bad:
        return CheckFinding(check, Level.OK, f"all of {whole} pass their own verifier", data=data)
    kinds = alike(bad)
    lines = tuple(map(said_once, kinds[:SHOWN]))
    if len(kinds) > SHOWN:
        lines += (f"… and {sum(map(len, kinds[SHOWN:])):,} more",)
    message = f"{len(bad):,} of {whole} have a bad gold"
    if len(bad) == seen:
        hint = "every row has one: look at `data.answer`, `gold` and the verifier first"
        return CheckFinding(check, Level.FAIL, message, lines, data, hint)
    if drops:
        return CheckFinding(check, Level.NOTE, f"{message}; `data.on_bad_gold: drop` leaves them out", lines, data)
    hint = "fix the rows, or set `data.on_bad_gold: drop` to leave them out"
    return CheckFinding(check, Level.FAIL, message, lines, data, hint)


def check_teacher(recipe: Recipe, judge: Judge, rows: Sequence[Row]) -> Iterator[CheckFinding]:
    """A finding for the teacher, with what it is asked of three rows."""
    if recipe.distil is None or not rows:
        return
    try:
        hints = hints_of(recipe, rows, judge)
    except UserError as err:
        yield failed("teacher", err)
        return
    assert hints is not None
    kind, lines = recipe.distil.teacher[-1], list[str]()
    shown = {"reason": "(the reason)", "sibling": "(a right sample of the group)"}
    for row in range(min(SHOWN, len(rows))):
        words = shown.get(kind) or hints.gold(row) or ""
        asked = hints.row(rows[row], WORDS[kind].format(words) if kind in WORDS and words else "")
        text = asked.prompt if asked.messages is None else str(asked.messages[-1]["content"])
        lines.append(f"asked: {visible(text, 300)}")
    said = f"teaches from {', '.join(f'`{one}`' for one in recipe.distil.teacher)}, where `when: {recipe.distil.when}`"
    if "reason" in recipe.distil.teacher and not judge.verifiers[judge.primary].reason_is_public:
        lines.append(f"of a reason it sees the code alone: `{judge.primary}` does not declare its details public")
    if "gold" in recipe.distil.teacher:
        said = f"{said}; the student learns to state answers that it cannot derive"
        yield CheckFinding("teacher", Level.WARN, said, tuple(lines))
        return
    yield CheckFinding("teacher", Level.OK, said, tuple(lines))


def check_rows_judged(
    which: str, audit: GoldAudit, verifiers: Mapping[str, Verifier], rule: CombineRule = SUM
) -> Iterator[CheckFinding]:
    """A finding for each verifier that gives no verdict on a plain completion, with the affected rows of one split.

    Every kind of row is tried, for about `TRIED_S` seconds; kinds are determined by columns with few values and by the
    types in other columns.
    """
    for name, verifier in verifiers.items():
        if not verifier.reads_text:
            continue
        indices = [i for i, row in enumerate(audit.rows) if name in judges_of(row.fields, verifiers, rule)]
        chosen = [indices[at] for at in varied([audit.rows[i] for i in indices], 1 if verifier.is_learned else TRIED)]
        found, began, at, size = Failures(), time.perf_counter(), 0, 4
        while at < len(chosen) and time.perf_counter() - began < TRIED_S:
            part = chosen[at : at + size]
            # an empty completion; if the user's code fails on it, the verifier itself tries plain completions
            asked = [Sample("", audit.golds[name][i], audit.rows[i].prompt) for i in part]
            for i, verdict in zip(part, verifier.judge(asked), strict=True):
                row = audit.rows[i]
                found.add({name: verdict}, row.place or row.id, row.fields)
            at, size = at + size, 2 * size
        if found.failed:
            of = f"{found.failed} of {found.samples} {which} rows that were tried"
            kinds = found.commonest
            lines = tuple(", ".join(one.rows) + (f": {one.message}" if len(kinds) > 1 else "") for one in kinds[:SHOWN])
            message = f"no verdict on a plain completion of {of}: {kinds[0].message}"
            hint = "samples of such rows have no reward: fix the verifier, or leave the rows out with `data.where`"
            yield CheckFinding(f"verify.{name}", Level.FAIL, message, lines, found.as_json(), hint, Exit.SETUP)


def varied(rows: Sequence[Row], most: int) -> list[int]:
    """Indices of at most `most` different rows: one for each value of a column with few values and for each type in
    other columns, the rest spread evenly."""
    if len(rows) <= most:
        return list(range(len(rows)))
    chosen: dict[int, None] = {0: None}
    for column in dict.fromkeys(name for row in rows for name in row.fields):
        firsts: dict[str, int] = {}
        types: dict[str, int] = {}
        for at, row in enumerate(rows):
            value = row.fields.get(column, _Absent)
            shape = sorted(map(str, value)) if isinstance(value, Mapping) else None
            types.setdefault(repr((type(value), shape)), at)
            if len(firsts) <= VALUES:
                firsts.setdefault(repr(value)[:200], at)
        kinds = firsts if len(firsts) <= VALUES else types
        if 1 < len(kinds) <= VALUES:
            chosen |= dict.fromkeys(kinds.values())
    kept = list(chosen)[:most]
    others = [at for at in range(len(rows)) if at not in chosen]
    left = most - len(kept)
    return sorted(kept + [others[n * len(others) // left] for n in range(left)])


class _Absent:
    """A column that a row lacks."""


def check_refusals(
    audit: GoldAudit, verifiers: Mapping[str, Verifier], rule: CombineRule = SUM
) -> Iterator[CheckFinding]:
    """Completions that must not be right: the empty one, and the golds of other rows."""
    for name, verifier in verifiers.items():
        if not verifier.reads_text:
            continue
        indices = [i for i, row in enumerate(audit.rows) if name in judges_of(row.fields, verifiers, rule)]
        if indices:
            found = _refusals(name, verifier, [audit.rows[i] for i in indices], [audit.golds[name][i] for i in indices])
            # the verifier's notes on itself, such as the form in which a function takes completions
            yield replace(found, lines=(*verifier.remarks(), *found.lines))


def _refusals(name: str, verifier: Verifier, rows: Sequence[Row], golds: Sequence[Any]) -> CheckFinding:
    check = f"verify.{name}"
    nothing = verifier.judge([Sample("", golds[0], rows[0].prompt)])[0]
    if nothing.outcome is Outcome.RIGHT:
        return CheckFinding(
            check, Level.WARN, "calls an empty completion right", hint="look at its options", code=Exit.DATA
        )
    if nothing.outcome is Outcome.ERROR:
        why = nothing.detail or nothing.reason
        return CheckFinding(check, Level.FAIL, f"fails on an empty completion: {why}", code=Exit.SETUP)
    stride = max(1, len(rows) // CROSSED)
    chosen = range(0, len(rows), stride)
    texts = [(index, verifier.gold_text(rows[index].fields)) for index in chosen]
    pairs = []
    for (_, text), (index, other) in pairwise(texts):
        if text is not None and text != other:
            pairs.append((Sample(text, golds[index], rows[index].prompt), rows[index]))
    crossed = pairs[:CROSSED]
    if not crossed:
        return CheckFinding(check, Level.OK, "an empty completion is not right; it names no golds to try on other rows")
    began = time.perf_counter()
    verdicts = verifier.judge([sample for sample, _ in crossed])
    each_ms = (time.perf_counter() - began) / len(crossed) * 1000
    passed = [pair for pair, verdict in zip(crossed, verdicts, strict=True) if verdict.outcome is Outcome.RIGHT]
    data = {"foreign_golds": len(crossed), "right": len(passed), "ms_each": each_ms}
    message = f"{len(passed)} of {len(crossed)} golds of other rows are called right, {each_ms:.3g} ms each"
    lines = tuple(f"{sample.completion!r} for {row.place}" for sample, row in passed[:3])
    if len(passed) > MANY * len(crossed):
        return CheckFinding(
            check,
            Level.WARN,
            message,
            lines,
            data,
            hint="a verifier that accepts the golds of other rows teaches nothing",
        )
    return CheckFinding(check, Level.OK, message, lines, data)
