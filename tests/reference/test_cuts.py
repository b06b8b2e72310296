"""Credit by the value of cuts (`train.credit: rredcot`) through the trainer, beside float64 loops over single answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.reward.group_judge import CreditMarker
from grpo_cli.rollout.engine import Completion, Turn
from grpo_cli.train import cuts
from tests.reference.case import Case
from tests.reference.compare import _answers, _loss, _micro, apart
from tests.reference.drive import recipe_of, run_here, write_world
from tests.reference.formulas import group_advantages, mean
from tests.reference.policy import Plain, Said

FORCE, CLOSING, PART = "=\\boxed{", "}", 3


def thirds(_: CreditMarker, ids: list[int]) -> tuple[Turn, ...]:
    """Segments of three tokens: a model with random weights writes no lines."""
    starts = list(range(0, len(ids), PART)) or [0]
    return tuple(Turn(a, b) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True))


def bits(text: str) -> tuple[int, ...]:
    return tuple(byte_tokenizer()(text, add_special_tokens=False).input_ids)


def valued(model: Plain, said: Said, gold: str, most: int) -> list[tuple[int, float]]:
    """Where each segment of an answer begins, and its value, written down as the page has it."""
    places = list(range(0, len(said.answer), PART))
    entropy = model.tokens(said)[1].tolist()
    while len(places) > most:
        behind = [entropy[p] for p in places[1:]]
        del places[1 + behind.index(min(behind))]
    found = []
    for place in places:
        asked = Said((*said.prompt, *said.answer[:place], *bits(FORCE)), bits(gold + CLOSING))
        found.append((place, math.exp(math.fsum(model.tokens(asked)[0].tolist()))))
    return found


def divided(values: list[tuple[int, float]], length: int, right: bool, advantage: float) -> list[float]:
    """The advantage of each token of an answer with these values."""
    value = [v for _, v in values]
    gained = [after - before for before, after in zip(value, [*value[1:], 1.0 if right else 0.0], strict=True)]
    least = 0.1 * max(abs(g) for g in gained)
    sizes = [max(g if advantage > 0 else -g, 0.0) + least for g in gained]
    places = [place for place, _ in values]
    ends = [*places[1:], length]
    by_token = [size for size, a, b in zip(sizes, places, ends, strict=True) for _ in range(b - a)]
    return [advantage * size / mean(by_token) if len(values) > 1 else advantage for size in by_token]


@pytest.mark.parametrize(("micro", "most"), [(20, 8), (4, 2), (1, 3)])
def test_every_gradient_is_that_of_the_formula(
    micro: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_world(tmp_path)
    monkeypatch.setattr(CreditMarker, "_lines", thirds)
    monkeypatch.setattr(cuts, "LEAST_START", 0.0)  # a model with random weights knows no forced text
    credit = {"method": "rredcot", "force": FORCE, "segments": most}
    train: dict[str, Any] = {"steps": 2, "credit": credit, "alive_by": "reward", "inner_epochs": 2}
    changes: dict[str, Any] = {"train": train, "sample": {"micro_batch": micro}}
    recipe = recipe_of(tmp_path, "cuts", changes)
    # what is right is the gold's text, what pays is the other verifier: the answers of random weights are never right
    data = recipe.model_dump(by_alias=True)
    data["verify"] = {
        "gold": {"kind": "exact", "primary": True, "weight": 1e-9, "options": {"extract": "whole"}},
        **data["verify"],
    }
    data["verify"]["v"]["primary"] = False
    recipe = type(recipe).model_validate(data)
    batches = list[list[Completion]]()
    value = cuts.CutValues.valued

    def watched(self: Any, trainer: Any, before: Any, out: Any, *places: Any) -> Any:
        found = value(self, trainer, before, out, *places)
        batches.append([c for group in found.groups for c in group.completions])
        return found

    monkeypatch.setattr(cuts.CutValues, "valued", watched)
    seen = run_here(recipe, tmp_path)
    case = Case.of(recipe.model_copy(update={"train": recipe.train.model_copy(update={"credit": None})}))
    model, worst, moved = Plain(seen.config, 1.0), 0.0, 0
    for batch, said in enumerate(seen.said):
        updates = [u for u in seen.updates if u.batch == batch]
        records = seen.records[batch]
        old = model.take(updates[0].weights).logps(said)
        rewards = [math.nan if r["reward"] is None else r["reward"] for r in records]
        whole = group_advantages([rewards[i : i + 4] for i in range(0, 20, 4)], case.method)
        flat = [a for group in whole for a in group]
        advantages = []
        for one, a, record, made in zip(said, flat, records, batches[batch], strict=True):
            advantages.append([0.0] * len(one.answer))
            if a:
                wanted = valued(model, one, record["answer"], most)
                got = [(turn.start, turn.value or 0.0) for turn in made.marks]
                assert [place for place, _ in got] == [place for place, _ in wanted]
                if len(wanted) > 1:
                    assert [v for _, v in got] == pytest.approx([v for _, v in wanted], rel=2e-5)
                # differences of these values lose digits in float32: from here on by those of the run
                advantages[-1] = divided(got, len(one.answer), record["outcome"] == "right", a)
            moved += len({round(x, 6) for x in advantages[-1]}) > 1
            assert record["advantage"] == pytest.approx(mean(advantages[-1]) if one.answer else 0.0, abs=1e-5)
        for at, update in enumerate(updates):
            model.take(update.weights)
            answers = _answers(model, said, old, old, advantages, [False] * 20, case)
            want = model.gradient(_loss(answers, _micro([seen], batch, at), case.method, 1))
            worst = max(worst, apart(update.gradients, want))
    assert moved > 10
    assert worst <= 2e-6, worst
