"""How calls are written is read off a chat template; TRL ships those of many models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trl

from grpo_cli.environments.tools.calls import (
    CallForm,
    ToolCall,
    UnknownCallForm,
    learn_call_form,
    read_calls,
    turn_with_calls,
)
from grpo_cli.policy.prompts.chat_template import ChatTemplate

FOLDER = Path(trl.__file__).parent / "chat_templates"
STYLES = {
    "qwen2_5": "object",
    "qwen3": "object",
    "qwen3_instruct_2507": "object",
    "llama3_1": "object",
    "llama3_2": "object",
    "gptoss": "named",
    "deepseekv3": "named",
    "glm4moe": "pairs",
    "qwen3_6": "pairs",
    "nemotron_3_nano": "pairs",
}


def template(name: str) -> ChatTemplate:
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return ChatTemplate((FOLDER / f"{name}.jinja").read_text(), special, {})


def form(name: str) -> CallForm:
    chat = template(name)
    return learn_call_form(lambda messages, tools, opens: chat.render(messages, tools, opens=opens))


@pytest.mark.parametrize("name", list(STYLES))
def test_what_a_template_writes_is_read_back(name: str) -> None:
    found, chat = form(name), template(name)
    assert found.style == STYLES[name]
    arguments = {"town": 'Graz an der "Mur"', "note": "two\nlines {of} <text>"}
    given: Any = json.dumps(arguments) if found.as_text else arguments
    user = [{"role": "user", "content": "go"}]
    whole = chat.render([*user, turn_with_calls(["weather"], given, "")], None, opens=False)
    (call,) = read_calls(whole.removeprefix(chat.render(user, None)), found)
    assert (call.name, call.arguments, call.error) == ("weather", arguments, "")
    assert call.is_text == (found.style == "pairs")


@pytest.mark.parametrize("name", ["qwen3", "deepseekv3", "glm4moe", "qwen3_6"])
def test_two_calls_of_one_turn_are_two(name: str) -> None:
    found, chat = form(name), template(name)
    given: Any = '{"n": "x"}' if found.as_text else {"n": "x"}
    user = [{"role": "user", "content": "go"}]
    whole = chat.render([*user, turn_with_calls(["add", "look"], given, "")], None, opens=False)
    calls = read_calls(whole.removeprefix(chat.render(user, None)), found)
    assert [(call.name, call.arguments) for call in calls] == [("add", {"n": "x"}), ("look", {"n": "x"})]


@pytest.mark.parametrize(
    "name", ["llama3", "gemma", "phi3", "cohere", "idefics3", "gemma4", "lfm2_2_5", "muse_glimmer"]
)
def test_a_template_without_calls_or_with_others_is_told(name: str) -> None:
    with pytest.raises(UnknownCallForm, match=r"leaves the calls of a turn out|refuses a call|a form that is not read"):
        form(name)


QWEN = CallForm("object", "<tool_call>", "name", "arguments")
LLAMA = CallForm("object", "", "name", "parameters")
PAIRS = CallForm("pairs", "<function=", marks=(">\n", "<parameter=", ">\n", "</parameter>"))
HARMONY = CallForm("named", "to=functions.", marks=("<|channel|>commentary json<|message|>",))


@pytest.mark.parametrize(
    ("said", "how", "calls"),
    [
        ("The sum is 42.", QWEN, []),
        ("<think>maybe <tool_call>{}</tool_call>?</think>42", QWEN, []),
        ('{"name": "add", "arguments": {}}', QWEN, []),
        ('so <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>', QWEN, [("add", {"a": 1})]),
        ('<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', QWEN, [("add", {"a": 1})]),
        ('{"name": "add", "parameters": {"a": 1}}<|eot_id|>', LLAMA, [("add", {"a": 1})]),
        ('<|python_tag|>{"name": "add", "parameters": {}}', LLAMA, [("add", {})]),
        ('It is {"name": "add"}', LLAMA, []),
        ("<function=add>\n<parameter=a>\n1\n</parameter>\n</function>", PAIRS, [("add", {"a": "1"})]),
        ("<function=look>\n</function>", PAIRS, [("look", {})]),
        (
            '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>',
            HARMONY,
            [("add", {"a": 1})],
        ),
    ],
)
def test_a_turn_is_read(said: str, how: CallForm, calls: list[Any]) -> None:
    found = read_calls(said, how)
    assert [(call.name, call.arguments) for call in found] == calls
    assert not any(call.error for call in found)


@pytest.mark.parametrize(
    ("said", "how", "error"),
    [
        ('<tool_call>{"name": "add", "argum', QWEN, "no JSON"),
        ("<tool_call>" + "[" * 100_000, QWEN, "no JSON"),
        ("<tool_call>add(1, 2)</tool_call>", QWEN, "no JSON"),
        ("<tool_call>[1, 2]</tool_call>", QWEN, "no object with `name` and `arguments`"),
        ('<tool_call>{"name": 7, "arguments": {}}</tool_call>', QWEN, "no object with `name`"),
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', QWEN, "`arguments` of `add` is no object"),
        ("<function=>", PAIRS, "names no tool"),
        ("<function=add><parameter=a>\n1", PAIRS, "`a` is not closed"),
        ("to=functions. {", HARMONY, "names no tool"),
        ("to=functions.add 1", HARMONY, "no JSON"),
        ("<tool_call>" * 50, QWEN, "no JSON"),
    ],
)
def test_a_call_that_is_none_says_why(said: str, how: CallForm, error: str) -> None:
    assert error in read_calls(said, how)[0].error


def test_a_turn_of_too_many_calls_is_cut() -> None:
    found = read_calls('<tool_call>{"name": "a", "arguments": {}}' * 60, QWEN)
    assert len(found) == 33
    assert found[-1] == ToolCall("", error="more than 32 calls in one turn: the others were not made")
