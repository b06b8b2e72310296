"""A tracker gets our names and steps whatever transformers would make of them, and waits until it is open."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.integrations import integration_utils

from grpo_cli.jobs.train.trackers import Tracker, wandb_settings


class Inner:
    """Writes down what an integration would send, and speaks on stdout as trackers do."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.seen: dict[str, str | None] = {}
        self.ended = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print("welcome")
        self.seen = {"mode": os.environ.get("WANDB_MODE"), "dir": os.environ.get("WANDB_DIR")}

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
        self.sent.append((state.global_step, integration_utils.rewrite_logs(logs)))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.ended += 1


def begun(folder: Path, *early: dict[str, Any]) -> tuple[Tracker, Inner]:
    inner = Inner()
    tracker = Tracker(inner, folder)
    for metrics in early:
        tracker.send(metrics)
    tracker.on_train_begin(None, SimpleNamespace(global_step=0), None, model=None)
    return tracker, inner


def test_names_stay_paths_and_steps_are_ours(tmp_path: Path) -> None:
    tracker, inner = begun(tmp_path)
    tracker.on_log(None, SimpleNamespace(global_step=8), None, logs={"step": 4, "group/mixed": 3, "epoch": 1.0})
    assert inner.sent == [(4, {"group/mixed": 3})]
    assert integration_utils.rewrite_logs({"a": 1}) == {"train/a": 1}


def test_an_evaluation_before_the_first_step_waits(tmp_path: Path) -> None:
    _, inner = begun(tmp_path, {"step": 0, "eval/pass@1": 0.25, "at": "now", "eval/think": None})
    assert inner.sent == [(0, {"eval/pass@1": 0.25})]


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    tracker, inner = begun(tmp_path)
    tracker.send({"step": 1, "loss": float("nan"), "kl": float("inf"), "lr": 0.5})
    assert inner.sent == [(1, {"lr": 0.5})]


def test_it_is_closed_once_and_only_if_it_was_opened(tmp_path: Path) -> None:
    Tracker(Inner(), tmp_path).close()
    tracker, inner = begun(tmp_path)
    tracker.close()
    tracker.close()
    assert inner.ended == 1


def test_what_trackers_say_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path)
    out = capsys.readouterr()
    assert out.out == "" and "welcome" in out.err


def test_wandb_without_a_key_works_offline_and_leaves_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    _, inner = begun(tmp_path)
    assert inner.seen == {"mode": "offline", "dir": str(tmp_path)} and "WANDB_MODE" not in os.environ
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert "WANDB_MODE" not in wandb_settings(tmp_path)


def test_no_metric_of_mlflow_lies_where_another_has_its_folder(tmp_path: Path) -> None:
    class MLflowCallback(Inner):
        pass

    inner = MLflowCallback()
    tracker = Tracker(inner, tmp_path)
    tracker.on_train_begin(None, SimpleNamespace(global_step=0), None, model=None)
    tracker.send({"step": 1, "eval/greedy/low": 0.1, "eval/greedy": 0.2, "entropy/sampled": 3.0})
    tracker.send({"step": 2, "entropy": 2.0, "eval/greedy": 0.3, "group/hist/0": 4})
    tracker.send({"step": 3, "entropy": 1.0, "entropy/sampled": 1.5, "eval/greedy/low/x": 1})
    assert [set(sent) for _, sent in inner.sent] == [
        {"eval/greedy", "eval/greedy.low", "entropy/sampled"},
        {"entropy.value", "eval/greedy", "group/hist/0"},
        {"entropy.value", "entropy/sampled", "eval/greedy.low.x"},
    ]


def test_mlflow_finds_its_store_at_every_call_and_none_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    seen: list[str | None] = []

    class Asking(Inner):
        def on_log(self, *args: Any, **more: Any) -> None:
            seen.append(os.environ.get("MLFLOW_TRACKING_URI"))

    tracker = Tracker(Asking(), tmp_path)
    tracker.on_train_begin(None, SimpleNamespace(global_step=0), None, model=None)
    tracker.send({"step": 1, "kl": 0.1})
    assert seen == [(tmp_path / "mlruns").resolve().as_uri()]
    assert "MLFLOW_TRACKING_URI" not in os.environ
