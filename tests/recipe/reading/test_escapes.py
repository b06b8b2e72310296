r"""Escapes of double quotes that eat TeX (`"\boxed"`, `"\text"`, `"\neq"`) are refused at their place; what is meant stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import parse, shipped_recipes
from grpo_cli.recipe.sections.recipe import Recipe

BASE = """\
model: some/model
data: {{train: a.jsonl, eval: b.jsonl, prompt: {prompt}}}
verify: {{math: {{}}}}
train: {{steps: 10}}
"""


def recipe_file(folder: Path, prompt: str) -> Path:
    file = folder / "r.yaml"
    file.write_text(BASE.format(prompt=prompt))
    return file


EATEN = {
    r"\boxed": 8, r"\begin": 8, r"\beta": 8, r"\bar": 8, r"\alpha": 7, r"\angle": 7, r"\frac": 12, r"\forall": 12, r"\vec": 11,
    r"\varphi": 11, r"\epsilon": 27, r"\end": 27, r"\exp": 27, r"\0": 0, r"\N": 0x85, r"\_": 0xA0, r"\Lambda": 0x2028,
    r"\Longrightarrow": 0x2028, r"\Pi": 0x2029, r"\Pr": 0x2029, r"\text": 9, r"\textbf": 9, r"\times": 9, r"\theta": 9, r"\tan": 9,
    r"\to": 9, r"\tfrac": 9, r"\neq": 10, r"\nu": 10, r"\ne": 10, r"\not": 10, r"\nabla": 10, r"\notin": 10, r"\right": 13,
    r"\rho": 13, r"\rangle": 13,
}  # fmt: skip


@pytest.mark.parametrize("command", EATEN)
def test_a_command_that_an_escape_would_eat_is_refused_where_it_stands(command: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load(recipe_file(tmp_path, f'"{{question}} {command} x"'))
    (mistake,) = caught.value.mistakes
    column = (tmp_path / "r.yaml").read_text().split("\n")[1].index(command) + 1
    assert mistake.place.endswith(f"r.yaml:2:{column}") and "^^" in mistake.source
    assert f"is U+{EATEN[command]:04X}" in mistake.message and "single quotes" in mistake.message


@pytest.mark.parametrize("command", [r"\sqrt", r"\pi", r"\d+", r"\xi", r"\underline", r"\Upsilon", r"\(", r"\{"])
def test_what_is_no_escape_at_all_is_refused_with_the_same_advice(command: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load(recipe_file(tmp_path, f'"{{question}} {command} x"'))
    assert "single quotes, or two backslashes" in str(caught.value)


MEANT = {
    r'"a\nb"': "a\nb", r'"Question:\nnow say it\tonce\r\n"': "Question:\nnow say it\tonce\r\n", r'"\n\nuse \\boxed"': "\n\nuse \\boxed",
    r'"\\text and \\\\neq"': "\\text and \\\\neq", r'"\x08oxed"': "\boxed", r'"\x0Aeq"': "\neq", r'"\u2028ambda"': "\u2028ambda",
    r"'\boxed and \text'": "\\boxed and \\text", r"\boxed and \neq": "\\boxed and \\neq", '"tab\there"': "tab\there", r'"\" \/ \ x"': '" /  x',
}  # fmt: skip


@pytest.mark.parametrize("written", MEANT)
def test_what_is_meant_stays(written: str) -> None:
    doc = parse(f"a: {written}\n", "r.yaml")
    assert doc.mistakes == [] and doc.data == {"a": MEANT[written]}


def test_every_text_of_a_recipe_is_looked_at_and_every_place_named() -> None:
    text = r"""
model: {path: some/model}
data: {train: a.jsonl, prompt: "x \boxed", system: "y \frac", prefill: "\theta", demonstration: [{template: "\beta"}]}
verify: {format: {tags: ["\alpha"]}, regex: {pattern: "\bfoo\b"}}
sample: {stop: ["\end{document}", "a
  \vec"]}
other: {"\rho": 1}
again: &a "\neq"
twice: [*a, *a]
"""
    mistakes = parse(text, "r.yaml").mistakes
    lines = text.split("\n")
    eaten = ["boxed", "frac", "theta", "beta", "alpha", "bfoo", "b", "end", "vec", "rho", "neq"]
    assert [m.message.split("`")[1] for m in mistakes] == [f"\\{word}" for word in eaten]
    for mistake, word in zip(mistakes, eaten, strict=True):
        line, column = map(int, mistake.place.split(":")[1:])
        assert lines[line - 1][column - 1 :].startswith(f"\\{word}")


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (r'data.prompt="{question} \boxed{{}}"', r"`\boxed` in double quotes"),
        (r'data.prompt="{question} \sqrt"', "two backslashes"),
        (r'sample.stop=["\neq"]', r"`\neq` in double quotes"),
        ("data.prompt={question} \boxed{{}}", r"U+0008 where `\boxed` was meant"),
        ("data.prompt={question} \x0crac", r"U+000C where `\frac` was meant"),
        ("data.prompt={question} \text", r"U+0009 where `\text` was meant"),
        ("sample.stop=[a\x07lpha]", r"U+0007 where `\alpha` was meant"),
    ],
)
def test_flags_are_looked_at_too_also_where_the_shell_has_read_the_escape(flag: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load(recipe_file(tmp_path, "'{question}'"), [flag])
    (mistake,) = caught.value.mistakes
    assert says in mistake.message and mistake.place.startswith("--set ")


def test_a_flag_with_plain_backslashes_is_text(tmp_path: Path) -> None:
    file = recipe_file(tmp_path, "'{question}'")
    flags = {
        r"{question} \boxed{{}} \text": r"{question} \boxed{{}} \text",
        r'"{question}" \neq "x"': r'"{question}" \neq "x"',
    }
    for typed, meant in flags.items():
        assert load(file, [f"data.prompt={typed}"]).data.prompt == meant


def test_a_recipe_written_as_json_is_read_alike() -> None:
    text = json.dumps({"prompt": "a \boxed"})
    assert r"`\boxed` in double quotes" in parse(text, "r.json").mistakes[0].message
    assert parse(json.dumps({"prompt": r"a \boxed"}), "r.json").mistakes == []


PIECES = [
    "\n",
    "\t",
    "\r",
    "u",
    "eq",
    "ext",
    " ",
    "\\boxed",
    "\\",
    '"',
    "'",
    "\x85",
    "\u2028",
    "\xa0",
    "é",
    "heta",
    "{question}",
]


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_what_a_run_writes_down_is_read_back_as_it_was(text: str) -> None:
    recipe = Recipe.model_validate(
        {
            "model": {"path": "some/model"},
            "data": {"train": [{"from": "a.jsonl"}], "eval": {"from": "b.jsonl"}, "prompt": "{question}" + text},
            "verify": {"math": {"kind": "math"}},
            "train": {"steps": 10},
        }
    )
    doc = parse(to_yaml(recipe), "r.yaml")
    assert doc.mistakes == [] and doc.data["data"]["prompt"] == "{question}" + text


def test_no_shipped_recipe_is_refused() -> None:
    assert len(shipped_recipes()) > 5
    for file in shipped_recipes().values():
        assert parse(file.read_text(), str(file)).mistakes == []
