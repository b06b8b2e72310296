"""Checkpoints that are complete or absent: written to a temporary folder, hashed, synced, renamed. Also finds the
newest one of a run.

A checkpoint is a plain Hugging Face folder plus `recipe.yaml`, `grpo.json` (what TRL does not save: where the row
order stands, the micro-step, counters), and `manifest.json`. A checkpoint is saved only when a batch of completions is
used up, so there is never a half-used batch to save.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from grpo_cli.errors import DataError, SetupError, why_unwritten
from grpo_cli.recipe.sections.course import DEEPSPEED
from grpo_cli.recipe.sections.fields import Placed, written
from grpo_cli.run.lines import open_as, refuse_pipe, replace, sync
from grpo_cli.run.typed import read_typed
from grpo_cli.text import path_of

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.recipe.sections.recipe import Recipe

MANIFEST, STATE, RECIPE = "manifest.json", "grpo.json", "recipe.yaml"
NAME = re.compile(r"step-(\d{6,})$")
LOADED = (".safetensors", ".pt", ".pth", ".bin")
"""Endings of weights and states."""
PARTIAL, BROKEN, ABANDONED = ".partial", "broken-", ".abandoned"
"""The folder in which a checkpoint is written, the prefix of one that cannot be trusted, and the suffix of one that a
roll-back left."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder and the step it was taken after."""

    path: Path
    step: int


@dataclass(frozen=True)
class TrainState:
    """The state that TRL does not save: the progress of a run, and the inputs of its next step besides weights and
    optimizer.

    `generation` counts steps, `processes` wrote it (None in a checkpoint of before they were noted); `select` is the order
    of rows and their ledger, `more` what other modules add.
    """

    processes: int | None
    generation: int
    select: Mapping[str, Any]
    samples_seen: int
    skipped_steps: int
    errors_seen: int
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object in `grpo.json`."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "more"}
        return {"schema": 1, **own, **self.more}

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> TrainState:
        """From that object."""
        own = {f.name: read.get(f.name) for f in fields(cls) if f.name != "more"}
        more = {key: value for key, value in read.items() if key not in own and key != "schema"}
        return cls(**own, more=more)  # type: ignore[arg-type]


def seal(written: Path, folder: Path, state: TrainState, recipe_text: str) -> Checkpoint:
    """Complete what TRL wrote to `written`, then move it to `folder/step-NNNNNN` in one rename."""
    step = state.generation
    final = folder / f"step-{step:06d}"
    replace(written / RECIPE, recipe_text)
    replace(written / STATE, json.dumps(state.as_json(), indent=1))
    open_as(written / STATE, written)
    # a pickle of the trainer's arguments with the paths of this machine, which nothing reads
    (written / "training_args.bin").unlink(missing_ok=True)
    # last of all: a folder without a manifest is never trusted
    _write_manifest(written, step)
    folder.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.rmtree(final)
    os.rename(written, final)
    # a rename survives a power cut only when the folder that holds the name is synced
    sync(folder)
    return Checkpoint(final, step)


def restore(checkpoint: Path, strategy: str, processes: int) -> TrainState:
    """The state in `grpo.json`.

    Raises:
        SetupError: DeepSpeed's share of an optimizer state, and another number of processes.
        DataError: it is not what a run writes.
    """
    state = TrainState.from_json(read_state(checkpoint))
    if strategy in DEEPSPEED and state.processes not in (None, processes):
        wrote = state.processes
        raise SetupError(
            f"`launch.strategy: {strategy}` reads {checkpoint.name} on the {wrote} processes that wrote it, not on {processes}",
            hint=f"set `launch.gpus: {wrote}` (on a CPU `launch.cpu_ranks`)",
        )
    return state


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The object in `grpo.json` of a checkpoint.

    Raises:
        DataError: it cannot be read.
    """
    try:
        refuse_pipe(checkpoint / STATE)
        return read_typed("grpo.json", (checkpoint / STATE).read_bytes())
    except (OSError, ValueError) as err:
        raise DataError(f"cannot be read: {err}", place=str(checkpoint / STATE)) from err


@contextmanager
def saving(beside: Path, step: int) -> Iterator[None]:
    """While inside, any failure to write becomes a SetupError; the folder `beside` is removed, the rest untouched.

    torch and safetensors report a full disk as errors of their own.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as err:
        shutil.rmtree(beside, ignore_errors=True)
        raise SetupError(
            f"cannot save the checkpoint of step {step}: {why_unwritten(err)}",
            hint="the last whole checkpoint is untouched; free some space",
        ) from err


REST = 1 << 20
"""Bytes of a checkpoint for tokenizer, recipe and state."""


