"""`train.trl` checked against the fields of TRL's GRPOConfig, without importing it (8 s and torch).

Names and types stand in `trl_fields.json`, which a test compares with the installed TRL. A field that a key of the
recipe sets is refused here, with that key in the hint: two ways to say one thing would contradict each other.
"""

from __future__ import annotations

import math
import re
from typing import Any

from grpo_cli.recipe.checking.mistakes import RecipeFinding, got_instead, shown
from grpo_cli.recipe.checking.other_names import ALWAYS, CHOICES, FIELDS, OURS, counterpart
from grpo_verifiers.names import nearest

PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list,),
    "dict": (dict,),
    "none": (type(None),),
}
WORDS = {
    "bool": "`true` or `false`",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "none": "null",
}
VLLM = "vllm_"
ADDRESS = re.compile(r"https?://[^/]")
LEVELS = ["debug", "info", "warning", "error", "critical", "detail", "passive"]
MODES = {"vllm_mode": ["colocate", "server"], "log_level": LEVELS, "log_level_replica": LEVELS}
"""What TRL and transformers take of a field that they call a string."""


def check_trl(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with `train.trl` and `sample.vllm`: unknown names, wrong types, fields that are ours."""
    found = []
    for name, value in _section(data, "train", "trl").items():
        path = ("train", "trl", name)
        if name in ALWAYS:
            found.append(RecipeFinding(path, f"`{name}` is not for `train.trl`", ALWAYS[name], at_key=True))
        elif name in OURS or name.startswith(VLLM):
            own = counterpart(name, value) if name in OURS else f"sample.vllm.{name.removeprefix(VLLM)}"
            found.append(RecipeFinding(path, f"`{name}` is not for `train.trl`", f"say `{own}`", at_key=True))
        elif name not in FIELDS:
            near = nearest(name, FIELDS)
            hint = f"did you mean `{near}`?" if near else "`train.trl` takes fields of TRL 1.16's GRPOConfig"
            found.append(RecipeFinding(path, f"unknown field `{name}` in `train.trl`", hint, at_key=True))
        else:
            found += _typed(path, name, value)
    known = [name.removeprefix(VLLM) for name in FIELDS if name.startswith(VLLM)]
    for name, value in _section(data, "sample", "vllm").items():
        path = ("sample", "vllm", name)
        if name not in known:
            near = nearest(name.removeprefix(VLLM), known)
            hint = f"did you mean `{near}`?" if near else f"`sample.vllm` has: {', '.join(sorted(known))}"
            found.append(RecipeFinding(path, f"unknown key `{name}` in `sample.vllm`", hint, at_key=True))
        else:
            found += _typed(path, VLLM + name, value)
            if name == "server_base_url" and isinstance(value, str) and not ADDRESS.match(value):
                said = f"`sample.vllm.server_base_url` is no address: {shown(value)}"
                found.append(RecipeFinding(path, said, "it begins with http:// or https://"))
    return found


def _typed(path: tuple[str, ...], name: str, value: object) -> list[RecipeFinding]:
    kinds = FIELDS[name].split(" | ")
    choices = CHOICES.get(name) or MODES.get(name)
    if choices and isinstance(value, str) and value not in choices:
        near = nearest(value, choices)
        hint = f"did you mean `{near}`?" if near else f"one of {', '.join(choices)}"
        return [RecipeFinding(path, f"`{'.'.join(path)}` cannot be {shown(value)}", hint)]
    fits = any(isinstance(value, PYTHON[kind]) and (kind == "bool" or not isinstance(value, bool)) for kind in kinds)
    if fits and isinstance(value, float) and not math.isfinite(value):
        return [RecipeFinding(path, f"`{'.'.join(path)}` must be a finite number, got {shown(value)}")]
    if fits:
        return []
    wanted = " or ".join(WORDS[kind] for kind in kinds)
    return [RecipeFinding(path, f"`{'.'.join(path)}` must be {wanted}{got_instead(path, value)}")]


def _section(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    here: Any = data
    for key in keys:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}
