"""Every page of `grpo explain`: no name leads to a traceback, each form of a page says something."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import grpo_cli
from grpo_cli.app import app
from grpo_cli.data.filters import FILTERS
from grpo_cli.jobs.explain.rows import FILTER_EXAMPLES, PAGES
from grpo_cli.jobs.explain.rows import describe as describe_rows
from grpo_cli.jobs.explain.subjects import (
    REMEDIES,
    SUBJECTS,
    describe_verifier,
    find,
    in_words,
    key_names,
    render_verifier,
    rules,
)
from grpo_cli.jobs.explain.subjects import describe_finding as describe
from grpo_cli.jobs.explain.subjects import describe_key as key_page
from grpo_cli.jobs.explain.subjects import render_finding as render
from grpo_cli.text import strict_json
from grpo_verifiers import KINDS


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.title for subject in SUBJECTS])
def test_every_name_has_a_page_and_data(subject: object) -> None:
    known = next(one for one in SUBJECTS if one is subject)
    for name in known.names():
        described = known.describe(name)
        page = known.render(described)
        assert page.strip() and "Traceback" not in page and "\x1b" not in page, name
        assert json.loads(strict_json(described)), name


def test_all_things_of_one_name_are_said() -> None:
    said = CliRunner().invoke(app, ["explain", "sft"])
    assert said.exit_code == 0
    assert "example  train: {method: sft}" in said.output and "a recipe" not in said.output.splitlines()[0]
    data = json.loads(CliRunner().invoke(app, ["explain", "json", "--json"]).output)
    assert data["kind"] == "json" and data["also"][0]["page"] == "json"


def test_every_key_can_be_asked_for_by_its_path() -> None:
    for path in set(key_names().values()):
        assert "keys" in [subject.title for subject in find(path)]


def test_every_code_that_a_run_can_say_has_a_page_with_its_remedy() -> None:
    package = Path(grpo_cli.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in (package / "findings").glob("*.py"))
    said = set(re.findall(r"[\"(\[ ](W\d\d)\b", source))
    assert said == set(rules()) == set(REMEDIES)
    for code in rules():
        assert f"remedy     {REMEDIES[code][:20]}" in render(describe(code))


def test_the_keys_that_remedies_name_are_keys() -> None:
    free = ("shaping.",)
    named = {
        word
        for text in REMEDIES.values()
        for word in re.findall(r"`((?:[a-z]+)(?:\.[a-z_]+)+)", text)
        if not word.startswith(free)
    }
    assert named <= set(key_names().values())


@pytest.mark.parametrize(
    ("code", "when"),
    [
        ("W20", "during the run and after it"),
        ("W49", "during the run and after it"),
        ("W45", "during the run and after it"),
        ("W52", "by `grpo doctor RUN` and in the report"),
        ("W60", "by `grpo doctor RUN` and in the report"),
    ],
)
def test_a_finding_says_when_it_is_looked_for(code: str, when: str) -> None:
    assert describe(code)["when"] == when


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_types_of_options_are_in_words_of_a_recipe(kind: str) -> None:
    described = describe_verifier(kind)
    for option in described["options"]:
        assert not re.search(r"\b(?:Literal|None|str|int|float|bool|dict|Any)\b|list\[|[A-Z]", in_words(option["type"]))
    page = render_verifier(described)
    assert "Literal[" not in page and "default None" not in page


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("Literal['a', 'b'] | None", "a | b"),
        ("str | list[str]", "text | list of text"),
        ("dict[str, Any]", "mapping"),
        ("list[float] | None", "list of number"),
        ("bool", "true | false"),
    ],
)
def test_a_type_in_words(python: str, words: str) -> None:
    assert in_words(python) == words


def test_the_page_of_verify_names_what_every_verifier_takes() -> None:
    keys = key_page("verify")["keys"]
    assert list(keys) == [f"verify.NAME.{key}" for key in ("kind", "weight", "primary", "right_at")]
    assert all(keys.values())


def test_every_filter_has_an_example_that_works() -> None:
    assert set(FILTER_EXAMPLES) == set(FILTERS)
    for name in FILTERS:
        (example,) = describe_rows(name)["examples"]
        assert re.search(rf"\| *{name}\b", example["template"]) and example["refused"] is None
        assert describe_rows(name)["summary"]


def test_the_pages_of_rows_show_what_is_given_and_what_is_refused() -> None:
    for name in PAGES:
        examples = describe_rows(name)["examples"]
        assert all((one["gives"] is None) is (one["refused"] is not None) for one in examples)
    templates = {one["template"]: one for one in describe_rows("templates")["examples"]}
    assert templates["{answer | after('####') | number}"]["gives"] == "42"
    assert "did you mean `answer`?" in templates["{anwser}"]["refused"]
    assert describe_rows("messages")["examples"] == describe_rows("chat")["examples"]
    chats = describe_rows("chat")["examples"]
    assert [message["role"] for message in chats[1]["gives"]] == ["system", "user"]
    assert sum(one["refused"] is not None for one in chats) == 3
