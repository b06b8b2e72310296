"""What is off, or has nothing to act on, is plain GRPO bit for bit."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import torch

from tests.loop.recipes import small_recipe
from tests.loop.test_ranks import weights
from tests.loop.test_resume import METHODS, finish, train, what

OFF = {
    "parts apart": (
        "train.split={task: {verifiers: [regex]}, form: {verifiers: [form], weight: 0}}",
        "train.reward_combine=sum train.split={} verify.form.weight=0",
    ),
    "mixed inputs": ("sample.mix.rate=0", "sample.mix=null"),
    "cuts": ("train.credit.segments=1", "train.credit=null"),
}
"""By method of `METHODS`: what switches it off, and the same without it."""


@pytest.mark.parametrize("method", OFF)
def test_what_is_off_changes_no_bit(tmp_path: Path, method: str) -> None:
    recipe = small_recipe(tmp_path, steps=3, save_every=3)
    off, without = OFF[method]
    runs = []
    for name, last in (("off", [off]), ("plain", without.split(" ") if method != "parts apart" else without.split())):
        sets = [part for one in ["run.name=run", *METHODS[method], *last] for part in ("--set", one)]
        finish(train(recipe, tmp_path / name, *sets))
        runs.append(tmp_path / name / "run")
    off_run, plain = runs
    own, others = (what(run)["samples"] for run in runs)
    for row, other in zip(chain(*own.values()), chain(*others.values()), strict=True):
        # of credit for parts of an answer the record has the mean over tokens, which rounds
        assert (row.pop("advantage", None) or 0.0) == pytest.approx(other.pop("advantage", None) or 0.0, rel=1e-12)
    assert own == others
    assert all(torch.equal(value, weights(plain, 3)[key]) for key, value in weights(off_run, 3).items())
