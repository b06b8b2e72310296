"""Two gloo ranks beside one process: a sample of the suite; `python -m tests.reference.together` runs the whole."""

from __future__ import annotations

import pytest

from tests.reference.drive import write_world
from tests.reference.together import MORE, both, bound, runs

SAMPLE = (
    "presets default drop mb20",
    "presets gspo drop mb20",
    "kl dapo k2 mb4",
    "advantages mask_truncated dapo",
    "advantages prune advantage grpo",
    "advantages k1_reward group",
    "advantages entropy_coef mb4",
    *(one.name for one in MORE),
)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    folder = tmp_path_factory.mktemp("together")
    write_world(folder)
    chosen = [one for one in runs() if one.name in SAMPLE]
    return both(chosen, folder, folder / "out")


@pytest.mark.parametrize("name", SAMPLE)
def test_ranks_train_the_weights_of_one_process(name: str, apart: dict[str, float]) -> None:
    assert apart[name] <= bound(name)
