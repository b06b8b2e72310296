"""What `grpo check` knows of episodes: what they take at most, and that the template goes on turn by turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.rows import load_rows
from grpo_cli.jobs.check.episodes import check_episodes
from grpo_cli.jobs.check.findings import CheckFinding
from grpo_cli.jobs.check.recipe import RecipeCheck
from grpo_cli.jobs.check.tokens import prompt_maker
from grpo_cli.recipe.sections.recipe import Recipe, WarmupPhase
from tests.builders.workplaces import tiny_recipe
from tests.policy.test_turns import FORGETS, NO_TOOLS
from tests.rollout.episodes.test_tools import TEMPLATE


def found(template: str | None = None, max_tokens: int = 200, **world: Any) -> CheckFinding | None:
    recipe = Recipe.model_validate(
        {
            "model": {"path": "builtin:tiny", "chat_template": template},
            "data": {"train": {"from": "tasks:keydoor", "limit": 4}, "prompt": "{question}"},
            "environment": {"python": "environments:keydoor", "workers": 1, **world},
            "sample": {"max_tokens": max_tokens},
            "train": {"steps": 1},
        }
    )
    rows = load_rows(recipe.data, "train")
    return next(check_episodes(prompt_maker(recipe.model), rows, recipe, Path()), None)


def test_it_says_what_an_episode_takes_at_most() -> None:
    one = found(max_turns=10, turn_tokens=3)
    assert one is not None
    assert (one.level, one.data) == ("ok", {"max_turns": 10, "between": 8, "budget": 200, "most": 102, "prompt": 27})
    assert (
        "at most 102 tokens behind prompts of at most 27 tokens with what `reset` says; `sample.max_tokens` is 200"
        in one.message
    )
    tight = found(max_turns=30, turn_tokens=3)
    assert tight is not None
    assert tight.level == "note"
    assert "cut and count as truncated" in tight.hint
    free = found(max_turns=10)
    assert free is not None
    assert "`sample.max_tokens` 200 ends them" in free.message


def test_a_template_that_forgets_is_refused_with_its_name() -> None:
    one = found(FORGETS)
    assert one is not None
    assert one.level == "fail"
    assert "the chat template of `builtin:tiny` does not keep what was said before" in one.message
    assert "environment.role: tool" in one.hint
    refused = found(NO_TOOLS, role="tool")
    assert refused is not None
    assert "cannot render a `tool` message" in refused.message


def test_a_class_that_is_not_there_is_a_finding() -> None:
    one = found(python="environments:keydor")
    assert one is not None
    assert one.level == "fail"
    assert "unknown world `environments:keydor`; did you mean `keydoor`?" in one.message


SHOWS_SCHEMAS = TEMPLATE.replace("t.function.name", "t | tojson")
TOOLS = Path(__file__).parents[2] / "environments" / "tools" / "my_tools.py"


def checked(folder: Path, context: int = 4096, **sections: Any) -> tuple[dict[str, CheckFinding], RecipeCheck]:
    model = {"path": "builtin:tiny", "chat_template": SHOWS_SCHEMAS, "context": context}
    rows = [{"question": question, "answer": "5", "goal": 5} for question in ("2+3", "1+1+3")]
    verify: dict[str, Any] = {"numeric": {}}
    check = RecipeCheck(tiny_recipe(folder, rows, model=model, verify=verify, **sections), folder)
    return {finding.check: finding for finding in check.findings()}, check


def test_prompts_are_counted_with_the_schemas_of_the_tools(tmp_path: Path) -> None:
    bare, _ = checked(tmp_path)
    with_tools, check = checked(tmp_path, environment={"tools": [f"{TOOLS}:add"], "workers": 1})
    assert check.sample_row is not None
    shown = check.maker.prompts.text(check.sample_row)
    assert "Add two whole numbers." in shown
    schema = shown.split("<|user|>")[0]
    one = with_tools["tokens"].data
    assert one["max"] == bare["tokens"].data["max"] + len(check.maker.encodes.ids([schema], True)[0])
    assert one["n"] == 2
    short, _ = checked(tmp_path, context=256, environment={"tools": [f"{TOOLS}:add"], "workers": 1})
    assert short["tokens"].level == "fail"
    assert "every prompt is over 248 tokens" in short["tokens"].message


def test_prompts_of_a_trl_class_are_counted_with_its_methods(tmp_path: Path) -> None:
    bare, _ = checked(tmp_path)
    found, check = checked(tmp_path, environment={"trl": f"{TOOLS}:Counter", "workers": 1})
    assert found["tokens"].data["max"] > bare["tokens"].data["max"]
    assert check.sample_row is not None and check.sample_row.tools


WORLD = """
class World:
    def reset(self, row, seed):
        if row["goal"] < 0:
            raise ValueError("no way there")
        return "!" * row["goal"]

    def step(self, action):
        return {"done": True}
