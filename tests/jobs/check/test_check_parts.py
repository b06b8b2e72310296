from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data import sources
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.errors import DataError, Exit, Mistake, SetupError
from grpo_cli.jobs.check.cost import check_memory, check_time
from grpo_cli.jobs.check.findings import CheckFinding, Level, exit_code, failed
from grpo_cli.jobs.check.model import check_model
from grpo_cli.jobs.check.prompts import PromptLengths, histogram
from grpo_cli.jobs.check.reading import read_rows
from grpo_cli.jobs.check.recipe import RecipeCheck, check_likeness
from grpo_cli.jobs.check.tokens import UnknownTokens, full_prompt_maker, prompt_maker
from grpo_cli.policy.loading.files import model_files
from grpo_cli.policy.loading.sizes import local_sizes, read_sizes
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Model, Recipe
from tests.builders.data_builders import Data, Source, question, row, write_lines
from tests.loop.recipes import small_recipe

TINY = Model(path="builtin:tiny")


def finding(level: Level, code: Exit = Exit.DATA) -> CheckFinding:
    return CheckFinding("x", level, "", code=code)


@pytest.mark.parametrize(
    ("prompt", "level", "said"),
    [
        (None, Level.OK, "1 pairs of 1 rows"),
        ("What is that?", Level.FAIL, "pairs.jsonl:1: 1 of 1 pairs are of rows that the recipe does not train on"),
    ],
)
def test_a_file_of_pairs_is_held_against_the_rows(tmp_path: Path, prompt: str | None, level: Level, said: str) -> None:
    recipe = load(str(small_recipe(tmp_path)), ["train.method=prefer", "prefer.data=pairs.jsonl"])
    first = load_rows(recipe.data, "train")[0]
    line = {"prompt": prompt or first.prompt, "chosen": "1", "rejected": "2"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(line))
    (found,) = [one for one in RecipeCheck(recipe, tmp_path).findings() if one.check == "prefer.data"]
    assert found.level is level and said in found.message, found.message


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([finding(Level.OK), finding(Level.NOTE), finding(Level.UNKNOWN)], 0),
        ([finding(Level.WARN)], 1),
        ([finding(Level.WARN), finding(Level.FAIL)], 3),
        ([finding(Level.FAIL), finding(Level.FAIL, Exit.SETUP)], 4),
    ],
)
def test_the_worst_finding_gives_the_exit_code(findings: list[CheckFinding], code: int) -> None:
    assert exit_code(findings) == code


def test_a_failure_keeps_its_code_and_shows_ten_mistakes() -> None:
    assert failed("x", SetupError("no sandbox", hint="do")).code == Exit.SETUP
    many = failed("x", DataError([Mistake(f"a:{i}", "bad") for i in range(12)]))
    assert many.message == "12 mistakes"
    assert (many.lines[0], many.lines[-1], len(many.lines)) == ("a:0: bad", "… and 2 more", 11)


def test_few_rows_are_all_looked_at(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(i) for i in range(30)])
    read = read_rows(Data([Source("a.jsonl")]), "train", tmp_path, most=30)
    assert (len(read.rows), read.total, read.is_exact, read.is_sample) == (30, 30, True, False)


def test_a_long_file_is_counted_and_sampled_over_its_whole_length(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(i) for i in range(20_000)])
    read = read_rows(Data([Source("a.jsonl")]), "train", tmp_path, most=100)
    assert (read.total, read.is_exact, read.how) == (20_000, True, "spread evenly")
    assert 80 <= len(read.rows) <= 120
    lines = [int(r.place.split(":")[1]) for r in read.rows]
    assert lines[0] < 500 and lines[-1] > 19_500


def test_a_broken_line_among_the_sampled_ones_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"oops, this is no JSON\n" * 40_000)
    with pytest.raises(DataError) as caught:
        read_rows(Data([Source("a.jsonl")]), "train", tmp_path, most=100)
    assert 80 <= len(caught.value.mistakes) <= 120


def test_limit_and_skip_bound_the_sample(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(i) for i in range(20_000)])
    read = read_rows(Data([Source("a.jsonl", skip=5_000, limit=1_000)]), "train", tmp_path, most=100)
    assert read.total == 1_000
    assert all(5_001 <= int(r.place.split(":")[1]) <= 6_000 for r in read.rows)


def test_other_files_are_read_from_the_front_and_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\n" + "q,1\n" * 50)
    read = read_rows(Data([Source("a.csv")]), "train", tmp_path, most=20)
    assert (len(read.rows), read.total, read.is_exact, read.how) == (20, 20, False, "the first 20")


def test_a_weight_counts_in_the_total(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(i) for i in range(10)])
    assert read_rows(Data([Source("a.jsonl", weight=2.5)]), "train", tmp_path, most=99).total == 25


def test_the_histogram_holds_every_count_in_at_most_nine_bars() -> None:
    counts = [1, 1, 2, 90, 1000]
    lines = histogram(counts)
    assert len(lines) <= 9
    assert sum(int(line.split()[-1].replace(",", "")) for line in lines) == len(counts)
    assert histogram([7]) == ("7   ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ 1",)


