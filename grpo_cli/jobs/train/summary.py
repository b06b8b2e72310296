"""The one object of `grpo train --json`."""

from __future__ import annotations

import re
from typing import Any

from grpo_cli.jobs.train.result import TrainResult

SCHEMA = 1


def summary(outcome: TrainResult) -> dict[str, Any]:
    """The one object of `--json`."""
    return {
        "schema": SCHEMA,
        "run": str(outcome.run.path),
        "steps": outcome.steps,
        "status": outcome.status,
        "before": measured(outcome.before),
        "after": measured(outcome.after),
        "seconds": {name: round(value, 3) for name, value in outcome.seconds.items()},
        "checkpoint": str(outcome.checkpoint) if outcome.checkpoint else None,
    }


def measured(metrics: dict[str, Any] | None) -> dict[str, Any] | None:
    """pass@1 with interval and n, sampled; greedy beside it where it was measured."""
    if metrics is None:
        return None
    found = {"pass@1": metrics["eval/pass@1"], "ci": _ci(metrics, "eval/pass@1"), "n": metrics["eval/n"]}
    found |= {key.removeprefix("eval/"): value for key, value in metrics.items() if re.fullmatch(r"eval/pass@\d+", key)}
    found["think"] = metrics["eval/think"]
    found["without_verdict"] = metrics.get("eval/without_verdict")
    if "eval/greedy" in metrics:
        greedy = {"pass@1": metrics["eval/greedy"], "ci": _ci(metrics, "eval/greedy"), "n": metrics["eval/greedy/n"]}
        found["greedy"] = greedy
    return found


def _ci(metrics: dict[str, Any], key: str) -> list[float]:
    return [metrics[f"{key}/low"], metrics[f"{key}/high"]]
