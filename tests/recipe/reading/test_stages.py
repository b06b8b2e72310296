"""What a recipe with stages means, and where its mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import stage_recipe, to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe

BASE = """\
model: builtin:tiny
data: {train: "tasks:addition3", prompt: "{question}"}
verify: {math: {}}
train: {steps: 10, algorithm: gspo}
warmup: {demonstration: "{worked}", steps: 5, lr: 1e-3}
stages:
"""


def read(folder: Path, stages: str) -> Recipe:
    (folder / "r.yaml").write_text(BASE + stages)
    return load(folder / "r.yaml")


def stage(recipe: Recipe, at: int) -> Recipe:
    return stage_recipe(recipe, at, start=Path("w") if at else None, folder=Path("out"))


CHAIN = """\
  - {name: one}
  - {name: two, train: {algorithm: rloo, steps: 3}, sample: {group: 4}}
  - {name: three, train: {method: prefer}, prefer: {loss: ipo}}
  - {name: four, from: base, train: {method: sft}, sft: [{data: "run:two", steps: 2, lr: 1e-3}, {data: "run:one", steps: 5, lr: 1e-4}]}
"""


def test_a_stage_lies_over_the_recipe_and_fills_its_own_method(tmp_path: Path) -> None:
    recipe = read(tmp_path, CHAIN)
    one, two, three, four = (stage(recipe, at) for at in range(4))
    assert one.train.inner_epochs == 4 and one.warmup and one.model.path == "builtin:tiny"
    assert two.train.baseline == "leave_one_out" and two.train.inner_epochs == 1 and two.train.steps == 3
    assert two.sample.group == 4 and two.warmup is None and two.model.path == "w" and one.sample.group == 8
    assert three.prefer is not None and three.prefer.loss == "ipo" and two.prefer is None
    assert four.sft and four.train.steps == 7 and four.warmup and four.prefer is None
    assert [phase.data.source for phase in four.sft if phase.data] == ["run:out/stage-2-two", "run:out/stage-1-one"]
    assert (two.run.dir, two.run.name) == ("out", "stage-2-two")


def test_what_is_read_back_from_a_run_means_the_same(tmp_path: Path) -> None:
    recipe = read(tmp_path, CHAIN)
    (tmp_path / "resolved.yaml").write_text(to_yaml(recipe))
    again = load(tmp_path / "resolved.yaml")
    assert again == recipe
    assert [to_yaml(stage(again, at)) for at in range(4)] == [to_yaml(stage(recipe, at)) for at in range(4)]


@pytest.mark.parametrize(
    ("stages", "place", "said"),
    [
        ("  - {name: one, smaple: {group: 4}}\n", "r.yaml:7", "unknown key `smaple`"),
        ("  - {name: one}\n  - {name: two, sample: {group: 1}}\n", "r.yaml:8:33", "a group of 1 is its own mean"),
        ("  - {name: one}\n  - {name: one}\n", "r.yaml:8", "two stages are named `one`"),
        ("  - {name: a/b}\n", "r.yaml:7", "cannot be named"),
        ("  - {name: -rf}\n", "r.yaml:7", "cannot be named"),
        ("  - {name: one, run: {keep: 3}}\n", "r.yaml:7", "say it outside `stages`"),
        ("  - {name: one, from: first}\n", "r.yaml:7", "`stages.0.from`"),
        ("  - {name: one, train: {method: sft}}\n", "r.yaml:7", "has no demonstrations"),
        ("  - {name: one, prefer: {loss: dpo}}\n", "r.yaml:7", "`prefer` has no effect"),
        ("  - {train: {steps: 1}}\n", "r.yaml:7", "name` is missing"),
        ("  []\n", "r.yaml", "must not be empty"),
    ],
)
def test_a_mistake_in_a_stage_has_its_place(tmp_path: Path, stages: str, place: str, said: str) -> None:
    with pytest.raises(RecipeError) as wrong:
        read(tmp_path, stages)
    text = wrong.value.render()
    assert place in text and said in text