def test_quantiles_are_counts_that_occur() -> None:
    lengths = PromptLengths.of([4, 1, 3, 2], 4)
    assert (lengths.quantile(0.5), lengths.quantile(0.95), lengths.quantile(0.0), lengths.mean) == (2, 4, 1, 2.5)


def test_a_sample_of_prompts_says_of_how_many() -> None:
    from grpo_cli.jobs.check.prompts import check_lengths
    from grpo_cli.recipe.sections.recipe import Recipe

    recipe = Recipe.model_validate(
        {"model": "x", "data": {"train": "a.jsonl", "prompt": "{q}"}, "verify": {"math": {}}, "train": {"steps": 1}}
    )
    found = check_lengths(PromptLengths.of([5, 9, 700], 30), recipe, context=1_000)
    assert found.level is Level.WARN
    assert found.message == (
        "3 of 30 prompts 9 tokens at the median, p95 700, longest 700;"
        " 1 of 3 are over 488 (context 1,000 - `sample.max_tokens`) and dropped"
    )


def test_token_counts_are_those_of_transformers(tmp_path: Path) -> None:
    from grpo_cli.policy.model import byte_tokenizer
    from grpo_cli.policy.tokens import encode

    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    rows = [row("412+989=?"), row("wie grün?"), row("\\boxed{1}")]
    expected = [len(encode(tokenizer, one)) for one in rows]
    assert prompt_maker(TINY).counts(rows) == expected
    saved = Model(path=str(tmp_path))
    assert prompt_maker(saved).counts(rows) == expected


def test_token_counts_are_those_of_the_chat_template_with_its_options(tmp_path: Path) -> None:
    from grpo_cli.policy.model import byte_tokenizer
    from grpo_cli.policy.tokens import encode

    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% if thinks %}think {% endif %}{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(tmp_path)
    saved, rows, chat = Model(path=str(tmp_path)), [row("412+989=?")], {"thinks": True}
    expected = [len(encode(tokenizer, one, chat)) for one in rows]
    assert prompt_maker(saved, chat).counts(rows) == expected
    assert full_prompt_maker(saved, chat).counts(rows) == expected
    assert prompt_maker(saved).counts(rows) == [expected[0] - len("think ")]


def test_a_model_that_lies_nowhere_has_unknown_tokens() -> None:
    with pytest.raises(UnknownTokens, match=r"no `tokenizer.json`"):
        prompt_maker(Model(path="nobody/nothing-here"))


def test_chat_rows_need_a_chat_template(tmp_path: Path) -> None:
    from grpo_cli.policy.tiny import byte_level

    byte_level().save(str(tmp_path / "tokenizer.json"))
    maker = prompt_maker(Model(path=str(tmp_path)))
    with pytest.raises(SetupError, match="no chat template"):
        maker.counts([row("x")])
    assert maker.counts([Row("x", "abc", None, {})]) == [3]


def test_parameters_are_added_up_as_the_model_has_them() -> None:
    from grpo_cli.policy.model import byte_tokenizer, tiny_llama

    sizes = read_sizes(TINY, model_files(TINY))
    assert sizes is not None
    model = tiny_llama(byte_tokenizer(), seed=0)
    assert sizes.parameters == sum(p.numel() for p in model.parameters()) == 357_984


def test_adapter_parameters_are_those_of_peft() -> None:
    from grpo_cli.policy.model import attach_lora, byte_tokenizer, tiny_llama
    from grpo_cli.recipe.sections.recipe import Lora

    sizes = read_sizes(TINY, model_files(TINY))
    adapted = attach_lora(tiny_llama(byte_tokenizer(), seed=0), Lora(r=4))
    assert sizes is not None
    assert sizes.lora_parameters(4) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def test_safetensors_headers_count_before_the_config_does(tmp_path: Path) -> None:
    from grpo_cli.policy.model import byte_tokenizer, tiny_llama

    tiny_llama(byte_tokenizer(), seed=0).save_pretrained(tmp_path)
    model = Model(path=str(tmp_path))
    sizes = read_sizes(model, model_files(model))
    assert sizes is not None
    assert (sizes.parameters, sizes.source, sizes.context) == (357_984, "safetensors headers", 512)


def test_a_config_of_another_kind_gives_no_sizes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"n_embd": 12}))
    model = Model(path=str(tmp_path))
    assert read_sizes(model, model_files(model)) is None


def test_held_out_rows_among_the_training_rows_are_a_warning() -> None:
    duplicates, overlap = check_likeness([row("a b c d"), row("e f g h")], [row("a b c d")], "2 training rows")
    assert duplicates.level is Level.OK
    assert (overlap.level, overlap.data["exact"]) == (Level.WARN, 1)
    assert overlap.message == "1 exact of 1 held-out rows stand among 2 training rows"


def test_check_counts_against_the_context_that_vllm_is_started_with() -> None:
    from grpo_cli.jobs.check.prompts import check_lengths
    from grpo_cli.recipe.sections.recipe import Recipe

    recipe = Recipe.model_validate(
        {
            "model": "x",
            "data": {"train": "a.jsonl", "prompt": "{q}"},
            "verify": {"math": {}},
            "sample": {"engine": "vllm", "vllm": {"max_model_length": 600}},
            "train": {"steps": 1},
        }
    )
    found = check_lengths(PromptLengths.of([5, 9, 100], 3), recipe, context=1_000)
    assert "1 of 3 are over 88 (context 600 - `sample.max_tokens`)" in found.message


