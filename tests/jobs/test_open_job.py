"""Train, eval and probe work with the same judge, the same rows, the same prompts and an engine that can generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.jobs.evaluate import measure_model
from grpo_cli.jobs.open_job import open_job
from grpo_cli.jobs.probe import run_probe
from grpo_cli.measure.probe import ProbeSize
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import model_source
from grpo_cli.resilience.model_source import ModelSource
from grpo_cli.rollout.vllm import server
from tests.builders.workplaces import Told, tiny_recipe

ROWS = [{"question": f"{i}+1=?", "answer": str(i + 1)} for i in range(6)]
SIZE = ProbeSize(4, 4)


def evaluated(recipe: Recipe, folder: Path, told: Told) -> Any:
    return measure_model(ModelSource("builtin:tiny", recipe, folder, None), told.display, seed=0)


def test_a_probe_has_each_row_judged_by_the_verifier_that_it_names(tmp_path: Path) -> None:
    rows = [row | {"kind": "math" if i % 2 else "half"} for i, row in enumerate(ROWS)]
    verify = {"math": {}, "half": {"kind": "regex", "pattern": "[a-m]"}}
    recipe = tiny_recipe(tmp_path, rows, verify=verify, combine={"method": "by", "by": "kind"})
    found = run_probe(recipe, tmp_path, Told().display, SIZE).run
    assert len(found.records) == 16
    assert {tuple(record.verdicts) for record in found.records} == {("math",), ("half",)}
    assert all(list(record.verdicts) == [record.fields["kind"]] for record in found.records)


def test_eval_drops_the_held_out_rows_that_training_drops_and_says_so(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, ROWS, [*ROWS[:5], {"question": "9" * 800, "answer": "9"}])
    told = Told()
    assert evaluated(recipe, tmp_path, told).sampled.pass_1.n == 5
    assert [text for text in told.notes if text.startswith("dropped 1 of 6 rows: prompts over 504 tokens")]


def test_eval_drops_rows_over_the_limit_of_the_recipe(tmp_path: Path) -> None:
    held_out = [*ROWS[:5], {"question": "9" * 100, "answer": "9"}]
    recipe = tiny_recipe(tmp_path, ROWS, held_out, data={"max_prompt_tokens": 60})
    assert evaluated(recipe, tmp_path, Told()).sampled.pass_1.n == 5


@pytest.mark.parametrize("command", ["eval", "probe"])
def test_a_recipe_for_vllm_is_measured_without_it_and_what_generates_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(server, "_installed", lambda name: False)
    recipe, told = tiny_recipe(tmp_path, ROWS, ROWS, sample={"engine": "vllm"}), Told()
    if command == "eval":
        assert evaluated(recipe, tmp_path, told).sampled.pass_1.n == 6
    else:
        assert len(run_probe(recipe, tmp_path, told.display, SIZE).run.records) == 16
    assert "generating with `graph`, not `vllm`: the package `vllm` is not installed" in told.notes


def test_a_probe_samples_as_a_training_step_would(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, ROWS, sample={"top_k": 1})
    texts: dict[str, set[str]] = {}
    for record in run_probe(recipe, tmp_path, Told().display, SIZE).run.records:
        texts.setdefault(record.row, set()).add(record.completion)
    assert len(texts) == 4 and all(len(found) == 1 for found in texts.values())


def test_prompts_are_made_with_the_options_of_the_chat_template_that_training_uses(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, ROWS, train={"trl": {"chat_template_kwargs": {"thinks": True}}})
    with open_job(recipe, tmp_path, Told().display) as place:
        place.policy.tokenizer.chat_template = "{% if thinks %}think{% endif %}{{ messages[0]['content'] }}"
        assert place.policy.decode([place.policy.encode(place.train.rows[0])]) == ["think0+1=?"]


def test_the_engine_reads_the_weights_in_place_and_is_made_once(tmp_path: Path) -> None:
    with open_job(tiny_recipe(tmp_path, ROWS), tmp_path, Told().display) as place:
        assert place.engine is place.engine
        assert place.engine.kind == ENGINES["graph"]
        assert place.held_out is None and len(place.train.rows) == 6
        assert place.policy.device == torch.device("cpu") and place.policy.context == 512


def test_random_weights_without_a_warm_up_are_said(tmp_path: Path) -> None:
    told = Told()
    with open_job(tiny_recipe(tmp_path, ROWS), tmp_path, told.display) as place:
        place.warm_up()
    assert told.notes == ["`builtin:tiny` has random weights and the recipe no `warmup`"]


def test_what_a_judge_warns_of_is_said_before_anything_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = {"regex": {"warnings": ["no seccomp"], "tier": "process"}}
    monkeypatch.setattr("grpo_cli.reward.judge.Judge.sandboxes", lambda self: weak)
    told = Told()
    evaluated(tiny_recipe(tmp_path, ROWS, ROWS), tmp_path, told)
    assert told.notes[0] == "`regex` runs model code in tier `process`: no seccomp"


def test_a_bad_gold_among_held_out_rows_is_named(tmp_path: Path) -> None:
    held_out = [*ROWS[:3], {"question": "?", "answer": None}]
    recipe = tiny_recipe(tmp_path, ROWS, held_out, verify={"math": {}}, data={"on_bad_gold": "drop"})
    told = Told()
    assert evaluated(recipe, tmp_path, told).sampled.pass_1.n == 3
    assert any(text.startswith("eval: dropped 1 of 4 rows with a bad gold, first") for text in told.notes)


def test_a_model_by_name_is_loaded_with_the_type_and_attention_of_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("grpo_cli.policy.model.load_model", lambda spec, **_: asked.append(spec))
    model = {"path": "own/model", "dtype": "bfloat16", "attention": "eager", "revision": "v1", "lora": {"r": 2}}
    recipe = tiny_recipe(tmp_path, ROWS, model=model)
    model_source.open_model(ModelSource("other/model", recipe, None, None), torch.device("cpu"))
    model_source.open_model(ModelSource("own/model", recipe, None, None), torch.device("cpu"))
    other, own = asked
    assert (other.path, other.dtype, other.attention) == ("other/model", "bfloat16", "eager")
    assert (other.revision, other.lora, own.revision, own.lora) == (None, None, "v1", None)


SHAPED = {"shaping": {"language": {"options": {"script": "GREEK", "free": 0.0}}}}


@pytest.mark.parametrize(
    ("changes", "all_equal"),
    [
        ({}, True),
        (SHAPED, True),
        (SHAPED | {"train": {"alive_by": "reward"}}, False),
        ({"train": {"control": "format_only"}}, True),
        ({"train": {"control": "random"}}, False),
    ],
    ids=["verifiers", "shaping", "shaping alone", "format only", "random"],
)
def test_a_probe_calls_rewards_equal_where_training_would_pay_the_same(
    tmp_path: Path, changes: dict[str, Any], all_equal: bool
) -> None:
    verify = {"half": {"kind": "regex", "pattern": "nowhere in any text"}}
    recipe = tiny_recipe(tmp_path, ROWS, verify=verify, **changes)
    found = run_probe(recipe, tmp_path, Told().display, ProbeSize(4, 16)).run
    assert (found.probe.equal_rewards == 1.0) is all_equal