"""


def begun(folder: Path, goals: list[int], context: int = 1024, **data: Any) -> dict[str, CheckFinding]:
    (folder / "world.py").write_text(WORLD)
    rows = [{"question": "go", "answer": "5", "goal": goal} for goal in goals]
    world = {"python": "world.py:World", "workers": 1, "turn_tokens": 4, "max_turns": 2}
    recipe = tiny_recipe(folder, rows, model={"path": "builtin:tiny", "context": context}, environment=world, verify={})
    recipe = Recipe.model_validate(recipe.model_dump() | {"data": recipe.data.model_dump() | data})
    return {finding.check: finding for finding in RecipeCheck(recipe, folder).findings()}


def test_what_reset_says_counts_towards_the_longest_prompt(tmp_path: Path) -> None:
    plain, told = begun(tmp_path, [0, 0]), begun(tmp_path, [0, 100])
    assert told["tokens"].data["max"] == plain["tokens"].data["max"] + 100
    assert told["episodes"].data["prompt"] == told["tokens"].data["max"]
    assert "with what `reset` says" in told["episodes"].message
    assert "reset" not in plain["episodes"].message


def test_a_prompt_that_reset_makes_too_long_fails_for_it_would_end_the_run(tmp_path: Path) -> None:
    found = begun(tmp_path, [0, 1020, 0])
    assert found["tokens"].level == "fail"
    assert "train.jsonl:2: the prompt has 10" in found["tokens"].message
    assert "tokens with what the environment says at the start; with" in found["tokens"].message
    assert "let `reset` say less" in found["tokens"].hint


def test_the_limit_of_prompts_is_that_of_the_rows_alone(tmp_path: Path) -> None:
    found = begun(tmp_path, [0, 100], max_prompt_tokens=60)
    assert (found["tokens"].level, found["tokens"].data["over"]) == ("ok", 0)


def test_a_later_row_that_the_world_cannot_begin_with_is_found(tmp_path: Path) -> None:
    found = begun(tmp_path, [0, 0, 0, -1])
    assert found["episodes"].level == "fail"
    assert "raised ValueError: no way there" in found["episodes"].message
    assert "tokens" not in found


def test_the_row_that_is_shown_is_what_the_model_sees(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(WORLD)
    rows = [{"question": "go", "answer": "5", "goal": 3}]
    check = RecipeCheck(
        tiny_recipe(tmp_path, rows, environment={"python": "world.py:World", "workers": 1}, verify={}), tmp_path
    )
    list(check.findings())
    assert check.sample_row is not None
    assert "go!!!" in check.maker.prompts.text(check.sample_row)


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        ("raise ValueError(action)", "`step` of `World` raised ValueError"),
        ("return b'done'", "returned a bytes"),
        ("return 'x' * 1_000_000", "returned 1,000,000 characters"),
        ("while True: pass", "took longer than `environment.timeout_s`"),
    ],
)
def test_a_step_without_an_answer_is_a_warning_with_its_reason(tmp_path: Path, slip: str, said: str) -> None:
    (tmp_path / "world.py").write_text(WORLD.replace('return {"done": True}', slip))
    rows = [{"question": "go", "answer": "5", "goal": 3}]
    world = {"python": "world.py:World", "workers": 1, "timeout_s": 0.5}
    recipe = tiny_recipe(tmp_path, rows, environment=world, verify={})
    found = {finding.check: finding for finding in RecipeCheck(recipe, tmp_path).findings()}
    assert found["episodes"].level == "warn"
    assert said in found["episodes"].message
    assert "\n" not in found["episodes"].message
    assert found["tokens"].level == "ok"


@pytest.mark.parametrize(("draws", "said"), [("row['goal']", True), ("seed % 1000", False)])
def test_few_demonstrations_that_are_shown_often_are_noted(draws: str, said: bool, tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "class World:\n"
        f"    def reset(self, row, seed):\n        self.goal = {draws}\n        return str(self.goal)\n"
        "    def step(self, action):\n        return {'reward': 1.0, 'done': True}\n"
        "    def demonstrate(self):\n        return str(self.goal)\n"
    )
    world = {"python": f"{tmp_path}/w.py:World", "workers": 1}
    phase = WarmupPhase.model_validate({"steps": 21, "lr": 1e-3, "batch": 2})
    rows = [{"question": "q", "goal": i} for i in range(2)]
    recipe = tiny_recipe(tmp_path, rows, environment=world, verify={}).model_copy(update={"warmup": [phase]})
    notes = [
        one for one in RecipeCheck(recipe, tmp_path).findings() if one.check == "warmup[0]" and one.level == "note"
    ]
    assert [one.message for one in notes] == [
        "2 demonstrations, each shown 21 times: they will be learned by heart"
    ] * said


AGENT = """\
import json, os, random, sys, urllib.request
question = json.load(sys.stdin)["question"]
def ask(*messages):
    body = json.dumps({"messages": [{"role": role, "content": text} for role, text in messages]}).encode()
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    answer = urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, key))
    return json.load(answer)["choices"][0]["message"]["content"]
said = ask(("user", question))
LINE
print(said)
"""


@pytest.mark.parametrize(
    ("line", "level", "part", "data"),
    [
        (
            'ask(("user", question), ("assistant", said), ("user", "x"))',
            "ok",
            "asks 2 times",
            {"rows": 1, "repeats": True},
        ),
        ('ask(("user", question), ("assistant", "no"), ("user", "x"))', "ok", "in 2 rows (history 1)", {"rows": 2}),
        ("said = random.random()", "note", "asks 1 times", {"repeats": False}),
        ("sys.exit('no such tool')", "warn", "ended with code 1: no such tool", {"requests": 1}),
    ],
)
def test_a_harness_is_tried_twice_on_the_first_row(line: str, level: str, part: str, data: Any, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT.replace("LINE", line))
    recipe = Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": {"from": "tasks:addition3", "limit": 4}, "prompt": "{question}", "answer": "{answer}"},
            "environment": {"harness": {"command": "python agent.py", "pass": ["question"]}},
            "verify": {"numeric": {}},
            "train": {"steps": 1},
        }
    )
    rows = load_rows(recipe.data, "train")
    (one,) = check_episodes(prompt_maker(recipe.model), rows, recipe, tmp_path)
    assert (one.level, part in one.message) == (level, True), one
    assert one.data is not None and one.data.items() >= data.items()


def test_a_program_that_is_not_there_is_a_finding() -> None:
    one = found(python=None, harness={"command": "no-such-agent"})
    assert one is not None and (one.level, "no program `no-such-agent`" in one.message) == ("fail", True)
