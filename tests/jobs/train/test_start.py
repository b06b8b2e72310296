"""The numbers that the processes of a run compute in: rank 0's word, and at a resume the run's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import SilentDisplay
from grpo_cli.jobs.train import start
from grpo_cli.jobs.train.start import CPU_BF16, agree_on_cpu_bf16, record_cpu_bf16
from grpo_cli.policy import cpu_bf16
from grpo_cli.policy.policy import BIG, compute_dtype
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Level


class Ranked:
    """One of two ranks; what rank 0 said is known."""

    def __init__(self, rank: int, said: object = None) -> None:
        self.is_main, self.local, self.said = rank == 0, rank, said

    def agreed(self, value: Any) -> Any:
        """Rank 0's value."""
        if self.is_main:
            self.said = value
        return self.said


class Heard(SilentDisplay):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.notes: list[str] = []

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """Keep it."""
        self.notes.append(text)


@pytest.fixture(autouse=True)
def _unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_bf16, "_settled", [])


def folder(path: Path, **noted: object) -> RunFolder:
    return RunFolder.create(path, "run", "grpo: 1\n", noted)


@pytest.mark.parametrize("main_says", [True, False])
def test_every_rank_follows_the_measurement_of_rank_0(main_says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(start, "measure_cpu_bf16", lambda: main_says)
    main = Ranked(0)
    agree_on_cpu_bf16(None, main, Heard())  # type: ignore[arg-type]
    assert cpu_bf16.cpu_bf16_pays() is main_says
    monkeypatch.setattr(start, "measure_cpu_bf16", lambda: not main_says)
    agree_on_cpu_bf16(None, Ranked(1, main.said), Heard())  # type: ignore[arg-type]
    assert cpu_bf16.cpu_bf16_pays() is main_says
    used = compute_dtype("auto", torch.device("cpu"), BIG)
    assert used == (torch.bfloat16 if main_says else None)


@pytest.mark.parametrize("began", [True, False])
def test_a_resumed_run_computes_as_it_began_whatever_is_measured_now(
    began: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_bf16.settle_cpu_bf16(began)
    run = folder(tmp_path)
    record_cpu_bf16(run)
    assert run.manifest()[CPU_BF16] is began
    for now in (True, False):
        heard = Heard()
        monkeypatch.setattr(start, "measure_cpu_bf16", lambda now=now: now)
        agree_on_cpu_bf16(run, Ranked(0), heard)  # type: ignore[arg-type]
        assert cpu_bf16.cpu_bf16_pays() is began
        assert bool(heard.notes) is (began and not now)


def test_a_run_that_noted_nothing_is_measured_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = folder(tmp_path)
    monkeypatch.setattr(start, "measure_cpu_bf16", lambda: True)
    agree_on_cpu_bf16(run, Ranked(0), Heard())  # type: ignore[arg-type]
    assert cpu_bf16.cpu_bf16_pays()
