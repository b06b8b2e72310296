"""Short forms of YAML and what they mean. `widen` is safe on parts of a recipe; layers are widened before they merge.

`widen_checked` adds what only a whole recipe has: lists where one item may stand alone, and kinds named by the key.
"""

from __future__ import annotations

from typing import Any

from grpo_cli.text import Json

GONE = {
    (
        "sample",
        "reuse",
    ): "prefix reuse was removed in 0.3: held-out pass@1 was lower by .020, in each of 3 seeds, and a GPU"
    " generated at .31 to .55 x the speed; leave it out"
}
"""Keys that recipes had once, and why they went. Null, as the recipes of old runs have it, is no key."""

SHOWN = {"demonstration": "{completion}"}
"""What a phase of `sft` shows where it does not say: the samples of a run."""


def widen(data: dict[str, Any]) -> dict[str, Any]:
    """A layer with `model: NAME`, `train: FILE`, `math:` and the like written as mappings."""
    out = without_gone(data, only_null=True)
    if isinstance(out.get("model"), str):
        out["model"] = {"path": out["model"]}
    if isinstance(out.get("environment"), str):
        out["environment"] = {"python": out["environment"]}
    elif isinstance(out.get("environment"), dict) and isinstance(out["environment"].get("tools"), str):
        out["environment"] = out["environment"] | {"tools": [out["environment"]["tools"]]}
    if isinstance(out.get("data"), dict):
        rows = out["data"] = dict(out["data"])
        for key in ("train", "eval"):
            if key in rows:
                rows[key] = _sources(rows[key])
    for section in ("verify", "shaping"):
        if isinstance(out.get(section), dict):
            out[section] = {name: _verifier(name, one, section) for name, one in out[section].items()}
    if isinstance(out.get("train"), dict) and isinstance(out["train"].get("credit"), str):
        out["train"] = out["train"] | {"credit": {"method": out["train"]["credit"]}}
    if isinstance(out.get("combine"), str):
        out["combine"] = {"method": out["combine"]}
    elif isinstance(out.get("combine"), dict) and "method" not in out["combine"]:
        said = [method for method in ("gate", "by") if method in out["combine"]]
        out["combine"] = ({"method": said[0]} if len(said) == 1 else {}) | out["combine"]
    if isinstance(out.get("warmup"), list):
        out["warmup"] = [_phase(p) for p in out["warmup"]]
    elif isinstance(out.get("warmup"), dict):
        out["warmup"] = [_phase(out["warmup"])]
    if isinstance(out.get("monitor"), dict) and "canary" in out["monitor"]:
        out["monitor"] = out["monitor"] | {"canary": _canary(out["monitor"]["canary"])}
    if isinstance(out.get("sft"), list | dict):
        phases = out["sft"] if isinstance(out["sft"], list) else [out["sft"]]
        out["sft"] = [_phase(SHOWN | p if isinstance(p, dict) else p) for p in phases]
    if isinstance(out.get("prefer"), dict) and "data" in out["prefer"]:
        out["prefer"] = out["prefer"] | {"data": _sources(out["prefer"]["data"])}
    if isinstance(out.get("stages"), list):
        out["stages"] = [widen(stage) if isinstance(stage, dict) else stage for stage in out["stages"]]
    for section in ("sample", "eval", "monitor", "stop", "run", "launch", "shaping", "combine"):
        if section in out and out[section] is None:
            out[section] = {}
    return out


def without_gone(data: dict[str, Any], *, only_null: bool = False) -> dict[str, Any]:
    """A copy without the keys of `GONE`, in `stages` too: what is read of an old run does not depend on them."""
    out = dict(data)
    for section, key in GONE:
        keys = out.get(section)
        if isinstance(keys, dict) and key in keys and (keys[key] is None or not only_null):
            out[section] = {name: value for name, value in keys.items() if name != key}
    if isinstance(out.get("stages"), list) and not only_null:  # `widen` comes to each stage itself
        out["stages"] = [without_gone(one) if isinstance(one, dict) else one for one in out["stages"]]
    return out


def widen_checked(data: dict[str, Any]) -> dict[str, Any]:
    """A whole recipe with a lone training source as a list and every verifier's kind said."""
    out = dict(data)
    rows = out.get("data")
    if isinstance(rows, dict) and isinstance(rows.get("train"), dict):
        out["data"] = rows | {"train": [rows["train"]]}
    if isinstance(out.get("verify"), dict):
        out["verify"] = {
            name: {"kind": name} | one if isinstance(one, dict) else one for name, one in out["verify"].items()
        }
    return out


def _canary(value: Json) -> Json:
    if isinstance(value, dict):
        return value | {"from": _sources(value["from"])} if "from" in value else value
    return value if value is None else {"from": _sources(value)}


def _sources(value: Json) -> Json:
    if isinstance(value, str):
        return {"from": value}
    if isinstance(value, list):
        return [_sources(item) if isinstance(item, str) else item for item in value]
    return value


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


def _phase(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    out = dict(value)
    shown = out.get("demonstration")
    if isinstance(shown, str):
        out["demonstration"] = [{"template": shown}]
    elif isinstance(shown, dict):
        out["demonstration"] = [shown]
    elif isinstance(shown, list):
        out["demonstration"] = [{"template": s} if isinstance(s, str) else s for s in shown]
    if "data" in out:
        out["data"] = _sources(out["data"])
    return out
