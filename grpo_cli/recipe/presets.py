"""Named algorithms as plain tables of `train` fields. A preset only fills keys that the recipe leaves out.

Loss names are TRL's: `grpo` mean over answers of token means, `bnpo` and `dapo` mean over all tokens (of the
micro-batch, of the whole batch), `dr_grpo` sum over tokens by a constant. `std_ddof` 1 divides by G-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

_BASE: dict[str, Any] = {
    "loss": "dapo",
    "ratio": "token",
    "baseline": "mean",
    "scale": "group",
    "std_ddof": 1,
    "std_floor": 1e-6,
    "clip": {"low": 0.2, "high": 0.2, "cap": None},
    "kl": {"beta": 0.0, "estimator": "k3_corrected"},
    "inner_epochs": 1,
    "mini_batches": 1,
    "dead_groups": "keep",
    "overlong": None,
    "mask_truncated": False,
    "reward_combine": "sum",
    "credit": None,
    "critic": None,
}

_CHANGES: dict[str, dict[str, Any]] = {
    "default": {"clip": {"high": 0.28}, "dead_groups": "drop"},
    "grpo": {"loss": "grpo", "std_ddof": 0, "kl": {"beta": 0.04, "estimator": "k3"}},
    "grpo_k1": {"kl": {"beta": 0.04, "estimator": "k1_loss"}},
    "dr_grpo": {"loss": "dr_grpo", "scale": "none"},
    "dapo": {"clip": {"high": 0.28}, "dead_groups": "resample", "overlong": 0.2},
    "gspo": {"loss": "grpo", "ratio": "sequence", "clip": {"low": 3e-4, "high": 4e-4}, "inner_epochs": 4},
    "gspo_token": {"loss": "grpo", "ratio": "sequence_token", "clip": {"low": 3e-4, "high": 4e-4}, "inner_epochs": 4},
    "cispo": {"loss": "cispo", "clip": {"cap": 5.0}, "inner_epochs": 4},
    "sapo": {"loss": "sapo", "inner_epochs": 4},
    "rloo": {
        "loss": "dr_grpo",
        "baseline": "leave_one_out",
        "scale": "none",
        "kl": {"beta": 0.05, "estimator": "k1_reward"},
    },
    "reinforce_pp": {"scale": "batch", "kl": {"estimator": "k2"}},
    "gigpo": {"scale": "none", "credit": {"method": "gigpo", "norm": "mean", "gamma": 0.95, "weight": 1.0}},
    "ppo": {"baseline": "critic", "scale": "none", "kl": {"estimator": "k1_token"}, "mini_batches": 4, "critic": {}},
}


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `under`; mappings merge key by key, everything else is replaced."""
    out = dict(under)
    for key, value in over.items():
        below = out.get(key)
        out[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return out


PRESETS: dict[str, dict[str, Any]] = {name: merge(_BASE, changes) for name, changes in _CHANGES.items()}


def fill(train: Mapping[str, Any]) -> dict[str, Any]:
    """`train` with every field of its preset that it does not set itself; an unknown name changes nothing."""
    name = train.get("algorithm", "default")
    preset = deepcopy(PRESETS.get(name)) if isinstance(name, str) else None
    if preset is None:
        return dict(train)
    own, said = preset["credit"], train.get("credit")
    if own and ("scale" in train or (isinstance(said, Mapping) and said.get("method", own["method"]) != own["method"])):
        preset["credit"] = {"method": own["method"]}  # its options go with its own scale and method
    return merge(preset, train)
