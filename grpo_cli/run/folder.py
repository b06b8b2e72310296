"""One run's folder: made, opened, written to and read. Metrics and samples are only ever appended to.

How this works: `create` writes a folder under a temporary name and renames it, so that a run is complete or absent.
Records that a resume discards move to `*.abandoned`. `eval/` holds held-out samples and `samples/` training ones; they
are never mixed. Writing needs one
process: rank 0.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from grpo_cli.errors import DataError, SetupError, UsageError, why_unwritten, without_credentials
from grpo_cli.run import lines
from grpo_cli.run.naming import why_no_name
from grpo_cli.run.records import SampleRecord, dump_line
from grpo_cli.run.typed import metrics_of, read_typed
from grpo_cli.text import path_of, real_path, visible, visible_lines, without_home
from grpo_verifiers.names import nearest

T = TypeVar("T")
Split = Literal["train", "eval", "canary"]
FOLDERS: dict[Split, str] = {"train": "samples", "eval": "eval", "canary": "canary"}
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters for the random end of a name, without those that are easily misread."""
BASE_FROM_RUN = "base_from_run"
"""In `run.json`: `base`, the recipe's folder, as it lies from the run's: both may be moved together."""
VALUED = ("--set", "--display", "--resume")
"""Options of `grpo train` whose next word is a value."""
BESIDE = ".new"
"""Folder where a run is created before it is renamed; leftovers of a failed start there are no runs."""


