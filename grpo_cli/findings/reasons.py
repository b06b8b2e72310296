"""Reasons of a verifier that blame the setting, not the completion: said wherever reasons are counted, with the mend."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_cli.findings.finding import Finding, History, Limits, finding_at
from grpo_cli.statistics.step import mean

UNTRUSTED = "untrusted_objects"
TAIL = "/reason/" + UNTRUSTED
"""Of the metric `verify/NAME/reason/untrusted_objects`."""
MEND = (
    "their tests compare objects of classes that the completion defines, whose word decides nothing: set"
    " `trusted_objects: true` in the options of the verifier to let it, at the risk of being cheated"
)


def untrusted_share(history: History) -> tuple[str, float]:
    """The verifier of whose verdicts the largest share is `untrusted_objects` over these steps, and that share in [0, 1]."""
    said = [
        m for m in history if TAIL in "\n".join(m)
    ]  # of few runs: a key at a time takes a report a tenth of a second
    keys = {key for m in said for key in m if key.endswith(TAIL)}
    shares = {key.split("/")[1]: mean([m.get(key) or 0.0 for m in history]) or 0.0 for key in sorted(keys)}
    return max(shares.items(), key=lambda item: item[1], default=("", 0.0))


def untrusted_objects(history: History, limits: Limits) -> Finding | None:
    """W49: many answers are wrong because the tests lean on objects that do not decide."""
    if len(history) < limits.window:
        return None
    name, share = untrusted_share(history[-limits.window :])
    if share < limits.untrusted:
        return None
    text = f"{share:.0%} of the verdicts of `{name}` in {limits.window} steps are `{UNTRUSTED}`"
    return finding_at("W49", history, text, MEND)


def untrusted_warning(counted: Iterable[tuple[str, int]]) -> str | None:
    """The same for (reason, count) of verdicts on samples; None where there is none of them."""
    n = sum(count for reason, count in counted if reason == UNTRUSTED)
    return f"{n:,} {'sample is' if n == 1 else 'samples are'} wrong as `{UNTRUSTED}`: {MEND}" if n else None
