"""An example of every key of a recipe, as YAML that is valid on top of the quickstart.

Most follow from the schema: the default, or the first word a key may be. `VALUES` has what says more than that, and `BESIDE`
the keys without which another is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from docs.generate.example_values import VALUES, Value

Schema = dict[str, Any]

NAMED = {"NAME": "mine"}
"""What stands for a name that the recipe chooses."""
BESIDE: dict[str, dict[str, Value]] = {
    "combine.by.": {"combine.by.column": "source"},
    "combine.gate": {"verify.tags": {"kind": "format"}},
    "data.train.": {"data.train.from": "rows.jsonl"},
    "data.image": {"model.path": "Qwen/Qwen2.5-VL-3B-Instruct", "data.images": "{image}"},
    "eval.expect.": {"eval.expect.step": 40, "eval.expect.pass@1": [0.8, 0.95]},
    "data.eval.": {"data.eval.from": "held-out.jsonl"},
    "environment.": {"environment.python": "environments:guess"},
    "environment.tools": {"environment.python": None},
    "environment.openenv": {"environment.python": None},
    "environment.mcp": {"environment.python": None},
    "environment.mcp.NAME.header_env": {"environment.mcp.NAME.url": "http://127.0.0.1:9000/mcp"},
    "environment.mcp.NAME.env": {"environment.mcp.NAME.command": ["python", "notes.py"]},
    "environment.allow": {"environment.python": None, "environment.mcp.notes.command": ["python", "notes.py"]},
    "environment.scope": {"environment.python": None, "environment.mcp.notes.command": ["python", "notes.py"]},
    "environment.trl": {"environment.python": None},
    "environment.verifiers": {"environment.python": None},
    "environment.harness": {"environment.python": None},
    "environment.harness.": {"environment.python": None, "environment.harness.command": "python agent.py"},
    "environment.endpoint": {"environment.python": None, "environment.harness.command": "python agent.py"},
    "environment.endpoint.": {"environment.python": None, "environment.harness.command": "python agent.py"},
    "launch.node_rank": {"launch.nodes": 2, "launch.rendezvous": "10.0.0.1:29500"},
    "launch.rendezvous": {"launch.nodes": 2},
    "launch.nodes": {"launch.rendezvous": "10.0.0.1:29500"},
    "model.load_in_4bit": {"model.lora.r": 16},
    "model.revision": {"model.path": "Qwen/Qwen2.5-0.5B-Instruct"},
    "monitor.canary.": {"monitor.canary.from": "canary.jsonl"},
    "monitor.canary.from.": {"monitor.canary.from.from": "canary.jsonl"},
    "monitor.gold": {"verify.second": {"kind": "numeric", "weight": 0}, "eval.every": 10},
    "monitor.on_alarm": {"verify.second": {"kind": "numeric", "weight": 0}, "monitor.gold": "second", "eval.every": 10},
    "prefer": {"train.method": "prefer"},
    "distil": {"train.method": "distil"},
    "distil.k": {"distil.loss": "topk"},
    "distil.direction": {"distil.loss": "topk"},
    "distil.contrast": {"distil.teacher": "gold"},
    "train.clip.delta": {"train.algorithm": "dppo"},
    "train.clip.pull": {"train.algorithm": "dppo"},
    "train.pass_k": {"train.algorithm": "pass_k"},
    "prefer.data.": {"prefer.data.from": "pairs.jsonl"},
    "prefer.gamma": {"prefer.loss": "simpo"},
    "sft": {"train.method": "sft"},
    "sft.": {"sft.steps": 200, "sft.lr": 1e-3},
    "sft.data.": {"sft.data.from": "rows.jsonl"},
    "sft.demonstration.weight": {"sft.demonstration.template": "{worked}"},
    "stop.patience": {"eval.every": 10},
    "stages.from": {"stages.name": "second"},
    "train.ads": {"train.select": "ads"},
    "train.clip.cap": {"train.loss": "cispo"},
    "train.credit": {"environment": "environments:keydoor"},
    "train.credit.": {"train.credit.method": "gigpo"},
    "train.credit.order": {"train.credit.method": "milestones"},
    "train.credit.patterns": {"train.credit.method": "milestones", "environment": None},
    "train.credit.use": {"train.credit.method": "rredcot", "environment": None},
    "train.credit.segments": {"train.credit.method": "rredcot", "environment": None},
    "train.credit.force": {"train.credit.method": "rredcot", "environment": None},
    "train.credit.answers": {"train.credit.method": "rredcot", "environment": None},
    "train.split": {"train.reward_combine": "split", "verify.agrees": {}},
    "train.credit.plan": {"train.credit.method": "planner"},
    "train.credit.reward": {"train.credit.method": "milestones"},
    "train.critic": {"train.algorithm": "ppo"},
    "train.epochs": {"train.steps": 0},
    "train.kl.beta": {"train.dead_groups": "keep"},
    "train.prune.": {"train.prune.keep": 4},
    "train.trl.entropy_coef": {"train.dead_groups": "keep"},
    "train.trl.router_aux_loss_coef": {"train.dead_groups": "keep"},
    "train.trl.top_entropy_quantile": {"train.dead_groups": "keep"},
    "train.trl.use_adaptive_entropy": {"train.dead_groups": "keep"},
    "verify.NAME.": {"verify.NAME.kind": "numeric"},
    "warmup.": {"warmup.demonstration": "{worked}", "warmup.steps": 200, "warmup.lr": 1e-3},
    "warmup.data.": {"warmup.data.from": "rows.jsonl"},
    "warmup.demonstration.weight": {"warmup.demonstration.template": "{worked}"},
}
"""Keys that another needs beside it, by the beginning of its path; later lines win, and None takes a key away again."""


def example_of(path: str, form: Schema, default: object) -> str:
    """YAML with a value of the key, and of the keys that it needs beside it.

    `form` is the first form of its schema, `default` what it is when left out.
    """
    said: dict[str, Value] = {}
    for start, more in BESIDE.items():
        if path.startswith(start):
            said |= more
    said.pop(path, None)
    tree: dict[str, Any] = {}
    for key, value in said.items():
        if value is not None:
            _put(tree, key, value)
    _put(tree, path, VALUES[path] if path in VALUES else _simple(form, default))
    if isinstance(tree.get("stages"), dict):
        tree["stages"] = [tree["stages"]]
    return "\n".join(f"{key}: {_flow(value)}" for key, value in tree.items())


def _put(tree: dict[str, Any], path: str, value: Value) -> None:
    *outer, last = path.split(".")
    for name in (NAMED.get(name, name) for name in outer):
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[last] = value


def _simple(form: Schema, default: object) -> Value:
    kinds = form.get("type", "null")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "boolean":
        return not default
    if isinstance(default, int | float | str | list | dict) and default not in ({}, []):
        return default
    if "enum" in form:
        return str(form["enum"][0])
    return {"integer": 1, "number": 0.1}.get(kind)


def _flow(value: Value) -> str:
    """One line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value):
        return value if value not in ("true", "false", "null", "no", "yes", "on", "off") else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)
