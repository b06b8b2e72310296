"""What an `environment` may not stand beside, and the verifier that its outcome becomes."""

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe

BASE = 'model: some/model\ndata: {train: a.jsonl, prompt: "{question}"}\nenvironment: env.py:Grid\ntrain: {steps: 10}\n'


def read(tmp_path: Path, *sets: str, text: str = BASE) -> Recipe:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    return load(file, sets)


def test_a_plain_word_is_the_class_and_its_outcome_is_what_right_means(tmp_path: Path) -> None:
    recipe = read(tmp_path)
    assert recipe.environment is not None
    assert recipe.environment.python == "env.py:Grid"
    assert {name: (one.kind, one.primary) for name, one in recipe.verify.items()} == {
        "environment": ("environment", True)
    }


def test_a_verifier_beside_it_is_added_to_the_outcome_and_its_weight_may_be_said(tmp_path: Path) -> None:
    recipe = read(tmp_path, "verify.regex.pattern=x")
    assert [(name, one.primary) for name, one in recipe.verify.items()] == [("regex", True), ("environment", False)]
    recipe = read(tmp_path, "verify.outcome={kind: environment, weight: 2, right_at: 0.5}")
    assert list(recipe.verify) == ["outcome"]
    assert recipe.verify["outcome"].weight == 2


TOOLS = BASE.replace("environment: env.py:Grid", "environment: {tools: [a.py:add, python]}\nverify: math")


def test_tools_have_their_answer_judged_and_no_outcome_of_their_own(tmp_path: Path) -> None:
    recipe = read(tmp_path, text=TOOLS.replace("verify: math", "verify: {math: }"))
    assert recipe.environment is not None
    assert (recipe.environment.kind, recipe.environment.speaks_as) == ("tools", "tool")
    assert list(recipe.verify) == ["math"]
    lone = read(tmp_path, text=BASE.replace("env.py:Grid", "{tools: a.py:add}") + "verify: {math: }\n")
    assert lone.environment is not None
    assert lone.environment.named == ("a.py:add",)
    foreign = read(tmp_path, text=BASE.replace("env.py:Grid", "{verifiers: some-id}"))
    assert (foreign.environment and foreign.environment.kind, list(foreign.verify)) == ("verifiers", ["environment"])
    trl = read(tmp_path, text=BASE.replace("env.py:Grid", "{trl: a.py:Game}"))
    assert list(trl.verify) == ["environment"]


@pytest.mark.parametrize(
    ("world", "part"),
    [
        ("{tools: [a.py:add]}", "functions say nothing of how good an answer is"),
        ("{tools: [add], max_turns: 3}", "`add` is not `FILE.py:FUNCTION`, `MODULE:FUNCTION` or `python`"),
        ("{trl: Game}", "`Game` is not `FILE.py:CLASS` or `MODULE:CLASS`"),
        ("{trl: a.py:Game, role: user}", "results of tools have the role `tool`"),
        ("{trl: a.py:Game, python: a.py:Grid}", "`environment` has `python` and `trl`"),
        ("{max_turns: 3}", "`environment` has no world"),
        ("{mcp: {a: {command: [x]}}}", "tools say nothing of how good an answer is"),
        ("{mcp: {a: {command: [x]}}, python: a.py:A}", "`mcp` adds tools, and a world of `python` has none"),
        ("{mcp: {a: {}}, trl: a.py:A}", "`a` has neither `command` nor `url`"),
        ("{mcp: {a: {command: [x], url: 'http://h/mcp'}}, trl: a.py:A}", "`a` has both `command` and `url`"),
        ("{mcp: {a: {url: 'h/mcp'}}, trl: a.py:A}", "`h/mcp` is no address"),
        ("{mcp: {a.b: {command: [x]}}, trl: a.py:A}", "`a.b` is no name"),
        ("{mcp: {a: {command: [x], header_env: {A: B}}}, trl: a.py:A}", "`header_env` is for an address"),
        ("{python: a.py:A, scope: episode}", "`environment.scope` has no effect without `mcp`"),
        ("{openenv: Echo}", "`Echo` is not `http://HOST:PORT` or `MODULE:CLASS`"),
        ("{harness: {command: x, score: a.py:f}, interpreter: python}", "a `harness` names its interpreter"),
        ("{verifiers: some-id, interpreter: python}", "plays its own tasks, and the rows are others"),
        ("{verifiers: 'm:load', interpreter: python}", "is a function that loads an environment of 0.1 to 0.3"),
        ("{tools: []}", "must not be empty"),
    ],
)
def test_what_a_world_cannot_be_made_of_is_told(tmp_path: Path, world: str, part: str) -> None:
    with pytest.raises(RecipeError) as told:
        read(tmp_path, text=BASE.replace("env.py:Grid", world))
    assert part in str(told.value)


