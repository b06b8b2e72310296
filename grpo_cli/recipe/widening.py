"""What a recipe leaves out, written in: short forms as mappings, the keys of a named method, and what follows from other keys.

How this works: `widen` takes a part of a recipe (a file, what `--set` gives, a stage) and writes its short forms as mappings, so
that layers can be merged. `complete` takes a whole recipe and adds values that need the whole, such as the preset of
`train.algorithm`. A preset is a table of `train` fields and only fills keys that the recipe leaves out.

Loss names are TRL's: `grpo` mean over answers of token means, `bnpo` and `dapo` mean over all tokens (of the
micro-batch, of the whole batch), `dr_grpo` sum over tokens by a constant. `std_ddof` 1 divides by G-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from grpo_cli.text import Json

_BASE: dict[str, Any] = {
    "loss": "dapo",
    "ratio": "token",
    "baseline": "mean",
    "scale": "group",
    "std_ddof": 1,
    "std_floor": 1e-6,
    "pass_k": None,
    "ratio_clip": "ratio",
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
    "max_rl": {"scale": "mean"},
    "dppo": {"ratio_clip": "tv", "clip": {"delta": 0.2, "pull": 1e-3}, "inner_epochs": 4},
    "gmpo": {"loss": "gmpo", "ratio": "sequence", "clip": {"low": 0.4, "high": 0.4}, "inner_epochs": 4},
    "gdpo": {"reward_combine": "normalise_then_sum"},
    "pass_k": {"baseline": "pass_k", "pass_k": 4},
    "opo": {"baseline": "length", "scale": "none"},
    "otb": {"baseline": "token", "scale": "none"},
    "vespo": {"loss": "vespo", "inner_epochs": 4},
    "luspo": {"loss": "luspo", "ratio": "sequence", "clip": {"low": 3e-4, "high": 4e-4}, "inner_epochs": 4},
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


GONE = {
    (
        "sample",
        "reuse",
    ): "prefix reuse was removed in 0.3: held-out pass@1 was lower by .020, in each of 3 seeds, and a GPU"
    " generated at .31 to .55 x the speed; leave it out"
}
"""Keys that recipes had once, and why they went. Null, as the recipes of old runs have it, is no key."""

SHOWN = {"demonstration": "{completion}"}
"""What a phase of `sft` shows where that is left out: the samples of a run."""


def widen(data: dict[str, Any], *, of_run: bool = False) -> dict[str, Any]:
    """A layer with `model: NAME`, `train: FILE`, `math:` and the like written as mappings. Safe on parts of a recipe.

    Keys of `GONE` are left out where they are null, and all of them `of_run`: what is read of an old run does not depend on them.
    """
    out = dict(data)
    for section, key in GONE:
        keys = out.get(section)
        if isinstance(keys, dict) and key in keys and (of_run or keys[key] is None):
            out[section] = {name: value for name, value in keys.items() if name != key}
    sections = {key: value for key, value in out.items() if isinstance(value, dict)}
    for section, key in (("model", "path"), ("environment", "python"), ("combine", "method")):
        if isinstance(out.get(section), str):
            out[section] = {key: out[section]}
    if isinstance(tools := sections.get("environment", {}).get("tools"), str):
        out["environment"] = out["environment"] | {"tools": [tools]}
    if isinstance(command := sections.get("environment", {}).get("harness"), str):
        out["environment"] = out["environment"] | {"harness": {"command": command}}
    for section, keys in (("data", ("train", "eval")), ("prefer", ("data",))):
        given = sections.get(section, {})
        if found := {key: _sources(given[key]) for key in keys if key in given}:
            out[section] = given | found
    if isinstance(teacher := sections.get("distil", {}).get("teacher"), str):
        out["distil"] = out["distil"] | {"teacher": [teacher]}
    for section in sections.keys() & {"verify", "shaping"}:
        out[section] = {name: _verifier(name, one, section) for name, one in out[section].items()}
    if isinstance(credit := sections.get("train", {}).get("credit"), str):
        out["train"] = out["train"] | {"credit": {"method": credit}}
    if "combine" in sections and "method" not in out["combine"]:
        said = [method for method in ("gate", "by") if method in out["combine"]]
        out["combine"] = ({"method": said[0]} if len(said) == 1 else {}) | out["combine"]
    if (canary := sections.get("monitor", {}).get("canary")) is not None:
        if not isinstance(canary, dict):
            canary = {"from": canary}
        if "from" in canary:
            canary = canary | {"from": _sources(canary["from"])}
        out["monitor"] = out["monitor"] | {"canary": canary}
    for section, shown in (("warmup", {}), ("sft", SHOWN)):
        if isinstance(phases := out.get(section), list | dict):
            phases = phases if isinstance(phases, list) else [phases]
            out[section] = [_phase(shown | one) if isinstance(one, dict) else one for one in phases]
    if isinstance(out.get("stages"), list):
        out["stages"] = [widen(stage, of_run=of_run) if isinstance(stage, dict) else stage for stage in out["stages"]]
    for section in ("sample", "eval", "monitor", "stop", "run", "launch", "shaping", "combine"):
        if section in out and out[section] is None:
            out[section] = {}
    return out


def _sources(value: Json) -> Json:
    if isinstance(value, str):
        return {"from": value}
    if isinstance(value, list):
        return [{"from": item} if isinstance(item, str) else item for item in value]
    return value


def _of_taskset(sources: Json, of_world: dict[str, Any]) -> Json:
    if isinstance(sources, list):
        return [_of_taskset(one, of_world) for one in sources]
    if isinstance(sources, dict) and str(sources.get("from", "")).startswith("verifiers:"):
        own = sources.get("options", {})
        return sources | {"options": of_world | own} if isinstance(own, dict) else sources
    return sources


def _verifier(name: str, value: Json, section: str) -> Json:
    if value is None:
        return {}
    if section == "verify" and isinstance(value, str):
        return {"function": value} if name == "python" else {"kind": value}
    if section == "verify" and isinstance(value, dict) and "python" in value and "kind" not in value:
        rest = {key: option for key, option in value.items() if key != "python"}
        said = value["python"]
        return {"kind": "python"} | (said if isinstance(said, dict) else {"function": said}) | rest
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"weight": value}
    return value


def _phase(phase: dict[str, Any]) -> dict[str, Any]:
    shown = phase.get("demonstration")
    if isinstance(shown, str | dict):
        shown = [shown]
    if isinstance(shown, list):
        phase = phase | {"demonstration": [{"template": one} if isinstance(one, str) else one for one in shown]}
    return phase | {"data": _sources(phase["data"])} if "data" in phase else phase


def complete(data: dict[str, Any]) -> dict[str, Any]:
    """A whole recipe with short forms widened, the preset filled in, the learning rate chosen and one verifier primary."""
    out = widen(data)
    sections = {key: value for key, value in out.items() if isinstance(value, dict)}
    if isinstance(lone := sections.get("data", {}).get("train"), dict):
        out["data"] = out["data"] | {"train": [lone]}
    if sections.get("data", {}).get("images") and "model" in sections:
        out["model"] = {"kind": "vision"} | out["model"]
    if isinstance(world := sections.get("environment"), dict) and "data" in sections:
        # the tasks of a taskset are listed by the Python, and with the options, that play them
        of_world = {key: world[key] for key in ("interpreter", "options") if world.get(key)}
        out["data"] = {
            key: _of_taskset(one, of_world) if key in ("train", "eval") else one for key, one in out["data"].items()
        }
    evaluation = sections.get("eval")
    if evaluation is not None and "k" not in evaluation:
        samples = evaluation.get("samples", 4)
        out["eval"] = evaluation | {"k": [1, samples] if type(samples) is int and samples > 1 else [1]}
    if (train := sections.get("train")) is not None:
        lora = isinstance(sections.get("model", {}).get("lora"), dict)
        out["train"] = {"lr": 1e-5 if lora else 1e-6} | fill(train)
        for name in ("prefer", "distil"):
            if train.get("method") == name and out.get(name) is None:
                out[name] = {}
        phases = out.get("sft")
        if train.get("method") == "sft" and isinstance(phases, list):
            steps = [phase.get("steps") for phase in phases if isinstance(phase, dict)]
            out["train"]["steps"] = sum(n for n in steps if isinstance(n, int)) or 1
    verify, world = out.get("verify", {}), sections.get("environment")
    if not isinstance(verify, dict):
        return out
    verify = {name: {"kind": name} | one if isinstance(one, dict) else one for name, one in verify.items()}
    # parts behind the first are no reward: they stand beside it in the advantage
    parts = sections.get("train", {}).get("split")
    parts = (
        [part.get("verifiers") for part in parts.values() if isinstance(part, dict)] if isinstance(parts, dict) else []
    )
    first, *rest = [part if isinstance(part, list) else [] for part in parts] or [[]]
    for name in (name for part in rest for name in part if isinstance(name, str) and name not in first):
        if isinstance(one := verify.get(name), dict):
            verify[name] = {"weight": 0} | one
    given = [one for one in verify.values() if isinstance(one, dict)]
    # the outcome of an environment is a verdict, unless the model's answer is judged
    harness = (world or {}).get("harness")
    is_answer = bool(verify) and world is not None and bool(world.keys() & {"tools", "trl", "mcp"})
    is_answer |= bool(verify) and isinstance(harness, dict) and harness.get("score") is None
    if world is not None and not is_answer and not any(one.get("kind") == "environment" for one in given):
        verify["environment"] = {"kind": "environment"}
        given.append(verify["environment"])
    if given and not any(one.get("primary") for one in given):
        first = next(name for name, one in verify.items() if isinstance(one, dict))
        verify[first] = verify[first] | {"primary": True}
    return out | {"verify": verify} if verify or "verify" in out else out