def test_a_question_that_a_run_could_learn_by_heart_is_warned_of() -> None:
    from grpo_cli.data.rows import Row
    from grpo_cli.jobs.check.findings import Level
    from grpo_cli.jobs.check.recipe import check_contradictions, check_exposure

    one = [Row("0", "one", None, {"answer": 1}, "rows.jsonl:1")]
    found = check_exposure(one, draws=400)
    assert found.level is Level.WARN
    assert found.data == {"draws": 400, "most_copies": 1, "repeated": 0, "exposed": 1}
    many = [Row(str(i), f"question {i}", None, {"answer": i}) for i in range(100)]
    assert check_exposure(many, draws=4000).level is Level.OK
    (finding,) = check_contradictions([*one, Row("1", "ONE", None, {"answer": 2}, "rows.jsonl:2")], "all")
    assert finding.level is Level.WARN
    assert finding.lines == ("rows.jsonl:1 says 1 and rows.jsonl:2 says 2",)
    (finding,) = check_contradictions(many, "all")
    assert finding.level is Level.OK


def test_the_form_in_which_a_function_takes_completions_is_named(tmp_path: Path) -> None:
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from tests.builders.workplaces import tiny_recipe

    (tmp_path / "forms.py").write_text(
        "def chat(completions, **kw):\n    return [float(len(c[0]['content'])) for c in completions]\n"
        "def text(completions, **kw):\n    return [2.0 if c.startswith('x') else -1.0 for c in completions]\n"
    )
    said = {
        name: {"kind": "python", "function": f"{tmp_path}/forms.py:{name}", "right_at": 2} for name in ("chat", "text")
    }
    recipe = tiny_recipe(tmp_path, [{"question": f"{i}+{i}"} for i in range(8)], verify=said)
    found = {one.check: " ".join(one.lines) for one in RecipeCheck(recipe, tmp_path).findings()}
    assert "message" in found["verify.chat"]
    assert "takes completions as texts" in found["verify.text"]


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"critic": {}}, "critic = 357,984 parameters of a copy x 16 B"),
        ({"critic": {"share": True}}, "critic = a head of "),
        ({"critic": {"from": "there"}}, "critic = `there`, whose size is not known here"),
    ],
)
def test_the_memory_of_a_critic_is_counted_beside_the_policys(
    train: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *address: asked.append(address))
    monkeypatch.setattr(sources, "_found", {})
    for name in sources.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    recipe = ppo(train)
    sizes = read_sizes(recipe.model, model_files(recipe.model))
    assert sizes is not None
    lines = check_memory(recipe, sizes, plan(recipe, 64), None).lines
    assert any(said in line for line in lines)
    plain = ppo({"critic": None, "algorithm": "grpo"})
    assert not any("critic" in line for line in check_memory(plain, sizes, plan(plain, 64), None).lines)
    assert not asked


def test_a_critic_that_is_an_adapter_counts_by_its_base_where_that_is_here(tmp_path: Path) -> None:
    for named, known in (("builtin:tiny", True), (str(tmp_path / "gone"), False)):
        (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": named, "r": 4}))
        assert (local_sizes(Model(path=str(tmp_path))) is not None) is known


def test_a_critic_from_a_folder_that_is_not_there_is_found_before_the_run(tmp_path: Path) -> None:
    found = list(check_model(ppo({"critic": {"from": str(tmp_path / "no-such")}})))
    assert [f.check for f in found] == ["critic"] and found[0].code == Exit.SETUP
    assert "no-such" in found[0].message
    assert [f.check for f in check_model(ppo({"critic": {}}))] == ["model"]


def ppo(train: dict[str, Any]) -> Recipe:
    data = {"train": "a.jsonl", "prompt": "{question}", "answer": "{answer}"}
    both = {"steps": 4, "algorithm": "ppo", **train}
    return Recipe.model_validate(
        {"grpo": 1, "model": "builtin:tiny", "data": data, "verify": {"exact": {}}, "train": both}
    )


def test_the_time_counts_the_evaluations(tmp_path: Path) -> None:
    sizes = read_sizes(TINY, model_files(TINY))
    recipe = load(str(small_recipe(tmp_path)), [])
    batches = plan(recipe, 20)
    assert sizes is not None
    without = check_time(recipe, sizes, batches, None, 0)
    found = check_time(recipe, sizes, batches, None, 8)
    # 4 steps, `every: 3`, 2 samples and greedy: three evaluations of 24 completions of 12 tokens
    assert found.data["evaluated_tokens"] == 3 * 24 * 12 == found.data["tokens"] - without.data["tokens"]
    assert found.data["flops"] - without.data["flops"] == 3 * 24 * 12 * sizes.parameters * 2
    assert "3 evaluations draw 72 completions" in " ".join(found.lines)
    assert "evaluations" not in " ".join(without.lines)
