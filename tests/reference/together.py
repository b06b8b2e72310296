"""Two gloo ranks beside one process: the weights after four steps, for the methods of the suite.

    python -m tests.reference.together [WORD ...]         runs whose names have one of the words; all without any
    python -m tests.reference.together --rank SPEC OUT    one rank (under torchrun)

Both sides train through packed rows, as a GPU does, without graphs. Rank 1 has no room for them in the run whose name has
"fallback": it pads its rows, alone. Ends with 1 where weights are further apart than `bound`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from grpo_cli.display.choose import make_display
from grpo_cli.distributed.sharded import ShardedTrainer
from grpo_cli.jobs.train.job import Job
from grpo_cli.train import trainer as seam
from grpo_cli.train.log_probs import TrlLogProbs
from grpo_cli.train.packed.score import ScoreNumerics
from grpo_cli.train.packed.source import PackedSource
from grpo_cli.train.updates import UpdateMetrics
from tests.reference.drive import ROOT, recipe_of, write_world
from tests.reference.families import write_checkpoint
from tests.reference.plan import BATCH, Planned, planned

BOUND, NOISE = 1e-6, 1e-5
"""The second where the KL is taken off the reward: in the first step it is all rounding, and so are some advantages, of which
Adam makes steps."""
STEPS = 4
COMMON: dict[str, Any] = {"steps": STEPS, "lr": 2e-5}
"""A rate of the field: Adam's first step is a whole one also where a gradient is all rounding."""
MORE = (
    Planned("together clipped", "together", {"train": {"max_grad_norm": 0.01}}),
    Planned("together fallback", "together", {"train": {"inner_epochs": 2}}),
    Planned("together padded", "together", {"train": {"inner_epochs": 2}}),
    Planned("together adapter", "together", {"model": {"lora": {"r": 4}}, "train": {"inner_epochs": 2, "lr": 2e-4}}),
    # a threshold over the tokens of all ranks: here the loss itself has to exchange
    Planned("together quantile", "together", {"train": {"trl": {"top_entropy_quantile": 0.5}}}),
    # of five groups the first alone has signal: a rank has none of it
    Planned("together dead rank", "together", {"sample": {"prompts": 2, "group": 4}}),
)
"""What the suite has no run of."""


def runs() -> list[Planned]:
    """Of the suite, in pieces of at most five rows: what is the same however rows are spread over ranks and micro-batches."""
    found = []
    for one in planned():
        train = one.changes.get("train", {})
        in_parts = train.get("mini_batches", 1) > 1 or train.get("algorithm") in ("ppo", "gigpo") or "bnpo" in one.name
        is_alike = one.ranks > 1 or one.part in ("families", "more families", "builtin:tiny") or one.plays
        if not (in_parts or is_alike or "mb1" in one.name.split()):
            found.append(one)
    return [*found, *MORE]


@contextmanager
def packing(rank: int, name: str) -> Iterator[None]:
    """While inside, trainers pack their rows, but for those of a run that says otherwise."""
    usual = seam.packed_source

    def packed(
        loop: Any, model: Any, args: Any, fused: Any, keeping: Any, flat: Any, asked: dict[str, bool], *, absolute: bool
    ) -> PackedSource | None:
        if "padded" in name or ("fallback" in name and rank == 1) or asked["an entropy bonus"]:
            return None
        numbers = ScoreNumerics(None, args.temperature)
        return PackedSource(model, numbers, lambda _: None, TrlLogProbs(absolute), captures=False, flat=flat)

    seam.packed_source = packed
    try:
        yield
    finally:
        seam.packed_source = usual


