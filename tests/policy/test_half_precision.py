"""Cards without bfloat16, by a faked capability: what weights lie in, what products run in, and what is said of it.

What such a card does itself is not tried here: `tests/gpu/test_float16.py` trains in float16 on a card that has both.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_cli.errors import TrainingError
from grpo_cli.jobs import doctor
from grpo_cli.jobs.check.cost import check_costs
from grpo_cli.jobs.check.findings import Level
from grpo_cli.policy.policy import compute_dtype, half_precision, loaded_dtype
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.sizing.fit import CardQuestion, ask_of
from grpo_cli.train.updates import NonFinite
from tests.sizing.test_fit import recipe, sizes

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.mark.parametrize(
    ("capability", "half"), [((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16)]
)
def test_products_and_frozen_weights_are_in_the_half_precision_that_a_card_has(
    capability: tuple[int, int], half: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert half_precision(CUDA) == compute_dtype("auto", CUDA, 10) == loaded_dtype("auto", CUDA, frozen=True) == half
    # weights that are trained stay in float32, whatever the card, and a recipe's own word is kept
    assert loaded_dtype("auto", CUDA, frozen=False) == torch.float32
    assert loaded_dtype("bfloat16", CUDA, frozen=True) == torch.bfloat16
    assert half_precision(CPU) == torch.bfloat16 and loaded_dtype("auto", CPU, frozen=True) == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, None])
def test_the_trainer_is_told_the_type_and_gives_it_back(dtype: torch.dtype | None) -> None:
    from grpo_cli.train.trl_config import amp_fields, autocast_of

    args: Any = SimpleNamespace(**amp_fields(dtype))
    assert autocast_of(args) is dtype and (args.fp16, args.bf16) == (dtype is torch.float16, dtype is torch.bfloat16)


def test_a_scale_that_overflows_is_no_fault_until_it_cannot_be_halved() -> None:
    said: list[str] = []
    guard, model = NonFinite(True, said.append), torch.nn.Linear(1, 1)
    assert guard.gradient(float("inf"), 1, model, 65_536.0) is None
    assert guard.skipped == 1 and "scale of 65536" in said[0]
    assert guard.gradient(2.0, 2, model, 32_768.0) == 2.0
    with pytest.raises(TrainingError, match="gradient norm is inf"):
        guard.gradient(float("inf"), 3, model, 1.0)
    guard.loss(torch.tensor(float("nan")), lambda: ["row 7"])
    with pytest.raises(TrainingError, match="row 7"):  # no scale makes a loss NaN
        guard.gradient(float("nan"), 4, model, 65_536.0)


def test_doctor_names_such_a_card_once_with_what_runs_on_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    there = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl" or there(path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    names = ["Tesla T4", "Tesla T4", "NVIDIA L4"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: names[device.index])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5) if device.index < 2 else (8, 9))
    assert doctor.machine()["no_bfloat16"] == ["Tesla T4"]
    doctor.examine_machine("weak", False, str(tmp_path))
    said = capsys.readouterr().out
    assert (
        said.count("no bfloat16") == 1 and "Tesla T4: no bfloat16: products and frozen weights are in float16" in said
    )


@pytest.mark.parametrize(
    ("gpu", "dtype", "level"), [("t4", "auto", "note"), ("v100", "bfloat16", "warn"), ("l4", "auto", None)]
)
def test_check_says_what_runs_on_such_a_card_and_that_it_was_not_measured(
    gpu: str, dtype: str, level: str | None
) -> None:
    one = recipe(8, model={"dtype": dtype})
    ask: CardQuestion | None = ask_of(gpu, None)
    found = [f for f in check_costs(one, sizes("135m"), plan(one, 64), None, "", ask, 0) if f.check == "card"]
    assert [f.level for f in found] == ([Level(level)] if level else [])
    assert all("nothing was measured on such a card" in f.message for f in found)
    assert [bool(f.hint) for f in found] == ([level == "warn"] if level else [])
