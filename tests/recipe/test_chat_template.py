"""`model.chat_template`, `model.template_args` and `data.prefill` as a recipe says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import chat_options

TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}\n"
RECIPE = """\
model: {path: builtin:tiny, MODEL}
data: {train: rows.jsonl, prompt: "{question}", DATA}
verify: {math: {}}
train: {steps: 1}
"""


def written(folder: Path, model: str = "dtype: auto", data: str = "plain: false", more: str = "") -> Path:
    file = folder / "r.yaml"
    file.write_text(RECIPE.replace("MODEL", model).replace("DATA", data) + more)
    return file


def test_a_file_beside_the_recipe_is_put_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "chat.jinja").write_text(TEMPLATE)
    recipe = load(written(tmp_path / "in", "chat_template: chat.jinja"))
    assert recipe.model.chat_template == TEMPLATE
    (tmp_path / "again.yaml").write_text(to_yaml(recipe))
    (tmp_path / "in" / "chat.jinja").unlink()
    assert load(tmp_path / "again.yaml").model == recipe.model, "a run goes on without the file"


def test_a_file_named_by_a_recipe_below_lies_beside_that_one(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "chat.jinja").write_text(TEMPLATE)
    written(tmp_path / "base", "chat_template: chat.jinja")
    (tmp_path / "top.yaml").write_text("extends: base/r.yaml\ntrain: {steps: 2}\n")
    assert load(tmp_path / "top.yaml").model.chat_template == TEMPLATE


def test_with_set_the_file_counts_from_here_and_text_stays_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    file = written(tmp_path)
    assert load(file, ["model.chat_template=mine.jinja"]).model.chat_template == TEMPLATE
    said = "{{ messages[0].content }}"
    assert load(file, [f"model.chat_template={said}"]).model.chat_template == said


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        ("chat_template: gone.jinja", "plain: false", "`gone.jinja` cannot be read: no such file"),
        ("chat_template: r.txt", "plain: false", "`r.txt` is no template"),
        ("chat_template: '{{ messages }}'", "plain: true", "`model.chat_template` has no effect with `data.plain"),
        ("template_args: {a: 1}", "plain: true", "`model.template_args` has no effect with `data.plain"),
        ("template_args: {tools: []}", "plain: false", "`tools` comes from the rows"),
        ("dtype: auto", "prefill: 'It is {answer}'", "`data.prefill` would tell the gold"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, model: str, data: str, words: str) -> None:
    (tmp_path / "r.txt").write_text("no braces\n")
    with pytest.raises(RecipeError) as caught:
        load(written(tmp_path, model, data))
    (mistake,) = caught.value.mistakes
    assert words in mistake.message and "r.yaml:" in mistake.place


def test_both_names_of_the_arguments_are_one_thing_and_not_said_twice(tmp_path: Path) -> None:
    trl = "  trl: {chat_template_kwargs: {enable_thinking: false}}\n"
    recipe = load(written(tmp_path, more="").with_name("r.yaml"), ["model.template_args.enable_thinking=false"])
    assert chat_options(recipe) == {"enable_thinking": False}
    old = tmp_path / "old.yaml"
    old.write_text((tmp_path / "r.yaml").read_text().replace("train: {steps: 1}\n", f"train:\n  steps: 1\n{trl}"))
    assert chat_options(load(old)) == {"enable_thinking": False}
    with pytest.raises(RecipeError, match="says what the chat template gets"):
        load(old, ["model.template_args.x=1"])


def test_a_prefill_takes_columns_and_keeps_other_braces(tmp_path: Path) -> None:
    from grpo_cli.data.rows import load_rows

    (tmp_path / "rows.jsonl").write_text('{"question": "q", "answer": "1", "topic": "sums"}\n')
    recipe = load(written(tmp_path, data="prefill: 'On {topic}: \\boxed{'"))
    (row,) = load_rows(recipe.data, "train", tmp_path)
    assert row.prefill == "On sums: \\boxed{" and row.prompt == "q"


@pytest.mark.parametrize(("text", "says"), [('{"a": 1, "a": 2}', "key `a` is said twice"), ('{"a": 1', "is no JSON")])
def test_options_as_json_that_cannot_be_meant_are_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "model: m\ndata: {train: a.jsonl, eval: b.jsonl, prompt: '{q}'}\nverify: {math: {}}\n"
        f"train: {{steps: 1, trl: {{chat_template_kwargs: '{text}'}}}}\n"
    )
    with pytest.raises(RecipeError, match=says):
        chat_options(load(file))
