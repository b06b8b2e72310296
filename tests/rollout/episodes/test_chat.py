"""Messages of harnesses as ids, with tools, thoughts and stop texts; what a turn of a policy becomes for its harness."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from grpo_cli.environments.endpoint.messages import Asked, Call, Message, RequestRefused
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tiny import CHAT_TEMPLATE, byte_level
from grpo_cli.rollout.engine import Completion
from grpo_cli.rollout.episodes.chat import Chat
from tests.rollout.episodes.test_tools import TEMPLATE

TOOL = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TOOLS = (json.dumps({"type": "function", "function": TOOL}),)
PAIRS = (
    "{%- for t in tools or [] %}{{ t.function.name }} {% endfor -%}"
    "{%- for m in messages -%}<|{{ 'user' if m.role == 'tool' else m.role }}|>{{ m.content }}"
    "{%- for c in m.tool_calls or [] -%}{{ '<function=' + c.function.name + '>\n' }}"
    "{%- for k, v in c.function.arguments.items() -%}{{ '<parameter=' + k + '>\n' + v | string + '\n</parameter>\n' }}"
    "{%- endfor -%}{{ '</function>' }}{%- endfor -%}"
    "{%- if m.role == 'assistant' -%}<|end|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
FORGETS = CHAT_TEMPLATE.replace(
    "m['content'] }}", "(m['content'] if loop.last else m['content'].split('</think>')[-1] | trim) }}"
)


def chat_of(template: str) -> Chat:
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), eos_token="<|end|>", pad_token="<|pad|>", chat_template=template
    )
    policy = object.__new__(Policy)
    given = {"tokenizer": tokenizer, "chat": {}, "end_ids": frozenset([tokenizer.eos_token_id]), "model": object()}
    for name, value in given.items():
        object.__setattr__(policy, name, value)
    return Chat(policy)


def ids_of(chat: Chat, text: str) -> list[int]:
    return list(chat.policy.tokenizer(text, add_special_tokens=False).input_ids)


def text_of(chat: Chat, ids: list[int]) -> str:
    return str(chat.policy.tokenizer.decode(ids))


def answered(chat: Chat, text: str, *, tools: tuple[str, ...] = TOOLS, finish: Any = "stop", **asked: Any) -> Any:
    ids = ids_of(chat, text)
    return chat.reply(Asked((), tools, **asked), [1], Completion(ids, [-0.1] * len(ids), finish))


ASK = Message("user", "2?")
CALLED = Message("assistant", "so ", (Call("add", '{"a":2}'),))


def test_a_call_goes_out_as_a_call_and_comes_back_as_the_same_turn() -> None:
    chat = chat_of(TEMPLATE)
    assert text_of(chat, chat.render([ASK], TOOLS)) == "<|system|>add <|user|>2?<|assistant|>"
    reply, forms = answered(chat, 'so <call>{"name": "add", "arguments": {"a":   2}}<|end|>')
    assert reply.message == Message("assistant", "so", (Call("add", '{"a":2}'),)) and forms == [reply.message]
    result = Message("tool", "2", name="add")
    end = chat.policy.tokenizer.eos_token_id
    assert text_of(chat, chat.suffix(reply.message, end, [result]) or []) == "<|user|>2<|assistant|>"
    # of a turn that was cut off the template's own end stands before
    assert text_of(chat, chat.suffix(reply.message, 5, [result]) or []) == "<|end|><|user|>2<|assistant|>"
    whole = text_of(chat, chat.render([ASK, CALLED, result], TOOLS))
    assert whole.endswith('so <call>{"name": "add", "arguments": {"a": 2}}<|end|><|user|>2<|assistant|>')


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('<call>{"name": "add", "arguments": {"a": 2}<|end|>', {}),
        ('<call>{"name": "add", "arguments": {"a": 2}}<|end|>', {"tools": ()}),
        ('<call>{"name": "add", "arguments": {"a": 2}}<|end|>', {"reads_calls": False}),
    ],
)
def test_what_is_no_call_or_not_asked_for_is_text(text: str, asked: Any) -> None:
    reply, _ = answered(chat_of(TEMPLATE), text, **asked)
    assert reply.message == Message("assistant", text.removesuffix("<|end|>"))


def test_arguments_that_a_template_writes_as_text_have_the_types_of_their_schema() -> None:
    reply, _ = answered(
        chat_of(PAIRS),
        "<function=add>\n<parameter=a>\n2\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function><|end|>",
    )
    assert reply.message.calls == (Call("add", '{"a":2,"b":"2"}'),)


def test_a_template_without_calls_refuses_tools() -> None:
    with pytest.raises(RequestRefused, match="does not say how tools are called"):
        chat_of(CHAT_TEMPLATE).render([ASK], TOOLS)


def test_a_template_that_refuses_the_messages_is_quoted() -> None:
    template = "{{ raise_exception('one turn only') if messages | length > 1 }}" + CHAT_TEMPLATE
    chat = chat_of(template)
    assert chat.render([ASK], ())
    with pytest.raises(RequestRefused, match="one turn only"):
        chat.render([ASK, ASK], ())
    assert chat.suffix(Message("assistant", "x"), 1, [ASK]) is None


def test_a_template_that_drops_thoughts_goes_on_behind_turns_without_one() -> None:
    chat = chat_of(FORGETS)
    plain, thought = Message("assistant", "four"), Message("assistant", "<think>2+2</think>four")
    assert text_of(chat, chat.suffix(plain, 0, [ASK]) or []) == "<|end|><|user|>2?<|assistant|>"
    assert chat.suffix(thought, 0, [ASK]) is None
    keeps = chat_of(CHAT_TEMPLATE)
    assert keeps.suffix(thought, 0, [ASK]) == keeps.suffix(plain, 0, [ASK]) is not None


def test_a_stop_text_is_cut_from_the_text_and_both_forms_are_the_turn() -> None:
    chat = chat_of(CHAT_TEMPLATE)
    reply, forms = answered(chat, "go on</code>", tools=(), stop=("x", "</code>"))
    assert (reply.message.text, reply.stopped_by, reply.finish) == ("go on", "</code>", "stop")
    assert [one.text for one in forms] == ["go on", "go on</code>"]
    assert len(reply.ids) == len("go on</code>")
    ended, _ = answered(chat, "go on</code><|end|>", tools=(), stop=("</code>",))
    assert (ended.message.text, ended.stopped_by) == ("go on</code>", None)
    cut, _ = answered(chat, "go on", tools=(), stop=("</code>",), finish="length")
    assert (cut.message.text, cut.finish) == ("go on", "length")


def test_each_token_has_its_text_where_log_probs_are_asked_for() -> None:
    reply, _ = answered(chat_of(CHAT_TEMPLATE), "ab<|end|>", tools=(), shows=frozenset({"logprobs"}))
    assert list(reply.pieces) == ["a", "b", "<|end|>"]
    assert replace(reply, pieces=()).logps == [-0.1] * 3
