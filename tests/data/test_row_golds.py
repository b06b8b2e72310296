"""Golds, system turns and tools of rows: what the verifiers and the model get of a column that is no plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.errors import DataError, RecipeError
from grpo_verifiers import build
from tests.builders.data_builders import Data, Source, write_lines


def rows(folder: Path, lines: list[dict[str, Any]], **said: Any) -> list[Row]:
    write_lines(folder / "a.jsonl", lines)
    return load_rows(Data([Source("a.jsonl")], **said), "train", folder)


@pytest.mark.parametrize("gold", [["Paris", "City of Light"], '["Paris", "City of Light"]'])
@pytest.mark.parametrize("answer", ["{answer}", None])
@pytest.mark.parametrize("kind", ["exact", "math"])
def test_training_pays_any_item_of_a_gold_list(tmp_path: Path, kind: str, answer: str | None, gold: Any) -> None:
    found = rows(tmp_path, [{"question": "capital?", "answer": gold}], answer=answer)
    verifier = build(kind)
    audit_golds(found, {kind: verifier})
    for said in ("Paris", "City of Light"):
        assert verifier.verify(f"\\boxed{{{said}}}", found[0].fields).outcome == "right"
    assert verifier.verify("\\boxed{Rome}", found[0].fields).outcome == "wrong"


def test_a_nested_list_and_a_filtered_list_are_lists_too(tmp_path: Path) -> None:
    lines = [{"question": "q", "m": {"golds": ["a", "b"]}, "text": '{"golds": ["a", "b"]}'}]
    assert rows(tmp_path, lines, answer="{m.golds}")[0].fields["answer"] == ["a", "b"]
    assert rows(tmp_path, lines, answer="{text | json('golds')}")[0].fields["answer"] == ["a", "b"]
    assert rows(tmp_path, lines, answer="{text | json('golds.1')}")[0].fields["answer"] == "b"


@pytest.mark.parametrize("gold", [["3", "4"], {"a": "3"}])
def test_a_list_or_object_inside_the_text_of_a_gold_is_refused(tmp_path: Path, gold: Any) -> None:
    with pytest.raises(DataError, match="inside text"):
        rows(tmp_path, [{"question": "q", "answer": gold}], answer="{answer} km")


def test_numbers_become_the_text_a_model_would_write(tmp_path: Path) -> None:
    assert rows(tmp_path, [{"question": "q", "answer": 5}], answer="{answer}")[0].fields["answer"] == "5"


def test_a_null_gold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`answer` is null"):
        rows(tmp_path, [{"question": "q", "answer": None}], answer="{answer}")


def test_a_path_into_a_text_that_holds_json_says_so_once(tmp_path: Path) -> None:
    lines = [{"question": "q", "info": '{"ground_truth": "20"}'}] * 3
    with pytest.raises(DataError, match=r"text that holds JSON, say `{info \| json\('ground_truth'\)}`") as caught:
        rows(tmp_path, lines, answer="{info.ground_truth}")
    assert len(caught.value.mistakes) == 1
    assert rows(tmp_path, lines, answer="{info | json('ground_truth')}")[0].fields["answer"] == "20"


def test_json_that_is_broken_refuses_the_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no JSON"):
        rows(tmp_path, [{"question": "q", "info": "{'a': 1}"}], answer="{info | json('a')}")


def test_the_system_turn_takes_columns(tmp_path: Path) -> None:
    lines = [{"question": "q", "system": "Be brief.", "answer": "1"}, {"question": "r", "system": "", "answer": "1"}]
    first, second = rows(tmp_path, lines, system="{system}")
    assert first.messages is not None and second.messages is not None
    assert first.messages[0] == {"role": "system", "content": "Be brief."}
    assert [m["role"] for m in second.messages] == ["user"]
    assert rows(tmp_path, lines, system="{system}", plain=True)[0].prompt == "Be brief.\n\nq"


@pytest.mark.parametrize(
    "system", ["End with \\boxed{}.", "End with \\boxed{answer}.", 'Reply {"name": "x"}.', "Use {your words} here }"]
)
def test_other_braces_of_a_system_turn_stay(tmp_path: Path, system: str) -> None:
    (row,) = rows(tmp_path, [{"question": "q", "answer": "1"}], system=system)
    assert row.messages is not None
    assert row.messages[0]["content"] == system


def test_a_system_turn_that_names_no_column_or_the_gold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column `sytem`"):
        rows(tmp_path, [{"question": "q", "system": "s"}], system="{sytem}")
    with pytest.raises(RecipeError, match="tell the gold"):
        rows(tmp_path, [{"question": "q", "answer": "1"}], system="say {answer}")


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT = [
    {"role": "user", "content": "1+1?", "name": None},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


def test_tool_calls_and_tools_stay_in_the_row(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [{"prompt": CHAT, "tools": [TOOL]}], prompt="{prompt}")
    assert row.messages is not None
    call = row.messages[1]["tool_calls"][0]
    assert call["function"] == {"name": "add", "arguments": {"a": 1}}
    assert row.messages[0] == {"role": "user", "content": "1+1?"}
    assert row.messages[2] == {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"}
    assert row.tools == [TOOL]
    assert '"add"' in row.prompt


@pytest.mark.parametrize("tools", ['[{"name": "add"}]', [{"name": "add"}]])
def test_tools_may_be_json_text_and_go_with_text_prompts(tmp_path: Path, tools: Any) -> None:
    (row,) = rows(tmp_path, [{"question": "q", "tools": tools}])
    assert row.tools == [{"name": "add"}]


def test_a_column_tools_that_means_something_else_is_refused_beside_messages_only(tmp_path: Path) -> None:
    assert rows(tmp_path, [{"question": "q", "tools": "hammer"}])[0].tools is None
    with pytest.raises(DataError, match="no list of tools"):
        rows(tmp_path, [{"prompt": CHAT, "tools": "hammer"}], prompt="{prompt}")


@pytest.mark.parametrize(
    "more",
    [
        {"prompt": [{"role": "user", "content": "q"}], "tools": '[{"name": "f", "name": "g"}]'},
        {
            "prompt": [
                {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": '{"x": 1, "x": 2}'}]},
                {"role": "tool", "content": "3"},
            ]
        },
    ],
)
def test_tools_and_calls_that_say_a_key_twice_are_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="is said twice"):
        rows(tmp_path, [more], prompt="{prompt}")


@pytest.mark.parametrize("more", [{"images": ["x.png"]}, {"function_call": {"name": "f"}}, {"tool_calls": "f"}])
def test_parts_that_no_template_can_render_are_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=next(iter(more))):
        rows(tmp_path, [{"prompt": [{"role": "user", "content": "q", **more}]}], prompt="{prompt}")


TAKES = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %};{% endfor %}"
IGNORES = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"


@pytest.mark.parametrize(
    ("line", "what"), [({"prompt": CHAT}, "tool_calls"), ({"prompt": CHAT[:1], "tools": [TOOL]}, "tools")]
)
def test_tools_and_calls_reach_the_template_or_are_refused(tmp_path: Path, line: dict[str, Any], what: str) -> None:
    from grpo_cli.policy.model import byte_tokenizer
    from grpo_cli.policy.tokens import encode

    (row,) = rows(tmp_path, [line], prompt="{prompt}")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TAKES
    assert "add" in tokenizer.decode(encode(tokenizer, row))
    tokenizer.chat_template = IGNORES
    with pytest.raises(DataError, match=f"leaves the `{what}`"):
        encode(tokenizer, row)


def test_golds_that_are_none_are_errors_of_maths_and_doubts_of_text(tmp_path: Path) -> None:
    lines = [{"question": "q", "answer": gold} for gold in ("4", "N/A", "proof", "notfound", "None")]
    found = rows(tmp_path, lines)
    with pytest.raises(DataError) as caught:
        audit_golds(found, {"math": build("math")})
    assert [m.place for m in caught.value.mistakes] == ["a.jsonl:2", "a.jsonl:3", "a.jsonl:4", "a.jsonl:5"]
    audit = audit_golds(found, {"exact": build("exact")})
    assert len(audit.rows) == 5
    assert [m.place for m in audit.doubtful] == ["a.jsonl:2", "a.jsonl:3", "a.jsonl:4", "a.jsonl:5"]