class RunFolder:
    """A run on disk, new (`create`) or found (`open`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.log_path = path / "train.log"
        self._unsynced: set[Path] = set()

    @classmethod
    def create(
        cls, dir: str | Path, name: str | None, recipe_text: str, manifest: Mapping[str, Any], label: str = "run"
    ) -> RunFolder:
        """A new folder; without a name it is `<mmdd>-<label>-<4 letters>`.

        Raises:
            UsageError: the name is taken, or is no name.
            SetupError: the folder cannot be written.
        """
        root = Path(dir)
        _refuse_name(name)
        try:
            with _writing(root):
                root.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise SetupError(f"`{root}` is a file, so no run can lie in it", hint="set `run.dir` to a folder") from None
        for _ in range(20):
            path = root / (name or new_name(label))
            if _appears(path, recipe_text, manifest):
                return cls(path)
            if name is not None:
                raise _taken(path)
        raise SetupError(f"no free name found in `{root}`")

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of an earlier run.

        Raises:
            DataError: there is none at this place.
        """
        folder = Path(path)
        if not (folder / "run.json").is_file():
            what = "no such folder" if not folder.is_dir() else "it holds no `run.json`"
            above, near = next((one for one in folder.parents if (one / "run.json").is_file()), None), None
            with contextlib.suppress(OSError):
                names = [p.name for p in folder.parent.iterdir() if (p / "run.json").is_file()]
                near = nearest(folder.name, names, 0.5)
            hint = f"did you mean `{folder.parent / near}`?" if near else ""
            raise DataError(f"`{path}` is not a run: {what}", hint=f"its run is `{above}`" if above else hint)
        return cls(folder)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Inside, a failure to write becomes a SetupError. A deleted folder is also a SetupError, and is not
        recreated."""
        try:
            with _writing(self.path):
                yield
        except SetupError as err:
            raise self.gone() if not self.path.is_dir() else err from err.__cause__

    def gone(self) -> SetupError:
        """The error of a run whose folder is not there any more."""
        return SetupError(
            f"the run's folder `{self.path}` is gone: it was deleted or moved while the run wrote to it",
            hint="what was in it cannot be written again; start anew",
        )

    @property
    def recipe_text(self) -> str:
        """The resolved recipe; a DataError where it cannot be read."""
        path = self.path / "recipe.yaml"
        try:
            lines.refuse_pipe(path)
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            cause = getattr(err, "strerror", None) or err
            raise DataError(f"the run's recipe cannot be read: {cause}", place=str(path)) from err

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint of a step belongs; the folder is made by who writes it."""
        return self.path / "checkpoints" / f"step-{step:06d}"

    def sample_path(self, step: int, split: Split = "train") -> Path:
        """The file with the samples of a step."""
        return self.path / FOLDERS[split] / f"step-{step:06d}.jsonl"

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """One line of `metrics.jsonl`, with the system when this returns; `at` (UTC) is added where it is missing."""
        with self._writing():
            path = self.path / "metrics.jsonl"
            lines.append(path, dump_line({**metrics, "at": metrics.get("at") or iso_now()}))
        self._unsynced.add(path)

    def write_samples(self, step: int, records: Sequence[SampleRecord], split: Split = "train") -> Path:
        """Add the samples of a step to its file in one write, and return its path."""
        path = self.sample_path(step, split)
        with self._writing():
            path.parent.mkdir(exist_ok=True)
            lines.append(path, "".join([dump_line(record.as_json()) for record in records]))
        self._unsynced.add(path)
        return path

    def sync(self) -> None:
        """Sync the records to disk: after a power failure a checkpoint must not be newer than its records."""
        with self._writing():
            for path in self._unsynced | {path.parent for path in self._unsynced}:
                lines.sync(path)
        self._unsynced.clear()

    def write_probe(self, found: Mapping[str, Any], records: Sequence[SampleRecord]) -> None:
        """Write the result of the gate's probe (`probe.json`) and its samples (`probe.jsonl`)."""
        with self._writing():
            lines.replace(self.path / "probe.jsonl", "".join([dump_line(record.as_json()) for record in records]))
            lines.replace(self.path / "probe.json", dump_line(found))

    def alarm_path(self, step: int, code: str) -> Path:
        """The file with the evidence of an alarm."""
        return self.path / "alarms" / f"step-{step:06d}-{code}.json"

    def write_alarm(self, step: int, code: str, evidence: Mapping[str, Any]) -> Path:
        """Keep the evidence of an alarm and return its path; an earlier file of it is replaced."""
        path = self.alarm_path(step, code)
        with self._writing():
            path.parent.mkdir(exist_ok=True)
            lines.replace(path, json.dumps(evidence, indent=1, ensure_ascii=False) + "\n")
        return path

    def log(self, level: str, text: str) -> None:
        """A line of `train.log`; a text of several lines is indented under its first."""
        kept = without_home(without_credentials(text))
        indented = visible_lines(kept.rstrip("\n")).replace("\n", "\n    ")
        with self._writing():
            lines.append(self.log_path, f"{iso_now()} {level.upper():<5}  {indented}\n")

    def manifest(self) -> dict[str, Any]:
        """What `run.json` holds.

        Raises:
            DataError: it cannot be read.
        """
        path = self.path / "run.json"
        try:
            lines.refuse_pipe(path)
            return read_typed("run.json", path.read_bytes())
        except (OSError, ValueError) as err:
            raise DataError(f"cannot be read: {err}", place=str(path)) from err

    def update_manifest(self, **values: object) -> None:
        """Change keys of `run.json`; readers see the old file or the new one."""
        with self._writing():
            if not self.path.is_dir():
                raise self.gone()
            _write_manifest(self.path, {**self.manifest(), **values})

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl` in order.

        Raises:
            DataError: a line before the last is broken.
        """
        return list(_read(self.path / "metrics.jsonl", metrics_of))

    def samples(self, step: int, split: Split = "train") -> Iterator[SampleRecord]:
        """The samples of a step, in order; none if nothing was written.

        Raises:
            DataError: a line before the last is broken.
        """
        return _read(self.sample_path(step, split), SampleRecord.from_json)

    def steps(self, split: Split = "train") -> list[int]:
        """The steps that have samples."""
        found = (re.fullmatch(r"step-(\d+)\.jsonl", p.name) for p in (self.path / FOLDERS[split]).glob("step-*.jsonl"))
        return sorted(int(match[1]) for match in found if match)

    def move_aside(self, after_step: int) -> int:
        """Move every metric line and sample file past a step to `*.abandoned`, and return how many steps that were.

        Samples without a metric line are moved too: that line is written last, so the run died in between and will
        write both again. Safe to repeat: lines are added to the abandoned file before they are removed from the live
        one.
        """
        kept: list[str] = []
        left: list[str] = []
        gone: set[int] = set()
        closed: dict[Split, set[int]] = {split: set() for split in FOLDERS}
        for line in self.metrics():
            step = int(line.get("step") or 0)
            (left if step > after_step else kept).append(dump_line(line))
            if step > after_step:
                gone.add(step)
            else:
                split: Split = "eval" if "eval/pass@1" in line else "train"
                closed["canary" if "canary/pass@1" in line else split].add(step)
        path = self.path / "metrics.jsonl"
        with self._writing():
            if left:
                lines.append(path.with_name("metrics.jsonl.abandoned"), "".join(left))
                lines.replace(path, kept)
            for split in FOLDERS:
                for step in self.steps(split):
                    if step not in closed[split]:
                        gone |= {step} if step > after_step else set()
                        old, number = self.sample_path(step, split), 1
                        target = old.with_name(f"{old.name}.abandoned")
                        while target.exists():
                            number += 1
                            target = old.with_name(f"{old.name}.abandoned.{number}")
                        old.rename(target)
        return len(gone)


def new_name(label: str) -> str:
    """`<mmdd>-<label>-<4 letters>`; the label loses what does not belong into a file name."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-.")[:40] or "run"
    tail = "".join(secrets.choice(LETTERS) for _ in range(4))
    return f"{datetime.now().strftime('%m%d')}-{plain}-{tail}"


def iso_now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def replace_recipe(run: RunFolder, text: str) -> None:
    """Write another resolved recipe; readers see the old one or the new one."""
    with _writing(run.path):
        lines.replace(run.path / "recipe.yaml", text)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as err:
        raise SetupError(
            f"`{err.filename or path}` cannot be written: {why_unwritten(err)}",
            hint="free some space; what is whole is kept"
            if err.errno in (errno.ENOSPC, errno.EDQUOT)
            else "set `run.dir` to a folder you may write to",
        ) from err


def refuse_place(dir: str | Path, name: str | None) -> None:
    """Raise the errors that `RunFolder.create` would raise, before a model is loaded; nothing is created.

    Raises:
        UsageError: the name is taken, or is no name.
        SetupError: the folder cannot be written.
    """
    root = Path(dir)
    _refuse_name(name)
    if name is not None and (root / name).exists():
        raise _taken(root / name)
    lines.refuse_closed(root, "set `run.dir` to a folder you may write to")


def _refuse_name(name: str | None) -> None:
    if name is not None and (why := why_no_name(name)):
        raise UsageError(f"`{visible(name, 60)}` cannot name a run: {why}", place="run.name")


def _taken(path: Path) -> UsageError:
    return UsageError(
        f"the run `{path}` exists already", hint="take another `run.name`, or continue it with `--resume`"
    )


def _appears(path: Path, recipe_text: str, manifest: Mapping[str, Any]) -> bool:
    """Create a run's folder under a temporary name and rename it; False if the name is taken."""
    if path.exists():
        return False
    beside = path.parent / BESIDE / secrets.token_hex(8)
    with _writing(path):
        beside.mkdir(parents=True)
        lines.replace(beside / "recipe.yaml", recipe_text)
        head: dict[str, Any] = {"schema": 1, "run": path.name, "started": iso_now(), "status": "running"}
        if isinstance(base := manifest.get("base"), str):
            head[BASE_FROM_RUN] = os.path.relpath(base, real_path(path))
        _write_manifest(beside, {**head, **manifest})
        try:
            os.rename(beside, path)
        except (FileExistsError, NotADirectoryError):
            return False
        except OSError as err:
            if err.errno != errno.ENOTEMPTY:
                raise
            return False
        finally:
            shutil.rmtree(beside, ignore_errors=True)
            with contextlib.suppress(OSError):
                beside.parent.rmdir()
    return True


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    text = without_home(without_credentials(json.dumps(manifest, indent=2, ensure_ascii=False, default=str)))
    lines.replace(folder / "run.json", text + "\n")


def _read(path: Path, made: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    try:
        lines.refuse_pipe(path)
        yield from lines.read(path, made)
    except OSError as err:
        raise DataError(f"cannot be read: {(err.strerror or 'error').lower()}", place=str(path)) from err
    except ValueError as err:
        place, _, message = str(err).partition(": ")
        raise DataError(f"broken line: {message}", place=place) from err


def base_of(folder: RunFolder) -> Path | None:
    """The folder that the paths of a run's recipe count from; None where `run.json` does not name one.

    For a run that was moved together with its recipe the relative path holds; for one that was moved alone, the old
    absolute path.
    """
    manifest = folder.manifest()
    base, near = manifest.get("base"), manifest.get(BASE_FROM_RUN)
    before = path_of(base) if isinstance(base, str) and base else None
    beside = folder.path / near if isinstance(near, str) and near else None
    name = Path(named_recipe(manifest)).name
    file = name if name.endswith((".yaml", ".yml")) else "recipe.yaml"
    if beside is not None and ((beside / file).is_file() or before is None or not before.is_dir()):
        return Path(os.path.abspath(beside))
    return before


def typed_words(manifest: Mapping[str, Any]) -> list[str]:
    """The command line that began a run, with this user's home in place of `~`."""
    return [str(path_of(word)) if (word := str(one)).startswith("~") else word for one in manifest.get("argv") or []]


def named_recipe(manifest: dict[str, Any]) -> str:
    """The recipe as it was named on the command line; empty where none was."""
    argv = typed_words(manifest)
    after = argv[argv.index("train") :] if "train" in argv else []
    words = (word for before, word in pairwise(after) if before not in VALUED)
    return next((word for word in words if not word.startswith("-")), "")


class SilentRun(RunFolder):
    """Same paths, no writes."""

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Rank 0 writes them."""

    def write_samples(self, step: int, records: Sequence[SampleRecord], split: Split = "train") -> Path:
        """Rank 0 writes them."""
        return self.sample_path(step, split)

    def write_probe(self, found: Mapping[str, Any], records: Sequence[SampleRecord]) -> None:
        """Rank 0 writes it."""

    def log(self, level: str, text: str) -> None:
        """Rank 0 logs."""

    def update_manifest(self, **values: object) -> None:
        """Rank 0 does."""
