"""Runs a recipe through the real trainer and looks on: what was sampled, which rows shared a micro-batch, the weights
before each optimizer step and the gradients it was given. Nothing of the run is replaced.

    python -m tests.reference.drive SPEC.json OUT     one rank of several (under torchrun)
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.train.critic.critic import Critic
from grpo_cli.train.trainer import Trainer
from tests.reference.policy import Said
from tests.reference.world import playing

KINDS = ("flat", "mixed", "lost", "mixed", "half")
"""Groups whose answers all earn the same, differ, or in part lack a verdict of the first or of the second verifier."""

ROOT = Path(__file__).resolve().parents[2]

REWARD = """\
import zlib


def score(completion, kind):
    number = zlib.crc32(completion.encode("utf-8", "surrogatepass"))
    if kind == "lost" and number % 3 == 0:
        return {"outcome": "error", "reason": "lost"}
    return 0.3 if kind == "flat" else (number % 5) / 4


def second(completion, kind):
    number = zlib.crc32(completion.encode("utf-8", "surrogatepass")) // 5
    if kind == "half" and number % 3 == 0:
        return {"outcome": "error", "reason": "lost"}
    return 0.25 if kind == "flat" else (number % 3) / 2
"""


def scores(completion: str, kind: str) -> tuple[float, float]:
    """What `REWARD` pays, in the same order; NaN where it gives no verdict."""
    number = zlib.crc32(completion.encode("utf-8", "surrogatepass"))
    if kind == "flat":
        return 0.3, 0.25
    first = math.nan if kind == "lost" and number % 3 == 0 else (number % 5) / 4
    second = math.nan if kind == "half" and number // 5 % 3 == 0 else number // 5 % 3 / 2
    return first, second


@dataclass
class Update:
    """One optimizer step of one rank: weights before it, gradients, and its micro-batches as places of `said`."""

    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    micro: list[list[int]]
    batch: int
    """Which generation batch it belongs to."""


@dataclass
class CriticUpdate:
    """One optimizer step of the critic: its weights before it, this rank's part of the gradients (in the order of the
    weights) and the rows of this rank that it learned from, as places of `said`."""

    weights: list[Tensor]
    gradients: list[Tensor]
    rows: list[int]


@dataclass
class Valued:
    """What a critic said of a batch: its weights, and a value before each token of each answer and behind its last."""

    weights: list[Tensor]
    values: list[list[float]]
    advantages: dict[int, list[float]] = field(default_factory=dict)
    """Of each token of each answer, as the policy's loss found them."""
    updates: list[CriticUpdate] = field(default_factory=list)


@dataclass
class Seen:
    """What one rank did; `said` holds its answers of each generation batch, `places` where they stand in the whole batch,
    `valued` what a critic did with them."""

    config: Any = None
    said: list[list[Said]] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    valued: list[Valued] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    records: list[list[dict[str, Any]]] = field(default_factory=list)


