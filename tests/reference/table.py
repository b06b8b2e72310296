"""The whole suite as a table of worst errors, and what is above its bound by name: `python -m tests.reference.table`.

Arguments pick runs by a part of their name; ends with 1 where an error is above its bound.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch

from tests.reference.case import Case, Errors
from tests.reference.compare import compare
from tests.reference.drive import recipe_of, run_here, run_ranks, write_world
from tests.reference.families import write_checkpoint
from tests.reference.plan import Planned, planned

BOUNDS = Errors(
    reward=1e-6,
    advantage=1e-5,
    gradient=1e-5,
    kl=1e-5,
    clip=1e-6,
    entropy=1e-5,
    value=1e-6,
    value_gradient=1e-5,
    loss=1e-5,
)
"""float32 against float64: a few roundings; a term that is missing, or of one rank, is a thousand times larger."""


def errors_of(one: Planned, folder: Path) -> Errors:
    """Run it in `folder`, which `write_world` has filled, and compare."""
    path = one.family if one.family.startswith("builtin:") else str(write_checkpoint(one.family, folder))
    changes = one.changes | {"model": {"path": path}}
    name = "".join(c if c.isalnum() else "-" for c in one.name)
    recipe = recipe_of(folder, name, changes)
    if one.ranks == 1:
        return compare([run_here(recipe, folder, plays=one.plays)], Case.of(recipe))
    return compare(run_ranks(folder, name, changes, one.ranks, plays=one.plays), Case.of(recipe))


def beyond(errors: Errors) -> list[str]:
    """The names of what is above its bound."""
    return [f.name for f in fields(Errors) if getattr(errors, f.name) > getattr(BOUNDS, f.name)]


def main(wanted: Sequence[str]) -> int:
    """Print a line a run as it ends, then the worst of each part."""
    torch.set_num_threads(1)
    names = [f.name for f in fields(Errors)]
    worst: dict[str, Errors] = defaultdict(Errors)
    counts: dict[str, int] = defaultdict(int)
    failed = []
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write_world(Path(folder))
        for one in planned():
            if wanted and not any(word in one.name for word in wanted):
                continue
            errors = errors_of(one, Path(folder))
            over = beyond(errors)
            numbers = "  ".join(f"{getattr(errors, n):9.1e}" for n in names)
            print(f"{one.name:44} {numbers}  {'above: ' + ', '.join(over) if over else ''}", flush=True)
            failed += [one.name] if over else []
            counts[one.part] += 1
            for name in names:
                worst[one.part].take(name, getattr(errors, name))
    print(f"\n{'worst of':38} {'runs':>5}  " + "  ".join(f"{n:>9}" for n in names))
    for part, errors in worst.items():
        numbers = "  ".join(f"{getattr(errors, n):9.1e}" for n in names)
        print(f"{part:38} {counts[part]:5}  {numbers}")
    seconds = time.process_time() - began
    print(f"{'bound':44}  " + "  ".join(f"{getattr(BOUNDS, n):9.1e}" for n in names))
    print(
        f"{sum(counts.values())} runs in {seconds:.0f} CPU seconds (other ranks not counted), {len(failed)} above a bound"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
