"""Go or no-go by the recipe's `gate`, and the plain answer to "why would my reward be zero".

The gate compares estimates, not the ends of intervals. If an interval crosses the bound, the check notes that the
result is close and that more prompts would decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_cli.findings.finding import Limits
from grpo_cli.findings.samples import untrusted_warning
from grpo_cli.measure.probe_result import Probe
from grpo_cli.statistics.estimate import Interval

if TYPE_CHECKING:
    from grpo_cli.measure.probe import ProbeRun
    from grpo_cli.recipe.sections.recipe import Gate

SCHEMA = 1
MUCH = 0.25
"""A failure with at least this share is named as a cause."""
NEARLY_ALL = 0.8
"""Share of groups without a right answer from which what they cannot teach is named."""


@dataclass(frozen=True, slots=True)
class GateBound:
    """One bound of the gate and how it was met."""

    name: str
    value: Interval
    low: float
    high: float

    @property
    def is_met(self) -> bool:
        """Whether the estimate lies within the bounds; a share that was not measured does not."""
        return self.low <= self.value.mean <= self.high

    @property
    def is_close(self) -> bool:
        """Whether the interval reaches across a bound; never of a bar that is met by 0 % or 100 %."""
        if self.is_met and self.value.mean in (0.0, 1.0):
            return False
        return self.value.low < self.low <= self.value.high or self.value.low <= self.high < self.value.high

    def as_json(self) -> dict[str, Any]:
        """The object in `--json`."""
        return {
            "name": self.name,
            **self.value.as_json(),
            "bar": [self.low, self.high],
            "met": self.is_met,
            "close": self.is_close,
        }


def bars(probe: Probe, gate: Gate) -> list[GateBound]:
    """Every bound that the gate sets."""
    here = probe.at_group
    # a group size that was not forecast: nothing was judged
    signal = Interval(0.0, 0.0, 0.0, 0)
    if here is not None:
        # what is not dead: the ends of the interval change places
        signal = Interval(here.signal, 1 - here.dead.high, 1 - here.dead.low, here.dead.n)
    found = [
        GateBound("pass@1", probe.pass_1, gate.pass_1[0], gate.pass_1[1]),
        GateBound("signal", signal, gate.signal, 1.0),
        GateBound("error", probe.outcomes["error"], 0.0, gate.error),
    ]
    if gate.truncated is not None:
        found.append(GateBound("truncated", probe.truncated, 0.0, gate.truncated))
    if gate.no_answer is not None:
        found.append(GateBound("no_answer", probe.outcomes["no_answer"], 0.0, gate.no_answer))
    return found


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for missing reward or signal, and what to change."""

    text: str
    hint: str


def causes(probe: Probe) -> list[Cause]:
    """The reasons why rewards would not differ, worst first; empty if there is much to learn from."""
    found = []
    share = {name: interval.mean for name, interval in probe.outcomes.items()}
    reason = next(iter(probe.reasons), "")
    if share["error"] > 0.01:
        found.append(
            Cause(
                f"{share['error']:.0%} of the samples got no verdict" + (f" (`{reason}`)" if reason else ""),
                "the verifier or its sandbox fails: `grpo doctor`, then `grpo check RECIPE`",
            )
        )
    if probe.truncated.mean >= MUCH:
        cut = f", {probe.right_when_cut:.0%} of those are right" if probe.right_when_cut is not None else ""
        found.append(
            Cause(
                f"{probe.truncated.mean:.0%} of the samples are cut off at {probe.max_tokens} tokens{cut}",
                f"`--set sample.max_tokens={2 * probe.max_tokens}`, or ask for shorter answers in `data.system`",
            )
        )
    if share["no_answer"] >= MUCH:
        found.append(
            Cause(
                f"no answer is found in {share['no_answer']:.0%} of the samples",
                "ask for the form that the verifier reads in `data.system` or `data.prompt`, or name the line that `math` and `numeric` "
                "shall read by `verify.NAME.mark`; see the examples",
            )
        )
    if share["over_limit"] >= 0.01:
        found.append(
            Cause(
                f"{share['over_limit']:.0%} of the samples run over a limit of the verifier",
                "see the examples; the limits are options of the verifier",
            )
        )
    if (untrusted := untrusted_warning(probe.reasons.items())) is not None:
        text, _, mend = untrusted.partition(": ")
        found.append(Cause(text, mend))
    alike = (probe.one_text or 0.0) >= Limits().one_text
    if alike:
        found.append(
            Cause(
                f"the samples of {probe.one_text:.0%} of the prompts are one wrong text, {probe.distinct:.1f} different of"
                f" {probe.samples} in the mean",
                "a `warmup` with fewer steps or more rows, or a higher `sample.temperature`; a larger group helps nothing",
            )
        )
    here = probe.at_group
    if here is not None and here.dead.mean > 0.5:
        hard = here.all_wrong >= here.all_right
        more = f"; {probe.pays.group} would pay" if probe.pays and probe.pays.group > here.group else ""
        found.append(
            Cause(
                f"{here.dead.mean:.0%} of groups of {here.group} would be dead: {here.all_wrong:.0%} all wrong,"
                f" {here.all_right:.0%} all right",
                "samples that differ"
                if alike
                else ("easier prompts, a `warmup`, or a larger group" if hard else "harder prompts") + more,
            )
        )
    if here is not None and here.all_wrong >= NEARLY_ALL and probe.unlearnable is not None:
        text, hint = probe.unlearnable
        found.append(Cause(f"{here.all_wrong:.0%} of groups of {here.group} would be all wrong: {text}", hint))
    return found


def probe_object(found: ProbeRun, gate: Gate | None) -> dict[str, Any]:
    """The one object of `--json`; `go` is null where the recipe has no gate."""
    checks = bars(found.probe, gate) if gate is not None else []
    return {
        "schema": SCHEMA,
        "go": all(bar.is_met for bar in checks) if gate is not None else None,
        "gate": [bar.as_json() for bar in checks],
        "causes": [{"text": cause.text, "hint": cause.hint} for cause in causes(found.probe)],
        "device": found.device,
        "seconds": round(found.seconds, 3),
        **found.probe.as_json(),
    }


def probe_line(probe: Probe, gate: Gate) -> str:
    """The verdict in one line: `gate: no-go on signal: 0.062 ±.06, must be at least 0.2`."""
    checks = bars(probe, gate)
    missed = [bar for bar in checks if not bar.is_met]
    size = f"{len(probe.prompts)} prompts x {probe.samples}"
    if not missed:
        return f"gate: go   {'   '.join(f'{bar.name} {in_words(bar.value)}' for bar in checks)}   {size}"
    said = "; ".join(f"{bar.name} {in_words(bar.value)}, must be {bound(bar)}" for bar in missed)
    return f"gate: no-go on {said}   ({size})"


def bound(bar: GateBound) -> str:
    """A bound in words: `at least 0.2`."""
    if bar.high >= 1.0:
        return f"at least {bar.low:g}"
    return f"at most {bar.high:g}" if bar.low <= 0 else f"from {bar.low:g} to {bar.high:g}"


def in_words(interval: Interval) -> str:
    """`0.062 [0.010, 0.114]`; a dash where nothing was measured."""
    if math.isnan(interval.mean):
        return "—"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
