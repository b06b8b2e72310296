"""`run.track`: sends the lines of `metrics.jsonl` to transformers' integrations, with the same names and steps,
including evaluations.

By default they would put `train/` before every name, count optimizer updates instead of steps, miss evaluations, and
write TensorBoard's files into the trainer's temporary folder.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import integration_utils

from grpo_cli.policy.loading.packages import TRACKERS
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Metrics
from grpo_cli.text import real_path

PROJECT = "grpo"


class MlflowNames:
    """Our names as mlflow's store of files can hold them: a metric is a file there, and those below it a folder of that name.

    If a name is also a metric, names below it get a dot in place of the slash: `eval/greedy.low`. Once chosen, a name
    stays.
    """

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """The name to send for each metric; all names of a line are passed together."""
        for name in sorted(names, key=len):  # sorted: a name comes before those below it
            if name not in self._given:
                self._given[name] = self._free(name)
        return self._given

    def _free(self, name: str) -> str:
        given = set(self._given.values())
        parts = name.split("/")
        for length in range(1, len(parts)):
            above = "/".join(parts[:length])
            if above in given:
                name = f"{above}.{'.'.join(parts[length:])}"
                break
        return f"{name}.value" if any(other.startswith(f"{name}/") for other in given) else name


class Tracker(TrainerCallback):  # type: ignore[misc]
    """One integration. Lines sent before it is opened are kept; the job closes it after the last evaluation."""

    def __init__(self, inner: TrainerCallback, folder: Path) -> None:
        self.inner, self.folder = inner, folder
        self._waiting: list[Metrics] = []
        self._names = MlflowNames() if type(inner).__name__ == "MLflowCallback" else None
        self._begun: tuple[TrainingArguments, TrainerState, TrainerControl, nn.Module | None] | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **more: object,
    ) -> None:
        """Open it, and send the lines kept so far."""
        self._begun = (args, state, control, model)
        if hasattr(self.inner, "logging_dir") and self.inner.logging_dir is None:
            self.inner.logging_dir = str(self.folder / "tensorboard")
        # stdout is reserved for the command's result, but trackers print to it
        with contextlib.redirect_stdout(sys.stderr), _environment(wandb_settings(self.folder)), self._mlflow():
            self.inner.on_train_begin(args, state, control, model=model, **more)
        for metrics in self._waiting:
            self.send(metrics)
        self._waiting.clear()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Metrics, **_: object
    ) -> None:
        """Send the metrics of a step, without those that the trainer adds."""
        self.send({key: value for key, value in logs.items() if key != "epoch"})

    def send(self, metrics: Metrics) -> None:
        """Send every number of one line of `metrics.jsonl` under its name; unmeasured values are left out."""
        if self._begun is None:
            self._waiting.append(dict(metrics))
            return
        args, state, control, model = self._begun
        at = copy.copy(state)
        at.global_step = int(metrics.get("step") or 0)
        numbers = {
            key: value
            for key, value in metrics.items()
            if key != "step" and (isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)))
        }
        if self._names is not None:
            sent = self._names.of(numbers)
            numbers = {sent[key]: value for key, value in numbers.items()}
        with contextlib.redirect_stdout(sys.stderr), _names_kept(), self._mlflow():
            self.inner.on_log(args, at, control, logs=numbers, model=model)

    def _mlflow(self) -> AbstractContextManager[None]:
        """Its settings: mlflow asks for its store anew at every call."""
        return _environment(
            {
                "MLFLOW_TRACKING_URI": real_path(self.folder / "mlruns").as_uri(),
                "MLFLOW_ALLOW_FILE_STORE": "true",
                "MLFLOW_EXPERIMENT_NAME": PROJECT,
                "MLFLOW_FLATTEN_PARAMS": "TRUE",
            }
        )

    def close(self) -> None:
        """Flush and finish."""
        if self._begun is None:
            return
        args, state, control, model = self._begun
        self._begun = None
        with contextlib.redirect_stdout(sys.stderr), self._mlflow():
            self.inner.on_train_end(args, state, control, model=model)
            wandb = getattr(self.inner, "_wandb", None)
            if wandb is not None and wandb.run is not None:
                wandb.finish()


def take_trackers(trainer: Trainer, run: RunFolder) -> list[Tracker]:
    """Put a `Tracker` around each integration that the trainer made for `report_to`."""
    handler = trainer.callback_handler
    kinds = tuple(integration_utils.INTEGRATION_TO_CALLBACK[name] for name in TRACKERS)
    trainer.args.run_name, trainer.args.project = run.name, PROJECT
    found = []
    for i, callback in enumerate(handler.callbacks):
        if isinstance(callback, kinds):
            handler.callbacks[i] = Tracker(callback, run.path)
            found.append(handler.callbacks[i])
    trainer.args.report_to = []  # otherwise TRL would add timings of its methods to wandb and trackio
    return found


def wandb_settings(folder: Path) -> dict[str, str]:
    """Defaults of wandb's environment variables; without a key it works offline and asks nothing."""
    settings = {"WANDB_DIR": str(folder), "WANDB_PROJECT": PROJECT, "WANDB_SILENT": "true"}
    netrc = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    has_key = "WANDB_API_KEY" in os.environ or (
        netrc.is_file() and "wandb" in netrc.read_text(encoding="utf-8", errors="replace")
    )
    return settings if has_key else settings | {"WANDB_MODE": "offline"}


@contextlib.contextmanager
def _names_kept() -> Iterator[None]:
    """Inside, transformers puts no `train/` before names: ours are paths already."""
    kept = integration_utils.rewrite_logs
    integration_utils.rewrite_logs = dict
    try:
        yield
    finally:
        integration_utils.rewrite_logs = kept


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Inside, these environment variables are set unless they already are."""
    added = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
