"""The keys of what the program writes for other programs, as tiny runs of every command show them.

    python -m tests.docs.shapes            # write docs/promises.json anew: `make promises`

A shape is a list of paths: `runs[].name`, `eval.pass_at.K`. Where keys are names that a recipe, a row or a verdict chose, one word in
capitals stands for all of them.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.generate.keys import key_paths
from tests.builders.warm import Warm
from tests.loop.program import Program
from tests.loop.recipes import ROOT, environment

LISTING = ROOT / "docs" / "promises.json"
RECIPE = """\
grpo: 1
model: builtin:tiny
data:
  train: {from: tasks:addition3, limit: 8}
  eval: {from: tasks:addition3, limit: 4, skip: 100}
  prompt: "{question}"
  answer: "{answer}"
verify:
  regex: {pattern: "[02468].*[13579]"}
  second: {kind: numeric, weight: 0}
sample: {prompts: 4, group: 4, max_tokens: 12}
train: {steps: 2, lr: 1e-3, seed: 3, kl: {beta: 0.01}, dead_groups: keep}
eval: {every: 1, samples: 2, k: [1, 2]}
monitor: {kl: {every: 1}, gold: second, canary: {from: canary.jsonl, every: 1, samples: 2}}
run: {save_every: 1, keep: 3, dir: runs}
warmup: {demonstration: "{blurt}", steps: 20, lr: 3e-3, muon_lr: 0.015, batch: 16}
"""
WHOLE = (
    (r"^((?:findings\[\]\.)?samples\[\]|examples\.\w+\[\])\..*", "a line of samples"),
    (r"^(effective)\..*", "a recipe"),
    (r"^(examples\[\]\.row)\b.*", "a row"),
    (r"^(examples\[\]\.options)\b.*", "options"),
    (r"^(sandbox\.tiers)\..*", "what each tier was found to do"),
)
"""Paths whose inside is told elsewhere, and what stands there."""
CHOSEN = (
    (r"^(\[\])\.(question|answer|worked|blurt)$", r"\1.COLUMN"),
    (r"\bverdicts\.(regex|second)\.", "verdicts.NAME."),
    (r"^verifiers\.\w+\.", "verifiers.NAME."),
    (r"\breasons\.\w+$", "reasons.REASON"),
    (r"^(rows_without)\..*", r"\1.REASON"),
    (r"^(others\[\]\.recipe)\..*\.(first|this)$", r"\1.KEY.\2"),
    (r"^(sets|keys|bounds)\..*", r"\1.KEY"),
    (r"^(contents\.\w+)\..*", r"\1.KEY.FILE"),
    (r"^((?:groups\.)?(?:pass|maj)@k)\.\d+", r"\1.K"),
    (r"^((?:before\.|after\.)?pass)@(?!1\b)\d+", r"\1@K"),
    (r"predicted_dead\.\d+", "predicted_dead.K"),
    (r"^(evaluations\[\])\.eval/.*", r"\1.METRIC"),
    (r"^(findings\[\]\.evidence)\..*\.(start|now)$", r"\1.METRIC.\2"),
    (r"(memory_bytes)\..*", r"\1.PART"),
    (r"^(machine\.(?:packages|programs))\..*", r"\1.NAME"),
)
"""Parts of paths that a recipe, a row, a machine or chance chose, and what stands for them."""
METRICS = (
    (r"^(verify/[^/]+/reason)/.*", r"\1/REASON"),
    (r"^group/hist/\d+$", "group/hist/K"),
    (r"^((?:eval/)?(?:pass|maj))@\d+", r"\1@K"),
    (r"^((?:drawn/)?reward|verify)/(regex|second)/", r"\1/NAME/"),
)
"""The same of names of metrics, which have no parts that are keys."""
KINDS = {"str": "text", "int": "number", "float": "number", "bool": "true or false", "NoneType": "null"}
EMPTY = ("null", "a mapping", "a list")
"""Under these no keys are seen."""


def commands() -> dict[str, list[str]]:
    """By name: what is run, in this order, in a folder with `small.yaml` beside it; the words after `grpo`."""
    return {
        "train --dry-run": ["train", "small.yaml", "--dry-run"],
        "train": ["train", "small.yaml", "--display", "none", "--set", "run.name=first"],
        "check": ["check", "small.yaml", "--gpu", "h100", "--price", "2.5"],
        "probe": ["probe", "small.yaml", "-n", "4", "--samples", "4", "--gpu", "h100", "--price", "2.5"],
        "eval": ["eval", "runs/first", "--against", "runs/first/checkpoints/step-000001"],
        "verify": ["verify", "runs/first/eval", "--recipe", "small.yaml", "--out", "scored.jsonl"],
        "audit verifier": ["audit", "verifier", "choice"],
        "audit data": ["audit", "data", "small.yaml", "--rows", "0"],
        "pairs": ["pairs", "small.yaml", "-n", "8", "--samples", "16", "--length-gap", "1", "--out", "pairs.jsonl"],
        "chat": ["chat", "runs/first", "--row", "1", "--samples", "2"],
        "sweep": ["sweep", "small.yaml", "--seeds", "2", "--name", "two", "--display", "none", "--set", "train.steps=1"],
        "sweep --dry-run": ["sweep", "small.yaml", "--seeds", "2", "--dry-run"],
        "runs": ["runs"],
        "runs show": ["runs", "show", "first"],
        "runs compare": ["runs", "compare", "runs/first", "runs/two-s4"],
        "doctor": ["doctor"],
        "doctor RUN": ["doctor", "runs/first"],
        "explain": ["explain"],
        "explain VERIFIER": ["explain", "numeric"],
        "explain METHOD": ["explain", "dapo"],
        "explain KEY": ["explain", "train.prune"],
        "explain FINDING": ["explain", "W20"],
    }  # fmt: skip


def run_all(folder: Path) -> dict[str, object]:
    """By command, or file of a run, what it wrote as plain data; metrics by `metrics.jsonl`."""
    (folder / "small.yaml").write_text(RECIPE)
    (folder / "canary.jsonl").write_text('{"question": "1+1=?", "answer": "2"}\n{"question": "2+2=?", "answer": "4"}\n')
    warm, found = Warm(folder / "cache"), {}
    try:
        for name, words in commands().items():
            if name == "verify":
                words[1] = str(next((folder / "runs/first/eval").glob("*.jsonl*")))
            program = Program(warm, [*words, "--json"], folder, environment(folder), apart=True)
            program.wait()
            assert program.errors is not None
            said = program.output.read_text().removesuffix(program.errors.read_text())
            if program.returncode not in (0, 1):
                raise SystemExit(f"{name}: exit code {program.returncode}\n{said}\n{program.errors.read_text()}")
            found[name] = json.loads(said)
    finally:
        warm.close()
    run = folder / "runs" / "first"
    files = {"metrics.jsonl": run / "metrics.jsonl", "samples/*.jsonl": next((run / "samples").glob("*.jsonl*"))}
    files |= {"verify --out": folder / "scored.jsonl", "pairs.jsonl": folder / "pairs.jsonl"}
    for name, file in files.items():
        found[name] = [json.loads(line) for line in file.read_text().splitlines()]
    found["run.json"] = json.loads((run / "run.json").read_text())
    return found


def shape(value: object) -> dict[str, str]:
    """By path: what stands there, `text`, `number | null`; an empty list or mapping is one."""
    found: dict[str, set[str]] = {}
    for path, kind in _leaves(value, ""):
        whole = next(((m[1], said) for pattern, said in WHOLE if (m := re.match(pattern, path))), None)
        path, kind = whole or (_named(path, CHOSEN), kind)
        found.setdefault(path, set()).add(kind)
    return {path: " | ".join(sorted(kinds, key=lambda kind: (kind == "null", kind))) for path, kinds in found.items()}


def metric_names(lines: object) -> list[str]:
    """The names in lines of `metrics.jsonl`."""
    assert isinstance(lines, list)
    return sorted({_named(name, METRICS) for line in lines for name in line})


def listing(folder: Path) -> dict[str, object]:
    """What `docs/promises.json` holds: keys of a recipe, names of metrics, shapes of all that is written."""
    found = run_all(folder)
    metrics = metric_names(found.pop("metrics.jsonl"))
    return {"recipe": key_paths(), "metrics": metrics, "outputs": {name: shape(value) for name, value in found.items()}}


def lost(promised: dict[str, str], seen: dict[str, str]) -> list[str]:
    """Paths that were promised and are not seen, but for those inside of what is empty this time."""
    empty = [path for path, kinds in seen.items() if not set(kinds.split(" | ")).isdisjoint(EMPTY)]
    inside = tuple(f"{path}{mark}" for path in empty for mark in (".", "[]"))
    return [path for path in promised if path not in seen and not path.startswith(inside)]


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for one in value:
            yield from _leaves(one, f"{path}[]")
    else:
        yield (path, {"dict": "a mapping", "list": "a list"}.get(type(value).__name__) or KINDS[type(value).__name__])


def _named(path: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, name in rules:
        path = re.sub(pattern, name, path)
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        LISTING.write_text(json.dumps(listing(Path(place)), indent=1, ensure_ascii=False) + "\n")
