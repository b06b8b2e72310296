import os
from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import recipe_sha, to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe

BASE = """\
model: some/model
data: {train: a.jsonl, eval: b.jsonl, prompt: "{question}"}
verify: {math: {}}
train: {steps: 10}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "base.yaml"
    file.write_text(BASE)
    return file


def refused(file: Path, *sets: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        load(file, sets)
    return caught.value


def test_a_flag_overrides_and_is_typed_as_yaml(base: Path) -> None:
    recipe = load(base, ["train.lr=1e-6", "sample.group=4", "eval.k=[1, 2]", "data.on_bad_gold=drop"])
    assert (recipe.train.lr, recipe.sample.group, recipe.eval.k) == (1e-6, 4, [1, 2])
    assert recipe.data.on_bad_gold == "drop"


def test_a_flag_reaches_into_short_forms(base: Path) -> None:
    recipe = load(base, ["model.lora.r=8", "data.eval.limit=5", "data.train.limit=7", "verify.math.weight=2"])
    assert recipe.model.path == "some/model" and recipe.model.lora is not None
    assert recipe.data.eval is not None and recipe.data.eval.limit == 5
    assert recipe.data.train[0].limit == 7 and recipe.verify["math"].weight == 2


def test_a_flag_reaches_into_a_list_by_number(base: Path) -> None:
    recipe = load(base, ["data.train=[a.jsonl, b.jsonl]", "data.train.1.weight=3"])
    assert [source.weight for source in recipe.data.train] == [1.0, 3.0]


def test_a_template_in_a_flag_needs_no_quotes(base: Path) -> None:
    assert load(base, ["data.answer={answer}"]).data.answer == "{answer}"
    assert load(base, ["data.answer=null"]).data.answer is None


def test_a_later_flag_wins(base: Path) -> None:
    assert load(base, ["train.steps=1", "train.steps=2"]).train.steps == 2


@pytest.mark.parametrize("flag", ["sample.group", "=3", "sample..group=3", "a=[", "extends=x"])
def test_a_flag_that_is_none_is_quoted(base: Path, flag: str) -> None:
    assert refused(base, flag).mistakes[0].place == f"--set {flag}"


def test_a_wrong_value_in_a_flag_quotes_the_flag(base: Path) -> None:
    (mistake,) = refused(base, "sample.max_tokens=abc").mistakes
    assert mistake.place == "--set sample.max_tokens=abc"
    assert mistake.message == '`sample.max_tokens` must be a whole number, got "abc"'


def test_a_rule_broken_by_a_flag_quotes_the_flag(base: Path) -> None:
    assert refused(base, "sample.micro_batch=7").mistakes[0].place == "--set sample.micro_batch=7"


def test_an_overlay_changes_only_what_it_says(base: Path) -> None:
    over = base.with_name("over.yaml")
    over.write_text("extends: base.yaml\nmodel: {lora: {r: 4}}\nsample: {group: 4}\n")
    recipe, below = load(over), load(base)
    assert recipe.model.lora is not None and recipe.model.path == "some/model" and recipe.sample.group == 4
    assert recipe.data == below.data and recipe.extends is None


def test_overlays_chain_from_other_folders(base: Path) -> None:
    folder = base.parent / "sub"
    folder.mkdir()
    (folder / "one.yaml").write_text("extends: ../base.yaml\ntrain: {steps: 11}\n")
    top = folder / "two.yaml"
    top.write_text("extends: one.yaml\nsample: {group: 2}\n")
    assert (load(top).train.steps, load(top).sample.group) == (11, 2)


def test_a_circle_of_overlays_is_named(base: Path) -> None:
    base.with_name("a.yaml").write_text("extends: b.yaml\n")
    base.with_name("b.yaml").write_text("extends: a.yaml\n")
    assert "a circle: a.yaml -> b.yaml -> a.yaml" in refused(base.with_name("a.yaml")).mistakes[0].message


def test_a_missing_overlay_has_a_place_and_a_near_name(base: Path) -> None:
    top = base.with_name("top.yaml")
    top.write_text("extends: quickstrat\n")
    err = refused(top)
    assert err.mistakes[0].place == f"{top}:1:10" and "`quickstart`" in err.hint


def test_a_mistake_in_a_lower_layer_is_placed_there(base: Path) -> None:
    base.write_text(BASE + "sample: {groop: 3}\n")
    top = base.with_name("top.yaml")
    top.write_text("extends: base.yaml\nsample: {groups: 3}\n")
    places = [m.place for m in refused(top).mistakes]
    assert places == [f"{base}:5:10", f"{top}:2:10"]


def test_the_learning_rate_follows_lora_unless_said(base: Path) -> None:
    assert load(base).train.lr == 1e-6
    assert load(base, ["model.lora.r=8"]).train.lr == 1e-5
    assert load(base, ["model.lora.r=8", "train.lr=1"]).train.lr == 1


def test_the_first_verifier_is_primary_where_none_is_marked(base: Path) -> None:
    recipe = load(base, ["verify.second={kind: math, primary: true}"])
    assert [one.primary for one in recipe.verify.values()] == [False, True]
    assert load(base).verify["math"].primary


def test_a_recipe_cannot_be_changed_after_loading(base: Path) -> None:
    recipe = load(base)
    with pytest.raises(ValueError, match="frozen"):
        recipe.grpo = 1


def test_a_recipe_can_be_built_from_plain_data() -> None:
    data = {"model": "m", "data": {"train": "f", "prompt": "p"}, "verify": {"math": None}, "train": {"steps": 1}}
    recipe = Recipe.model_validate(data)
    assert recipe.data.train[0].source == "f" and recipe.verify["math"].kind == "math"
    assert recipe_sha(recipe) == recipe_sha(Recipe.model_validate(data))


def test_a_wrong_value_does_not_breed_more_mistakes(base: Path) -> None:
    assert len(refused(base, "data.train=[]").mistakes) == 1
    assert len(refused(base, "verify.math=[]").mistakes) == 1
    assert len(refused(base, "eval.samples=x", "eval.k=[8]").mistakes) == 1
    assert len(refused(base, "train=3").mistakes) == 1


def test_a_function_is_looked_for_beside_the_recipe_that_names_it(base: Path) -> None:
    folder = base.parent / "sub"
    folder.mkdir()
    (folder / "one.yaml").write_text("extends: ../base.yaml\nverify: {mine: {kind: python, function: a.py:f}}\n")
    top = base.with_name("top.yaml")
    top.write_text("extends: sub/one.yaml\n")
    recipe = load(top)
    assert recipe.verify["mine"].options["path"] == ["sub"]
    typed = load(base, ["verify.mine={kind: python, function: a.py:f}"])
    assert typed.verify["mine"].options["path"] == [os.path.relpath(Path.cwd(), base.parent)]
    moved = base.parent / "run" / "recipe.yaml"
    moved.parent.mkdir()
    moved.write_text(to_yaml(recipe))
    assert load(moved, base=base.parent) == recipe


@pytest.mark.parametrize(
    "said", ['{python: "a.py:f"}', "{python: {function: a.py:f, timeout_s: 9}}", "{python: a.py:f, weight: 0.5}"]
)
def test_a_function_may_stand_under_the_name_of_its_verifier(base: Path, said: str) -> None:
    recipe = load(base, [f"verify.mine={said}"])
    one = recipe.verify["mine"]
    assert (one.kind, one.options["function"]) == ("python", "a.py:f")
    assert one.weight == (0.5 if "weight" in said else 1.0)
    assert one.options.get("timeout_s") == (9 if "timeout_s" in said else None)
    file = base.with_name("short.yaml")
    file.write_text(f"extends: {base.name}\nverify: {{mine: {said}}}\n")
    assert load(file).verify["mine"].options["path"] == ["."]


@pytest.mark.parametrize("said", ["verify: {math: {}}", "verify: {math: }", "verify: {math: {weight: 2}}"])
def test_null_takes_out_a_verifier_of_a_layer_below(tmp_path: Path, said: str) -> None:
    base, over = tmp_path / "base.yaml", tmp_path / "over.yaml"
    base.write_text(BASE.replace("verify: {math: {}}", said))
    assert list(load(base, ["verify.math=null", "verify.exact={}"]).verify) == ["exact"]
    over.write_text("extends: base.yaml\nverify: {math: null, exact: {}}\n")
    assert list(load(over).verify) == ["exact"]
    assert list(load(base).verify) == ["math"]
    assert "`verify`" in str(refused(base, "verify.math=null").render())


def test_null_takes_out_a_shaping_term(base: Path) -> None:
    recipe = load(base, ["shaping.length={target: 3}", "shaping.length=null"])
    assert not recipe.shaping


def test_what_a_recipe_expects_is_not_what_one_that_extends_it_expects(tmp_path: Path) -> None:
    (tmp_path / "below.yaml").write_text(
        "grpo: 1\nmodel: builtin:tiny\ndata: {train: t.jsonl, eval: e.jsonl, prompt: q, answer: a}\nverify: {math: {}}\n"
        "train: {steps: 9}\neval: {samples: 8, expect: {step: 9, pass@1: [0.5, 0.7]}}\n"
    )
    (tmp_path / "own.yaml").write_text("extends: below.yaml\ntrain: {lr: 1e-3}\n")
    (tmp_path / "other.yaml").write_text("extends: below.yaml\neval: {expect: {step: 5, pass@1: [0.1, 0.2]}}\n")
    below, own, other = (load(tmp_path / f"{name}.yaml").eval for name in ("below", "own", "other"))
    assert below.expect is not None and below.expect.pass_1 == [0.5, 0.7]
    assert own.expect is None and own.samples == 8
    assert other.expect is not None and (other.expect.step, other.expect.pass_1) == (5, [0.1, 0.2])
