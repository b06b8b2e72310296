"""The real trainer beside the float64 reference: a sample of the suite; `make reference` runs the whole and prints it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.reference.compare import apart
from tests.reference.drive import write_world
from tests.reference.families import FAMILIES
from tests.reference.plan import planned
from tests.reference.table import beyond, errors_of

SAMPLE = (
    "presets default drop mb1",
    "presets grpo keep mb20",
    "presets gspo drop mb20",
    "presets rloo keep mb1",
    "presets gigpo turns drop mb1",
    "kl dapo k2 mb4",
    "kl sapo k3_corrected mb20",
    "kl cispo k1_loss mb4",
    "advantages normalise_then_sum",
    "advantages split drop",
    "advantages split keep",
    "advantages mask_truncated k1_reward",
    "advantages k1_reward group",
    "advantages entropy_coef mb4",
    "turns k3 mb4",
    "critic kl",
    "critic turns cut",
    "families gpt2 keep mb20",
    "families gpt_neo kl",
    "families qwen3_moe drop mb4",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


@pytest.mark.parametrize("name", SAMPLE)
def test_every_number_of_an_update_is_the_references(name: str, world: Path) -> None:
    one = next(run for run in planned() if run.name == name)
    errors = errors_of(one, world)
    assert not beyond(errors), asdict(errors)


@pytest.mark.slow
@pytest.mark.parametrize("one", [run for run in planned() if run.ranks > 1], ids=lambda run: run.name)
def test_two_ranks_are_the_reference_of_one(one: object, world: Path) -> None:
    errors = errors_of(one, world)  # type: ignore[arg-type]
    assert not beyond(errors), asdict(errors)


def test_the_suite_is_as_wide_as_it_says() -> None:
    assert len(FAMILIES) == 14
    names = [run.name for run in planned()]
    assert len(set(names)) == len(names) and set(SAMPLE) <= set(names)


def test_an_error_in_one_weight_shows() -> None:
    import torch

    want = {"a": torch.ones(100), "b": torch.ones(1)}
    got = {"a": torch.ones(100), "b": torch.full((1,), 1.01)}
    assert apart(want, want) == 0.0
    assert apart(got, want) > 5e-4
