"""Reward functions that a configuration of another trainer names, as verifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OPEN_R1: dict[str, tuple[dict[str, Any], str]] = {
    "accuracy": ({"math": {}}, "{solution}"),
    "format": ({"format": {"tags": ["think", "answer"]}}, ""),
}
"""Names of open-r1's registry: the verifier that judges the same, and where the gold is."""
TRL = ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward", "get_soft_overlong_punishment")
"""Functions that `trl.rewards` has by these names."""

Left = list[tuple[str, object, str]]


def verifiers_of(names: Sequence[object], weights: Sequence[object]) -> tuple[dict[str, Any], str, Left]:
    """The section `verify`, the template of the gold (empty: none is known), and what could not be taken over."""
    verify: dict[str, Any] = {}
    left: Left = []
    gold = ""
    for at, named in enumerate(names):
        name = str(named)
        weight = {"weight": float(str(weights[at]))} if at < len(weights) else {}
        if name in OPEN_R1:
            (found, answer), gold = OPEN_R1[name], gold or OPEN_R1[name][1]
            verify |= {kind: options | weight for kind, options in found.items()}
            gold = gold or answer
        elif name in TRL and name != "get_soft_overlong_punishment":
            verify[name] = {"kind": "python", "function": f"trl.rewards:{name}"} | weight
        elif "." in name and "/" not in name:
            module, _, function = name.rpartition(".")
            verify[function] = {"kind": "python", "function": f"{module}:{function}"} | weight
        else:
            why = "give the function with `verify: {NAME: {python: FILE.py:FUNCTION}}`"
            if "/" in name:
                why = "a reward model is `verify: {NAME: {kind: reward_model}}`"
            elif name == "get_soft_overlong_punishment":
                why = "it is `train.overlong`"
            left.append((f"reward_funcs: {name}", weight.get("weight", 1.0), why))
    return verify, gold, left
