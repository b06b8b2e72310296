import io
import sys
from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import find, label_of, shipped_recipes

SHIPPED = sorted(shipped_recipes())
OFFLINE = ["countdown", "quickstart", *(name for name in SHIPPED if name.startswith("smollm2-"))]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_recipe_loads_and_its_resolved_text_loads_back_equal(name: str, tmp_path: Path) -> None:
    recipe = load(name)
    written = tmp_path / f"{name}.yaml"
    written.write_text(to_yaml(recipe), encoding="utf-8")
    assert load(written) == recipe


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_recipe_says_what_it_needs_and_whether_it_was_run(name: str) -> None:
    head = find(name).read_text(encoding="utf-8").split("\n\n")[0]
    assert head.startswith(f"# {name}: ")
    for word in ("hardware", "minutes", "expect", "run here"):
        assert f"\n# {word}  " in head, word


@pytest.mark.parametrize("name", SHIPPED)
def test_a_recipe_that_was_never_trained_stands_apart_and_says_so(name: str) -> None:
    file = find(name)
    ran = next(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# run here"))
    assert ("never trained here" in ran) == (file.parent.name == "unverified")


@pytest.mark.parametrize("name", OFFLINE)
def test_the_rows_of_a_recipe_that_needs_no_network_pass_their_own_verifiers(name: str) -> None:
    from grpo_cli.data.audit import audit_golds
    from grpo_cli.data.rows import load_rows
    from grpo_verifiers import build

    recipe = load(name, ["data.train.limit=8", "data.eval.limit=8"])
    verifiers = {key: build(one.kind, **one.options) for key, one in recipe.verify.items()}
    try:
        for which in ("train", "eval"):
            rows = load_rows(recipe.data, which, find(name).parent)
            assert len(audit_golds(rows, verifiers, "error").rows) == 8
    finally:
        for verifier in verifiers.values():
            verifier.close()


def test_the_quickstart_is_the_measured_one() -> None:
    recipe = load("quickstart")
    assert (recipe.model.path, recipe.sample.prompts, recipe.sample.group) == ("builtin:tiny", 32, 8)
    assert (recipe.sample.max_tokens, recipe.sample.temperature) == (40, 0.8)
    assert (recipe.train.steps, recipe.train.lr, recipe.train.lr_warmup_steps) == (40, 5e-4, 3)
    assert recipe.warmup is not None
    skill, habit = recipe.warmup
    assert (skill.steps, skill.lr, skill.muon_lr, skill.batch) == (230, 3e-3, 0.015, 40)
    assert (habit.steps, habit.lr, habit.muon_lr) == (30, 2e-3, 0.005)
    assert [d.weight for d in habit.demonstration] == [0.75, 0.25]


def test_a_recipe_is_found_by_path_first_and_by_name_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("quickstart") == shipped_recipes()["quickstart"]
    (tmp_path / "quickstart").write_text("model: x\n")
    assert find("quickstart") == Path("quickstart")


def test_a_recipe_comes_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    text = find("quickstart").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert load("-") == load("quickstart")


def test_a_file_too_large_is_no_recipe(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_text("#" * 300_000)
    with pytest.raises(RecipeError, match="too large"):
        load(file)


def test_missing_keys_are_placed_in_the_file_even_where_it_has_no_line_to_show(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("{}\n")
    with pytest.raises(RecipeError) as caught:
        load(tmp_path / "r.yaml")
    assert {m.place for m in caught.value.mistakes} == {str(tmp_path / "r.yaml")}


def test_an_infinite_option_is_still_infinite_when_the_resolved_recipe_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "model: a/b\ndata: {train: {from: tasks:countdown, options: {most: .inf}}, prompt: '{{question}}'}\n"
        "verify: {math: {}}\ntrain: {steps: 1}\n"
    )
    recipe = load(tmp_path / "r.yaml")
    (tmp_path / "again.yaml").write_text(to_yaml(recipe))
    assert load(tmp_path / "again.yaml") == recipe


@pytest.mark.parametrize(
    "sets",
    [
        ["train.method=prefer"],
        ["train.method=prefer", "prefer.data=pairs.jsonl"],
        ["train.method=sft", "sft={data: run:a, steps: 3, lr: 1e-4}"],
        ["train.credit=gigpo", "environment=environments:keydoor"],
        ["train.credit={method: milestones, patterns: {a: b}}"],
        ["train.credit=planner", "environment=environments:keydoor"],
        ["train.trl.lr_scheduler_type=cosine_with_restarts"],
        ["environment={tools: [python]}"],
        ["train.algorithm=ppo"],
    ],
    ids=" ".join,
)
def test_the_recipe_of_a_run_which_says_every_key_loads_as_the_one_it_was_written_of(
    tmp_path: Path, sets: list[str]
) -> None:
    recipe = load("quickstart", sets)
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe))
    assert load(tmp_path / "recipe.yaml") == recipe


@pytest.mark.parametrize(
    ("sets", "key"),
    [
        (["train.method=prefer"], "train.loss=grpo"),
        (["train.method=prefer", "prefer.data=pairs.jsonl"], "prefer.pairs_a_row=2"),
        (["train.credit=gigpo", "environment=environments:keydoor"], "train.credit.reward=2"),
        (["train.trl.lr_scheduler_type=cosine_with_restarts"], "train.schedule=constant"),
    ],
)
def test_a_key_without_effect_is_a_mistake_in_the_recipe_of_a_run_too(
    tmp_path: Path, sets: list[str], key: str
) -> None:
    (tmp_path / "recipe.yaml").write_text(to_yaml(load("quickstart", sets)))
    with pytest.raises(RecipeError) as refused:
        load(tmp_path / "recipe.yaml", [key])
    (mistake,) = refused.value.mistakes
    assert key.partition("=")[0] in mistake.message


@pytest.mark.parametrize(
    ("name", "label"),
    [("quickstart", "quickstart"), ("a/gsm8k.v2.yaml", "gsm8k.v2"), ("mine/recipe.yaml", "mine"), ("-", "stdin")],
)
def test_runs_are_named_after_the_recipe_or_its_folder(name: str, label: str) -> None:
    assert label_of(name) == label


def test_a_recipe_in_this_folder_is_named_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chess").mkdir()
    monkeypatch.chdir(tmp_path / "chess")
    assert label_of("recipe.yaml") == label_of("../chess/recipe.yml") == "chess"
    monkeypatch.chdir("/")
    assert label_of("recipe.yaml") == "recipe"


def test_a_folder_means_the_recipe_in_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    with pytest.raises(RecipeError, match=r"is a folder without `recipe\.yaml`"):
        find(str(mine))
    (mine / "recipe.yaml").write_text("grpo: 1\n")
    assert find(str(mine)) == mine / "recipe.yaml" and label_of(str(mine)) == label_of(f"{mine}/") == "mine"


def test_the_folder_of_a_run_is_no_recipe(tmp_path: Path) -> None:
    for name in ("recipe.yaml", "run.json"):
        (tmp_path / name).write_text("")
    with pytest.raises(RecipeError, match="is a run, not a recipe") as caught:
        find(str(tmp_path))
    assert caught.value.hint == f"`--resume {tmp_path}` goes on with it"