COLLECTIVES = ("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "barrier")


@contextmanager
def counting() -> Iterator[dict[str, list[str]]]:
    """The collectives of trainers inside: of their losses, their gradients and their statistics."""
    found: dict[str, list[str]] = {"loss": [], "gradients": [], "statistics": []}
    under_way: list[str] = []
    put_back = []

    def within(part: str, holder: Any, name: str) -> None:
        usual = getattr(holder, name)

        def counted(*given: Any, **named: Any) -> Any:
            under_way.append(part)
            try:
                return usual(*given, **named)
            finally:
                under_way.pop()

        put_back.append((holder, name, usual))
        setattr(holder, name, counted)

    def noted(name: str) -> None:
        usual = getattr(dist, name)

        def counted(*given: Any, **named: Any) -> Any:
            if under_way:
                found[under_way[-1]].append(name)
            return usual(*given, **named)

        put_back.append((dist, name, usual))
        setattr(dist, name, counted)

    within("loss", seam, "hooked_loss")
    within("gradients", ShardedTrainer, "_clip_grad_norm")
    within("statistics", UpdateMetrics, "optimizer_step")
    for name in COLLECTIVES:
        noted(name)
    try:
        yield found
    finally:
        for holder, name, usual in put_back:
            setattr(holder, name, usual)


def weights_of(one: Planned, folder: Path, side: str) -> dict[str, Tensor]:
    """What is trained, after the run; raises AssertionError where ranks exchange more than they need."""
    model = {"path": str(write_checkpoint(one.family, folder))} | one.changes.get("model", {})
    train = {**one.changes.get("train", {}), **COMMON} | {
        key: value for key, value in one.changes.get("train", {}).items() if one.part == "together"
    }
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    pieces = {"together dead rank": 2, "together quantile": BATCH // ranks}
    sample = one.changes.get("sample", {}) | {"micro_batch": pieces.get(one.name, 5)}
    name = "".join(c if c.isalnum() else "-" for c in one.name) + side
    recipe = recipe_of(folder, name, {**one.changes, "model": model, "train": train, "sample": sample})
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(rank)  # an adapter is drawn before the first step, and that of rank 0 counts
    with packing(rank, one.name), counting() as calls:
        job = Job(recipe, label="together", base=folder, display=make_display("none"))
        job.run()
    trainer: Any = job.running.trainer
    updates = STEPS * recipe.train.updates
    assert trainer.state.global_step == updates
    if ranks > 1:
        assert calls["gradients"] == ["all_reduce"] * updates, calls
        assert len(calls["statistics"]) == updates and bool(calls["loss"]) == ("quantile" in one.name), calls
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}


def both(chosen: Sequence[Planned], folder: Path, out: Path, ranks: int = 2) -> dict[str, float]:
    """The largest difference of a weight in each run, of any rank from one process."""
    out.mkdir(parents=True, exist_ok=True)
    spec = out / "spec.json"
    spec.write_text(json.dumps([str(folder), [one.name for one in chosen]]))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "verifiers")]),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [*torchrun, "-m", "tests.reference.together", "--rank", str(spec), str(out)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = [torch.load(out / f"rank-{rank}.pt") for rank in range(ranks)]
    found = {}
    for one in chosen:
        alone = weights_of(one, folder, "-alone")
        found[one.name] = max(float((side[one.name][n] - w).abs().max()) for side in seen for n, w in alone.items())
    return found


def bound(run: str) -> float:
    """How far weights may be apart."""
    return NOISE if "k1_reward" in run else BOUND


def one_rank(spec: str, out: str) -> None:
    """All runs, one after the other."""
    folder, names = json.loads(Path(spec).read_text())
    chosen = {one.name: one for one in runs()}
    found = {name: weights_of(chosen[name], Path(folder), "-ranks") for name in names}
    torch.save(found, Path(out) / f"rank-{os.environ['RANK']}.pt")


def main(words: Sequence[str]) -> int:
    """Print a line a run."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_world(folder)
        chosen = [one for one in runs() if not words or any(word in one.name for word in words)]
        found = both(chosen, folder, folder / "together")
    above = [run for run, apart in found.items() if apart > bound(run)]
    for run, apart in found.items():
        print(f"{run:50} {apart:.1e}{'   <- above' if run in above else ''}")
    print(f"{len(found)} runs, worst {max(found.values()):.1e}")
    return int(bool(above))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        one_rank(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
