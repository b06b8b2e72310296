"""What a person asks for by a key is done between two steps: saved, measured, paused until a key or a signal."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl

from grpo_cli.display.protocol import KeyRequests
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import Exit
from grpo_cli.findings.stopping import StopRules
from grpo_cli.jobs.train import job
from grpo_cli.jobs.train.job import TrainCallback
from grpo_cli.recipe.sections.recipe import Recipe

STEPS = 40


class Said:
    """A display that keeps what it was told, and calls back at each phase."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.phases: list[str] = []
        self.at_phase: Any = lambda: None

    def note(self, level: str, text: str, hint: str = "") -> None:
        self.notes.append(text)

    def phase(self, name: str) -> None:
        self.phases.append(name)
        self.at_phase()


def watch(deadline: str | None = None, has_held_out: bool = True) -> tuple[TrainCallback, Any, list[int]]:
    """A watch at step 7 of 40 that neither saves nor measures by itself, what it stands in, and the steps it measured."""
    recipe = Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": {"math": {"primary": True}},
            "train": {"steps": STEPS},
            "run": {"save_every": 1000, "deadline": deadline},
        }
    )
    measured: list[int] = []
    running: Any = SimpleNamespace(
        recipe=recipe, display=Said(), ranks=Ranks(), interrupts=SimpleNamespace(asked=None), wishes=KeyRequests(), canary=None,
        stop_rules=StopRules(recipe.stop), evaluations=[{"step": 7, "eval/pass@1": 0.5}], printed=dict, trusted=[],
        alarmed=SimpleNamespace(step=lambda logs: None, may_roll_back=False, wanted=None, action=None),
    )  # fmt: skip
    loop: Any = SimpleNamespace(steps_done=7, clock=SimpleNamespace(phase=lambda name: nullcontext()))
    held_out: Any = SimpleNamespace(measure=lambda step, is_between: measured.append(step))
    return TrainCallback(running, loop, held_out if has_held_out else None), running, measured


def logged(watching: TrainCallback) -> TrainerControl:
    control = TrainerControl()
    watching.on_log(None, None, control, {"step": 7})  # type: ignore[arg-type]
    return control


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "PAUSED_S", 0.001)


def test_nothing_asked_nothing_done() -> None:
    watching, running, measured = watch()
    control = logged(watching)
    assert (control.should_save, control.should_training_stop, measured, running.display.phases) == (
        False,
        False,
        [],
        [],
    )


def test_a_save_is_made_once() -> None:
    watching, running, _ = watch()
    running.wishes.press("s")
    assert logged(watching).should_save
    assert not logged(watching).should_save


def test_an_evaluation_is_made_once_and_not_twice_at_the_end() -> None:
    watching, running, measured = watch()
    running.wishes.press("e")
    logged(watching)
    logged(watching)
    assert measured == [7]
    running.wishes.press("e")
    watching.step.steps_done = STEPS
    logged(watching)
    assert measured == [7]


@pytest.mark.parametrize(
    ("between", "key", "patience", "is_between"),
    [(8, "", None, True), (8, "e", None, False), (None, "", None, False), (8, "", 30, False)],
)
def test_only_an_evaluation_in_its_turn_is_of_fewer_rows(
    between: int | None, key: str, patience: int | None, is_between: bool
) -> None:
    watching, running, _ = watch()
    running.recipe = running.recipe.model_copy(
        update={
            "eval": running.recipe.eval.model_copy(update={"every": 7, "between": between}),
            "stop": running.recipe.stop.model_copy(update={"patience": patience}),
        }
    )
    asked: list[tuple[int, bool]] = []
    watching.held_out = SimpleNamespace(measure=lambda step, is_between: asked.append((step, is_between)))
    for one in key:
        running.wishes.press(one)
    logged(watching)
    assert asked == [(7, is_between)]
    assert running.stop_rules.best == (-1.0 if is_between else 0.5), "a score of fewer rows was compared"


def test_a_run_without_held_out_rows_says_so() -> None:
    watching, running, _ = watch(has_held_out=False)
    running.wishes.press("e")
    logged(watching)
    assert running.display.notes == ["no held-out rows to measure"]


def test_a_pause_lasts_until_the_key_and_shows_that_it_lives() -> None:
    watching, running, _ = watch()
    running.wishes.press("p")
    running.display.at_phase = lambda: len(running.display.phases) == 3 and running.wishes.press("p")
    assert not logged(watching).should_training_stop
    assert running.display.phases == ["paused, p goes on"] * 3


def test_a_signal_ends_a_pause_and_the_run() -> None:
    watching, running, _ = watch()
    running.wishes.press("p")
    timer = threading.Timer(0.05, lambda: setattr(running.interrupts, "asked", Exit.INTERRUPTED))
    timer.start()
    control = logged(watching)
    assert control.should_training_stop and control.should_save
    timer.join()


def test_a_save_asked_for_in_a_pause_is_made_when_it_ends() -> None:
    watching, running, _ = watch()
    running.wishes.press("p")
    running.display.at_phase = lambda: [running.wishes.press("s"), running.wishes.press("p")]
    assert logged(watching).should_save


def test_the_last_step_does_not_pause() -> None:
    watching, running, _ = watch()
    running.wishes.press("p")
    watching.step.steps_done = STEPS
    assert logged(watching).should_training_stop
    assert running.display.phases == []
