"""What a person reads of a probe. Model text is made harmless first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.jobs.probe.run import Probed
from grpo_cli.measure.gate import bars, bound, causes, in_words
from grpo_cli.measure.probe import ProbeRun
from grpo_cli.measure.probe_result import Probe
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import Interval
from grpo_cli.text import visible

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Gate

INDENT = 10
ENDS = 160
"""Characters shown of the end of an example, where the answer is."""


def table(found: ProbeRun, model: str, temperature: float) -> list[str]:
    """Everything but the gate."""
    p = found.probe
    lines = [
        _line(
            "probe",
            f"{visible(model)}   {len(p.prompts)} prompts x {p.samples} samples, at most {p.max_tokens} tokens,"
            f" temperature {temperature:g}   {found.seconds:.1f}s on {found.device}",
        ),
        _line("pass@1", f"{in_words(p.pass_1)}" + (f"   pass@{p.samples} {in_words(p.pass_k)}" if p.pass_k else "")),
        _line("outcomes", "   ".join(f"{n.replace('_', ' ')} {_share(s)}" for n, s in p.outcomes.items())),
        *([_line("errors", visible(p.failures.text()))] if p.failures.failed else []),
        *_reasons(p),
        _line("length", _lengths(p)),
        _line("prompts", "   ".join(f"{k}/{p.samples} {n}" for k, n in p.histogram().items() if n)),
    ]
    if p.equal_rewards is not None:
        lines.append(_line("rewards", f"the same in all {p.samples} samples for {p.equal_rewards:.0%} of prompts"))
    if p.noise is not None:
        said = f"{p.noise.sigma:.3g} on one answer, by {p.noise.n} scored twice; a spread below {p.noise.floor(p.group):.3g} in a"
        lines.append(_line("noise", f"{said} group of {p.group} is noise: `train.std_floor: noise`, or that number"))
    lines += _forecasts(p)
    for cause in causes(p):
        lines += [_line("why", cause.text), f"{'':<{INDENT}}hint: {cause.hint}"]
    return [*lines, *_examples(p)]


def gate_lines(probe: Probe, gate: Gate | None) -> list[str]:
    """Each bar, and go or no-go as the last line."""
    if gate is None:
        return ["", "no `gate` in the recipe: no verdict"]
    checks = bars(probe, gate)
    lines = [""]
    for bar in checks:
        word = "met" if bar.is_met else "missed"
        close = "   close: more prompts would tell" if bar.is_close else ""
        lines.append(_line("gate", f"{word:<7} {bar.name} {in_words(bar.value)}   {bound(bar)}{close}"))
    missed = sum(not bar.is_met for bar in checks)
    return [*lines, f"no-go: {missed} of {len(checks)} bars missed" if missed else "go"]


def _forecasts(p: Probe) -> list[str]:
    if not p.forecasts:
        return [_line("groups", "— no prompt has two verdicts")]
    lines = [_line("groups", "  size   all wrong   all right   dead")]
    for f in p.forecasts:
        mark = "*" if f.group == p.group else " "
        about = "   extrapolated" if f.is_extrapolated else ""
        dead = f"{f.dead.mean:>5.0%} [{f.dead.low:.0%}, {f.dead.high:.0%}]"
        lines.append(f"{'':<{INDENT}}{mark} {f.group:>4} {f.all_wrong:>11.0%} {f.all_right:>11.0%}  {dead}{about}")
    if p.pays is None:
        said = f"no group of up to {p.forecasts[-1].group} would pay: hardly any would have right and wrong answers"
    else:
        larger = next((f for f in p.forecasts if f.group > p.pays.group), None)
        gain = f"; {larger.group} would add {max(0.0, larger.signal - p.pays.signal):.0%}" if larger else ""
        said = f"a group of {p.pays.group}: signal in {p.pays.signal:.0%} of groups{gain}   (* the recipe's: {p.group})"
    return [*lines, _line("pays", said)]


def _examples(p: Probe) -> list[str]:
    lines: list[str] = []
    for kind, records in p.examples.items():
        for record in records:
            lines += ["", _line(kind.replace("_", " "), f"{visible(record.row)}   {_about(record)}")]
            lines.append(
                f"{'':<{INDENT}}… {_end(record.completion)}" if record.completion else f"{'':<{INDENT}}(empty)"
            )
    return lines


def _about(record: SampleRecord) -> str:
    """Answer found, answer wanted, reason."""
    parts = [f"{record.tokens} tokens" + (", cut off" if record.truncated else "")]
    for name, verdict in record.verdicts.items():
        answer = f" {_short(verdict.answer)}" if verdict.answer is not None else ""
        parts.append(
            f"{name}: {verdict.outcome.value}{answer}" + (f" ({visible(verdict.reason)})" if verdict.reason else "")
        )
    if (wanted := record.fields.get("answer")) is not None:
        parts.append(f"expected {_short(str(wanted))}")
    return "   ".join(parts)


def _reasons(p: Probe, most: int = 4) -> list[str]:
    if not p.reasons:
        return []
    named = "   ".join(f"{visible(reason)} {count}" for reason, count in list(p.reasons.items())[:most])
    return [_line("reasons", named)]


def _lengths(p: Probe) -> str:
    numbers = (("mean", p.mean_tokens), ("p95", p.p95_tokens), ("p95 of right", p.right_p95_tokens))
    said = "   ".join(f"{name} {'—' if value is None else f'{value:.0f}'}" for name, value in numbers)
    return f"{said}   limit {p.max_tokens}   truncated {_share(p.truncated)}"


def _share(interval: Interval) -> str:
    return f"{interval.mean:.1%}"


def _end(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= ENDS else line[-ENDS:]


def _short(text: str, most: int = 40) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _line(name: str, text: str) -> str:
    return f"{name:<{INDENT}}{text}"


def lines_of(found: Probed, gate: Gate | None, model: str, temperature: float) -> Sequence[str]:
    """The whole page."""
    return [*table(found.run, model, temperature), *_fit(found), *gate_lines(found.run.probe, gate)]


def _fit(found: Probed) -> list[str]:
    """Whether the run fits the cards that were asked about."""
    if found.fit is None:
        return [] if found.unsaid is None else ["", _line("fit", f"unknown: {found.unsaid}")]
    hint = found.fit.hint()
    lines = [*found.fit.lines(), *([f"hint: {hint}"] if hint else [])]
    return ["", _line("fit", found.fit.message()), *(f"{'':<{INDENT}}{line}" for line in lines)]