def test_a_recipe_without_either_still_lacks_a_verifier(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="`verify` is missing"):
        read(tmp_path, text=BASE.replace("environment: env.py:Grid\n", ""))


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        (["environment=Grid"], "is not `FILE.py:CLASS`"),
        (["environment.history=last"], "a row is one whole episode"),
        (["environment.turn_tokens=600"], "`sample.max_tokens` of the whole episode only 512"),
        (["data.plain=true"], "has no turns"),
        (["sample.engine=transformers"], "from one stream"),
        (["sample.engine=vllm", "sample.vllm.mode=server"], "takes no seed and no limit for each turn"),
        (["sample.engine=vllm", "sample.vllm.tensor_parallel_size=2"], "to be at the same turn"),
        (["sample.engine=vllm", "sample.vllm.enable_sleep_mode=true"], "be sent the weights, for each turn"),
        (["train.select=screen"], "goes on with it later"),
        (["environment.max_turn=3"], "unknown key `max_turn`"),
        (["environment.max_turns=0"], "must be above 0"),
        (["environment.role=system"], "must be one of user, tool"),
        (["environment=null", "verify.regex.pattern=x", "warmup={steps: 1, lr: 1}"], "demonstration` is missing"),
        (["model.context=1024"], "`model.context` is that of `builtin:tiny`"),
        (["environment=null", "verify.e.kind=environment"], "and the recipe has none"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, sets: list[str], part: str) -> None:
    with pytest.raises(RecipeError) as err:
        read(tmp_path, *sets)
    assert part in str(err.value)


def test_vllm_in_the_same_process_plays_episodes(tmp_path: Path) -> None:
    assert read(tmp_path, "sample.engine=vllm", "sample.vllm.mode=colocate").sample.engine == "vllm"


HARNESS = BASE.replace("env.py:Grid", "{harness: python agent.py}") + "verify: {math: }\n"
SCORED = BASE.replace("env.py:Grid", "{harness: {command: a b, pass: [question], score: 's.py:f'}}")


def test_a_harness_is_judged_by_its_last_line_or_by_a_score(tmp_path: Path) -> None:
    recipe = read(tmp_path, text=HARNESS)
    assert recipe.environment is not None and recipe.environment.harness is not None
    assert (recipe.environment.kind, recipe.environment.named) == ("harness", ("python agent.py",))
    assert list(recipe.verify) == ["math"]
    assert list(read(tmp_path, text=SCORED).verify) == ["environment"]
    assert list(read(tmp_path, text=SCORED + "verify: {math: }\n").verify) == ["math", "environment"]
    again = to_yaml(recipe)
    assert to_yaml(read(tmp_path, text=again)) == again


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        (["verify=null"], "nothing says how good an episode of this program is"),
        (["environment.harness.command='a \"b'"], "is no command line"),
        (["environment.harness.command=' '"], "has no words"),
        (["environment.harness.score=f"], "is not `FILE.py:FUNCTION`"),
        (["environment.python=a.py:B"], "`environment` has `python` and `harness`"),
        (["environment.options={a: 1}"], "a `harness` plays by itself"),
        (["environment.invalid_penalty=1"], "a `harness` plays by itself"),
        (["environment.endpoint.max_rows=0"], "must be above 0"),
        (["environment.endpoint.train_rows=some"], "must be one of main, all"),
        (["train.credit=gigpo"], "turns are credited within one"),
        (["train.algorithm=ppo"], "a critic reads one"),
        (["train.kl.beta=0.1"], "averaged one by one"),
        (["train.algorithm=gspo"], "its ratio would be of one"),
        (["train.trl.entropy_coef=0.1"], "averaged one by one"),
        (["sample.engine=vllm", "sample.vllm.mode=colocate"], "with limits of their own"),
        (["warmup={steps: 1, lr: 1}"], "of which it shows none"),
        (["train.method=prefer"], "would learn what the environment said too"),
    ],
)
def test_what_cannot_go_with_a_harness_is_refused(tmp_path: Path, sets: list[str], part: str) -> None:
    with pytest.raises(RecipeError) as err:
        read(tmp_path, *sets, text=HARNESS)
    assert part in str(err.value)


def test_keys_of_the_endpoint_without_a_harness_have_no_effect(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="has no effect without a `harness`"):
        read(tmp_path, "environment.endpoint.max_rows=3")


TASKS = BASE.replace("env.py:Grid", "{verifiers: some-id, interpreter: py, options: {a: 1}}").replace(
    "a.jsonl", '"verifiers:some-id"'
)


def test_the_tasks_of_a_taskset_are_listed_as_they_are_played(tmp_path: Path) -> None:
    recipe = read(
        tmp_path,
        "data.eval=verifiers:some-id",
        "data.train={from: 'verifiers:some-id', options: {size: 9}}",
        text=TASKS,
    )
    world, of_world = recipe.environment, {"interpreter": "py", "options": {"a": 1}}
    assert world is not None and world.is_taskset and world.plays_itself and list(recipe.verify) == ["environment"]
    assert recipe.data.train[0].options == of_world | {"size": 9}
    assert recipe.data.eval is not None and recipe.data.eval.options == of_world  # type: ignore[union-attr]
    # what a run keeps is read as it was: its run goes on with the recipe itself
    (tmp_path / "kept.yaml").write_text(to_yaml(read(tmp_path, text=TASKS)))
    assert load(tmp_path / "kept.yaml") == read(tmp_path, text=TASKS)
    bare = TASKS.replace(", options: {a: 1}", "")
    (tmp_path / "kept.yaml").write_text(to_yaml(read(tmp_path, text=bare)))
    assert load(tmp_path / "kept.yaml") == read(tmp_path, text=bare)
    for refused in ("train.credit=gigpo", "environment.role=tool", "train.kl.beta=0.1"):
        with pytest.raises(RecipeError, match="a taskset"):
            read(tmp_path, refused, text=TASKS)
    with pytest.raises(RecipeError, match="are tasks, and the environment is no taskset"):
        read(tmp_path, "data.train=verifiers:some-id")


@pytest.mark.parametrize("file", sorted(Path("examples/worlds").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_recipes_of_worlds_nobody_here_wrote_are_short_and_load(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 20
    assert load(file).environment is not None
