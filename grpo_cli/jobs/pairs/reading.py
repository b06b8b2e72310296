"""Judged samples from files and runs, with the place of every line that is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_cli.data.files import BrokenFile, Record, read_file
from grpo_cli.errors import DataError, Mistake
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord


def read_samples(files: Sequence[str]) -> list[SampleRecord]:
    """The samples of files as `grpo train` and `grpo verify --out` write them.

    Raises:
        DataError: no such file, and every line that is no judged sample.
    """
    found: list[SampleRecord] = []
    mistakes: list[Mistake] = []
    for name in files:
        path = Path(name).expanduser()
        if not path.is_file():
            raise DataError("no such file", place=name, hint="name files, a run, or a recipe")
        for item in read_file(path, name):
            read = _sample(item)
            if isinstance(read, Mistake):
                mistakes.append(read)
            else:
                found.append(read)
    if mistakes:
        raise DataError(mistakes, hint="`grpo verify FILE --out SCORED` writes such lines")
    return found


def run_samples(run: RunFolder, since: int) -> list[SampleRecord]:
    """What a run drew for training from step `since` on.

    Raises:
        DataError: there are none.
    """
    return list(_of_run(run, since))


def _of_run(run: RunFolder, since: int) -> Iterator[SampleRecord]:
    steps = [step for step in run.steps() if step >= since]
    if not steps:
        which = f"no samples from step {since} on" if run.steps() else "no samples"
        raise DataError(f"the run has {which}", place=str(run.path))
    for step in steps:
        yield from run.samples(step)


def _sample(item: Record | BrokenFile) -> SampleRecord | Mistake:
    if isinstance(item, BrokenFile):
        return Mistake(item.place, item.why)
    fields = item.fields
    for key in ("prompt", "completion"):
        if not isinstance(fields.get(key), str):
            return Mistake(item.place, f"`{key}` must be text")
    if fields.get("outcome") is None:
        return Mistake(item.place, "no `outcome`: the sample was not judged")
    try:
        return SampleRecord.from_json(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        return Mistake(item.place, f"no judged sample: {err}")