def checkpoint_bytes(model: nn.Module) -> int:
    """Approximate size of a checkpoint: weights (only the adapter, if there is one) and two moments of each trained
    weight."""
    sizes = [
        # `numel` of a parameter that ZeRO-3 has shared out is 0
        (getattr(p, "ds_numel", p.numel()) * p.element_size(), p.requires_grad)
        for p in model.parameters()
    ]
    trained = sum(size for size, is_trained in sizes if is_trained)
    weights = sum(size for size, _ in sizes)
    return int(trained if hasattr(model, "peft_config") else weights) + 2 * int(trained) + REST


def all_checkpoints(folder: Path) -> list[Checkpoint]:
    """Every checkpoint folder, oldest first, valid or not."""
    found = [Checkpoint(p, int(m[1])) for p in folder.glob("step-*") if (m := NAME.search(p.name))]
    return sorted(found, key=lambda c: c.step)


def newest_valid(folder: Path) -> tuple[Checkpoint | None, list[tuple[Checkpoint, str]]]:
    """The newest whole checkpoint, and the broken ones passed over with the reason."""
    broken: list[tuple[Checkpoint, str]] = []
    for checkpoint in reversed(all_checkpoints(folder)):
        fault = find_fault(checkpoint.path)
        if fault is None:
            return checkpoint, broken
        broken.append((checkpoint, fault))
    return None, broken


def set_aside(checkpoint: Checkpoint, *, is_whole: bool = False) -> Path:
    """Rename a checkpoint, so that it neither blocks its step nor counts among those that are kept: a broken one, or a
    whole one that the run no longer builds on."""
    name = checkpoint.path.name + ABANDONED if is_whole else BROKEN + checkpoint.path.name
    target, number = checkpoint.path.with_name(name), 2
    while target.exists():
        target = checkpoint.path.with_name(f"{name}.{number}")
        number += 1
    os.rename(checkpoint.path, target)
    return target


def clear_partial(folder: Path) -> None:
    """Remove the folder of a save that was interrupted."""
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)


def find_fault(path: Path) -> str | None:
    """The reason why a checkpoint cannot be trusted, or None. Every file of the manifest must exist with its size and
    hash, including the state of the run."""
    try:
        # open regular files only: opening a pipe would block
        files = (
            read_typed("manifest.json", (path / MANIFEST).read_bytes())["files"]
            if (path / MANIFEST).is_file()
            else None
        )
    except (OSError, ValueError):
        files = None
    if files is None:
        return "no readable manifest"
    # the state, without which no run resumes, and all files that would be loaded
    loaded = {STATE, *(file.name for file in path.iterdir() if file.suffix in LOADED)}
    if unnamed := sorted(loaded - files.keys()):
        return f"the manifest does not name `{unnamed[0]}`"
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            return f"`{name}` is missing"
        # before the hash: it costs nothing, and the message names the missing bytes
        if file.stat().st_size != size:
            return f"`{name}` has {file.stat().st_size} bytes instead of {size}"
        if _hash(file) != digest:
            return f"`{name}` was changed"
    return None


def keep_newest(folder: Path, keep: int, spare: Collection[Path] = ()) -> list[Path]:
    """Delete all but the `keep` newest checkpoints (and those in `spare`); returns what was deleted."""
    gone = [c.path for c in all_checkpoints(folder)[:-keep] if c.path not in spare]
    for path in gone:
        shutil.rmtree(path)
    return gone


def check_space(folder: Path, needed: int) -> None:
    """Raises SetupError if fewer than `needed` bytes are free where checkpoints go."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SetupError(
            f"a checkpoint needs about {needed / 2**20:.1f} MiB, {free / 2**20:.1f} MiB are free in {folder}",
            hint="free some space, set `run.dir` to another disk, or lower `run.keep`",
        )


def _write_manifest(path: Path, step: int) -> None:
    files = {}
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        sync(file)
        files[str(file.relative_to(path))] = [file.stat().st_size, _hash(file)]
    replace(path / MANIFEST, json.dumps({"step": step, "files": files}, indent=1))
    sync(path)


def _hash(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def newest_checkpoint(run: Path) -> Checkpoint:
    """The newest whole checkpoint of a run's folder.

    Raises:
        DataError: it has none.
    """
    newest, broken = newest_valid(run / "checkpoints")
    if newest is None:
        why = f": {broken[0][0].path.name} is broken, {broken[0][1]}" if broken else ""
        raise DataError(f"the run `{run}` has no whole checkpoint{why}")
    return newest


def pinned(recipe: Recipe) -> Recipe:
    """The recipe with the checkpoint in place of a run's folder: the run may go on, and the start must stay the same.

    Raises:
        DataError: the run has no whole checkpoint.
    """
    folder = path_of(recipe.model.path)
    if not (folder / "run.json").is_file():
        return recipe
    newest = newest_checkpoint(folder).path
    near = os.path.join(written(recipe.model.path), newest.relative_to(folder))
    path = Placed(str(newest), near)
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": path})})
