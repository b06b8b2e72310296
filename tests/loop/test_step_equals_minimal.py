"""The page of plain torch in `examples/` and TRL's trainer in its seam do the same step."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.train.loop import Loop
from grpo_cli.train.step import StepBatch
from grpo_verifiers.verdict import Outcome, Verdict
from tests.loop.recipes import ROOT

PROMPTS = ["1+1=", "what is 12 + 345 ?", "2+2", "a much longer prompt, so that rows differ: 7+8=", "9", "10+11="]


def minimal() -> ModuleType:
    """The example, from its file."""
    spec = importlib.util.spec_from_file_location("minimal_grpo", ROOT / "examples/minimal_grpo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recipe(folder: Path, micro_batch: int, **more: Any) -> Recipe:
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"question": p, "answer": "2"}) + "\n" for p in PROMPTS))
    return Recipe.model_validate(
        {
            "grpo": 1,
            "model": {"path": "builtin:tiny"},
            "data": {"train": str(rows), "prompt": "{question}", "answer": "{answer}"},
            "verify": {"regex": {"pattern": "2"}},
            "sample": {"prompts": 4, "group": 4, "max_tokens": 10, "micro_batch": micro_batch},
            # with Adam's usual 1e-8, gradients of about that size would blow rounding up to a whole step
            "train": {"steps": 2, "lr": 1e-3, "seed": 7, "trl": {"adam_epsilon": 1e-4}, **more},
            "monitor": {"kl": "off"},
            "run": {"dir": str(folder / f"runs-{micro_batch}"), "save_every": 100},
        }
    )


@dataclass
class Seen:
    """What a loop did, step by step."""

    befores: list[StepBatch] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    weights: torch.Tensor = field(default_factory=lambda: torch.zeros(0))


def judged(
    self: Judge, texts: Sequence[str], tasks: Sequence[Task], token_ids: object = None, played: object = None
) -> list[Judgement]:
    """Right where a text is of odd length; the first group is dead, and one sample has no verdict."""
    found = []
    for i, text in enumerate(texts):
        if i == 6:
            found.append(Judgement({"regex": Verdict(Outcome.ERROR, None)}, Outcome.ERROR, None))
            continue
        score = 1.0 if i < 4 else float(len(text.encode()) % 2)
        outcome = Outcome.RIGHT if score else Outcome.WRONG
        found.append(Judgement({"regex": Verdict(outcome, score)}, outcome, score))
    return found


def flat(model: Any, of: str) -> torch.Tensor:
    return torch.cat([getattr(p, of).detach().flatten().clone() for p in model.parameters()])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Seen]]:
    """The last is of the loop that runs; gradients are caught before they are clipped, on both ways by torch."""
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Judge, "judge", judged)
    all_: list[Seen] = []
    clip = torch.nn.utils.clip_grad_norm_

    def caught(parameters: Any, *args: Any, **named: Any) -> Any:
        kept = list(parameters)
        all_[-1].gradients.append(torch.cat([p.grad.flatten().clone() for p in kept]))
        return clip(kept, *args, **named)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", caught)
    yield all_


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"dead_groups": "resample", "resample_rounds": 1},
        {"scale": "none"},
        {"lr_warmup_steps": 1},
        {"lr_warmup_steps": 1, "schedule": "constant"},
    ],
)
@pytest.mark.parametrize("micro_batch", [1, 16])
def test_two_steps_of_the_trainer_are_two_of_the_minimal_loop(
    micro_batch: int, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Seen]
) -> None:
    made = recipe(tmp_path, micro_batch, **more)
    begin = Loop.begin

    def noted(self: Loop) -> StepBatch:
        before = begin(self)
        seen[-1].befores.append(before)
        return before

    monkeypatch.setattr(Loop, "begin", noted)
    seen.append(Seen())
    job = Job(made, label="ours", base=tmp_path, display=make_display("none"))
    job.run()
    seen[-1].weights = flat(job.running.trainer.model, "data")

    seen.append(Seen())
    page = minimal()
    with page.warm_job(made, tmp_path) as place:
        start = flat(place.policy.model, "data")
        seen[-1].befores += [done.before for done in page.steps(place)]
        seen[-1].weights = flat(place.policy.model, "data")

    ours, theirs = seen
    assert len(ours.befores) == len(theirs.befores) == len(ours.gradients) == len(theirs.gradients) == 2
    for a, b in zip(ours.befores, theirs.befores, strict=True):
        assert [g.row for g in a.groups] == [g.row for g in b.groups]
        assert [c.token_ids for g in a.groups for c in g.completions] == [
            c.token_ids for g in b.groups for c in g.completions
        ]
        assert repr([g.rewards for g in a.groups]) == repr([g.rewards for g in b.groups])
        assert len({len(g.prompt_ids) for g in a.groups}) > 1
        assert torch.allclose(a.credit.A_PG, b.credit.A_PG, rtol=0, atol=1e-6)
        assert a.credit.A_PG.any()
    assert "nan" in repr([g.rewards for g in ours.befores[0].drawn])
    assert not all(ours.befores[0].credit.signal_P) or more.get("dead_groups") == "resample"
    for a_grad, b_grad in zip(ours.gradients, theirs.gradients, strict=True):
        assert float((a_grad - b_grad).norm()) <= 1e-5 * float(b_grad.norm())
    assert float((ours.weights - theirs.weights).abs().max()) <= 1e-6
    assert float((ours.weights - start).abs().max()) > 1e-4