def write_world(folder: Path, rows: int = 48, kinds: tuple[str, ...] = KINDS) -> None:
    """Rows with prompts of unequal length, some whose answers all earn the same and some that lack verdicts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rw.py").write_text(REWARD)
    lines = [
        {"question": "x" * (i % 9) + f"{i}+{7 * i % 100}", "answer": str(8 * i), "kind": kinds[i % len(kinds)]}
        for i in range(rows)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def recipe_of(folder: Path, name: str, changes: dict[str, Any]) -> Recipe:
    """The common recipe with `changes` merged in, one level deep."""
    base: dict[str, Any] = {
        "grpo": 1,
        "model": {"path": "builtin:tiny"},
        "data": {"train": str(folder / "rows.jsonl"), "prompt": "{question}", "answer": "{answer}"},
        "verify": {"v": {"kind": "python", "function": f"{folder}/rw.py:score", "workers": 1}},
        "sample": {"prompts": 5, "group": 4, "max_tokens": 10},
        "train": {"steps": 2, "lr": 2e-3, "max_grad_norm": 1e9, "schedule": "constant", "seed": 5},
        "stop": {"verifier_errors": 1.0},
        "monitor": {"kl": "off"},
        "run": {"dir": str(folder / "runs"), "name": name, "save_every": 1000},
    }
    if "w" in changes.get("verify", {}):
        function = f"{folder}/rw.py:second"
        base["verify"]["w"] = {"kind": "python", "function": function, "workers": 1}
        changes = changes | {"verify": {n: base["verify"][n] | said for n, said in changes["verify"].items()}}
    merged = {k: {**v, **changes.get(k, {})} if isinstance(v, dict) else v for k, v in base.items()}
    return Recipe.model_validate({**changes, **merged})


@contextmanager
def watching(seen: Seen) -> Iterator[None]:
    """Record what trainers, their optimizers and their critics do inside."""
    compute, generate = Trainer._compute_loss, Trainer._generate
    trainers: list[Any] = []
    micro: list[list[int]] = []

    def generated(self: Any, prompts: list[Any]) -> Any:
        out = generate(self, prompts)
        masks = out[2] or [()] * len(out[1])
        seen.places.append(self.samples.places)
        seen.said.append(
            [
                Said(tuple(p), tuple(c), tuple(m), made.finish == "length")
                for p, c, m, made in zip(out[0], out[1], masks, self.samples.completions, strict=True)
            ]
        )
        return out

    def computed(self: Any, model: Any, inputs: dict[str, Any]) -> Tensor:
        if self not in trainers:
            trainers.append(self)
            model_itself = self.accelerator.unwrap_model(self.model)
            seen.config = model_itself.config
        micro.append(_places(inputs, seen.said[-1], {place for rows in micro for place in rows}))
        if seen.valued:
            for place, row in zip(micro[-1], inputs["advantages"].tolist(), strict=True):
                seen.valued[-1].advantages[place] = row[: len(seen.said[-1][place].answer)]
        return compute(self, model, inputs)

    def before_step(optimizer: Any, *_: Any) -> None:
        if not trainers or not micro:
            return  # the warm-up's, or a critic's
        named = dict(trainers[-1].accelerator.unwrap_model(trainers[-1].model).named_parameters())
        seen.updates.append(
            Update(
                {n: p.detach().clone() for n, p in named.items()},
                {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in named.items()},
                list(micro),
                len(seen.said) - 1,
            )
        )
        micro.clear()

    handle = register_optimizer_step_pre_hook(before_step)
    Trainer._compute_loss, Trainer._generate = computed, generated  # type: ignore[method-assign]
    try:
        with watching_critics(seen):
            yield
    finally:
        Trainer._compute_loss, Trainer._generate = compute, generate  # type: ignore[method-assign]
        handle.remove()


@contextmanager
def watching_critics(seen: Seen) -> Iterator[None]:
    """Record what critics say and how they learn inside."""
    values, share, step = Critic.values, Critic._mini_batches, Critic._step
    rows: list[list[int]] = []

    def weights(critic: Critic) -> list[Tensor]:
        return [p.detach().clone() for p in critic.trained]

    def valued(self: Critic, out: dict[str, Tensor]) -> Tensor:
        found = values(self, out)
        lengths = [len(one.answer) for one in seen.said[-1]]
        kept = [row[: n + 1] for row, n in zip(found.tolist(), lengths, strict=True)]
        seen.valued.append(Valued(weights(self), kept))
        return found

    def shared(self: Critic, *asked: Any) -> Iterator[Tensor]:
        for part in share(self, *asked):
            rows.append(part.tolist())
            yield part

    def stepped(self: Critic) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.trained]
        seen.valued[-1].updates.append(CriticUpdate(weights(self), grads, rows[-1]))
        step(self)

    Critic.values, Critic._mini_batches, Critic._step = valued, shared, stepped  # type: ignore[method-assign]
    try:
        yield
    finally:
        Critic.values, Critic._mini_batches, Critic._step = values, share, step  # type: ignore[method-assign]


def _places(inputs: dict[str, Any], said: list[Said], taken: set[int]) -> list[int]:
    """Which answers the rows of a micro-batch are, known by their tokens; equal answers take the next free place."""
    free: dict[Said, list[int]] = {}
    for place, one in enumerate(said):
        if place not in taken:
            free.setdefault(one, []).append(place)
    found = []
    for row in range(len(inputs["prompt_ids"])):
        prompt = tuple(inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()].tolist())
        ids = inputs["completion_ids"][row].tolist()
        tools = inputs["tool_mask"][row].tolist() if "tool_mask" in inputs else [1] * len(ids)
        fits = [
            one
            for one in free
            if one.prompt == prompt
            and list(one.answer) == ids[: len(one.answer)]
            and (not any(tools) or not one.mask or list(one.mask) == tools[: len(one.answer)])
        ]
        one = max(fits, key=lambda it: len(it.answer))
        found.append(free[one].pop(0))
        if not free[one]:
            del free[one]
    return found


def run_here(recipe: Recipe, folder: Path, *, plays: bool = False) -> Seen:
    """Train in this process, as one rank where the environment says so; `plays`: on episodes of `world`."""
    seen = Seen()
    with watching(seen), playing() if plays else nullcontext():
        job = Job(recipe, label="reference", base=folder, display=make_display("none"))
        job.run()
    path = job.folder.path
    seen.metrics = [m for m in map(json.loads, (path / "metrics.jsonl").open()) if "loss" in m]
    for file in sorted((path / "samples").glob("step-*.jsonl")):
        seen.records.append([json.loads(line) for line in file.open()])
    return seen


def run_ranks(folder: Path, name: str, changes: dict[str, Any], ranks: int = 2, *, plays: bool = False) -> list[Seen]:
    """Train on several gloo ranks; what each of them did, in rank order."""
    out = folder / f"{name}.ranks"
    out.mkdir()
    (out / "spec.json").write_text(
        json.dumps({"folder": str(folder), "name": name, "changes": changes, "plays": plays})
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "verifiers")])
    environment = os.environ | {
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [*torchrun, "-m", "tests.reference.drive", str(out / "spec.json"), str(out)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(out / f"rank-{rank}.pt", weights_only=False) for rank in range(ranks)]


def main(spec: str, out: str) -> None:
    """One rank."""
    said = json.loads(Path(spec).read_text())
    folder = Path(said["folder"])
    seen = run_here(recipe_of(folder, said["name"], said["changes"]), folder, plays=said["plays"])
    torch.save(seen, Path(out) / f"rank-{os.environ['RANK']}.pt")


if __name__ == "__main__":
    from tests.reference import drive  # under its own name, so that what is pickled can be read elsewhere

    drive.main(*sys.argv[1:])
