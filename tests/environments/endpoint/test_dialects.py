"""The dialects: what each reads into the one form, what it refuses, and what it answers."""

from __future__ import annotations

import json

import pytest

from grpo_cli.environments.endpoint.dialects import DIALECTS, models
from grpo_cli.environments.endpoint.messages import Call, Message, Reply, RequestRefused

CHAT, RESPONSES, MESSAGES = (DIALECTS[name] for name in ("chat/completions", "responses", "messages"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CALL = Call("add", '{"a":1,"b":2}')
TURNS = (
    Message("system", "s"),
    Message("user", "one two"),
    Message("assistant", "so", (CALL, Call("add", "{}"))),
    Message("tool", "3", answers=0, name="add"),
    Message("tool", "none", answers=1, name="add"),
    Message("user", "well?"),
)


def chat() -> dict:
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"b": 2, "a": 1}'}}
    other = {"id": "y", "type": "function", "function": {"name": "add", "arguments": {}}, "index": 1}
    return {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": "so", "tool_calls": [call, other], "refusal": None},
            {"role": "tool", "tool_call_id": "x", "content": "3"},
            {"role": "tool", "tool_call_id": "y", "content": [{"type": "text", "text": "none"}]},
            {"role": "user", "content": "well?"},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "description": "d", "parameters": SCHEMA}}],
    }


def responses() -> dict:
    return {
        "model": "m",
        "instructions": "s",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "one two"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "function_call", "call_id": "1", "name": "add", "arguments": '{"a":1,"b":2}'},
            {"type": "function_call", "call_id": "2", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "3"},
            {"type": "function_call_output", "call_id": "2", "output": "none"},
            {"role": "user", "content": "well?"},
        ],
        "tools": [{"type": "function", "name": "add", "description": "d", "parameters": SCHEMA}],
    }


def messages() -> dict:
    return {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "one two"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "1", "name": "add", "input": {"b": 2, "a": 1}},
                    {"type": "tool_use", "id": "2", "name": "add", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "3"},
                    {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "none"}]},
                    {"type": "text", "text": "well?"},
                ],
            },
        ],
        "tools": [{"name": "add", "description": "d", "input_schema": SCHEMA}],
    }


BODIES = {"chat/completions": chat, "responses": responses, "messages": messages}


@pytest.mark.parametrize("name", BODIES)
def test_the_same_conversation_is_the_same_in_every_dialect(name):
    asked = DIALECTS[name].read(BODIES[name]())
    assert asked.messages == TURNS
    assert asked.tools == CHAT.read(chat()).tools
    assert json.loads(asked.tools[0])["function"]["parameters"] == SCHEMA
    assert asked.model == "m" and not asked.stream and asked.reads_calls and not asked.ignored


def changed(name: str, change) -> dict:
    body = json.loads(json.dumps(BODIES[name]()))
    change(body)
    return body


def put(key, value):
    return lambda body: body.__setitem__(key, value)


def last(content):
    return lambda body: body["messages"][-1].__setitem__("content", content)


IMAGE = [{"type": "image_url", "image_url": {"url": "http://x"}}]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("chat/completions", last(IMAGE), "part of the type `image_url`: only text"),
        ("chat/completions", put("n", 2), "`n` must be 1"),
        ("chat/completions", put("n", "2"), "`n` must be a whole number"),
        ("chat/completions", put("response_format", {"type": "json_object"}), "`json_object` is not served"),
        ("chat/completions", put("functions", [{}]), "old form"),
        ("chat/completions", put("messages", []), "no messages"),
        ("chat/completions", put("messages", "hello"), "`messages` must be a list"),
        ("chat/completions", put("messages", [1]), "list of objects"),
        ("chat/completions", put("messages", [{"role": "king", "content": ""}]), "the role `king`"),
        ("chat/completions", put("messages", [{"role": "tool", "tool_call_id": "z", "content": ""}]), "does not make"),
        ("chat/completions", put("max_tokens", 0), "`max_tokens` must be 1"),
        ("chat/completions", put("max_tokens", True), "whole number"),
        ("chat/completions", put("stop", [1]), "`stop` must be"),
        ("chat/completions", put("tools", [{"type": "code_interpreter"}]), "only functions"),
        ("chat/completions", put("tools", [{"type": "function"}]), "no name"),
        ("responses", put("previous_response_id", "r"), "whole conversation"),
        ("responses", put("input", [{"type": "reasoning"}]), "`reasoning` is not served"),
        ("responses", put("input", [{"role": "user", "content": [{"type": "input_image"}]}]), "`input_image`"),
        ("responses", put("tools", [{"type": "web_search"}]), "`web_search` is not served"),
        ("responses", put("text", {"format": {"type": "json_schema"}}), "not constrained"),
        ("messages", put("thinking", {"type": "enabled"}), "`thinking` is not served"),
        ("messages", last([{"type": "image", "source": {}}]), "`image` in a message of `user`"),
        ("messages", put("messages", [{"role": "assistant", "content": [{"type": "thinking"}]}]), "`thinking` in"),
        ("messages", put("tools", [{"type": "bash_20250124", "name": "b"}]), "`bash_20250124` is not served"),
        ("messages", put("max_tokens", None), "`max_tokens` is missing"),
        ("messages", put("messages", [{"role": "system", "content": "s"}]), "the role `system`"),
    ],
)
def test_what_is_not_served_is_refused_with_a_sentence(name, change, said):
    with pytest.raises(RequestRefused) as err:
        DIALECTS[name].read(changed(name, change))
    assert said in str(err.value) and err.value.status == 400
    shown = DIALECTS[name].error(err.value)
    assert shown["error"]["message"] == str(err.value)
    assert (shown.get("type") == "error") is (name == "messages")


@pytest.mark.parametrize(
    ("value", "ignored", "reads"),
    [("required", True, True), ({"type": "function"}, True, True), ("none", True, False), ("auto", False, True)],
)
def test_a_choice_of_tools_is_ignored_and_named(value, ignored, reads):
    asked = CHAT.read(chat() | {"tool_choice": value})
    assert bool(asked.ignored) is ignored and asked.reads_calls is reads


def test_sampling_is_read_apart_and_limits_and_stops_are_taken():
    more = {"temperature": 0.2, "top_p": 1, "seed": 3, "max_completion_tokens": 7, "max_tokens": 9, "stop": "x"}
    asked = CHAT.read(chat() | more)
    assert asked.sampling == {"temperature": 0.2, "top_p": 1, "seed": 3}
    assert (asked.limit, asked.stop) == (7, ("x",))
    assert MESSAGES.read(messages() | {"stop_sequences": ["y"]}).stop == ("y",)


def test_counting_wants_no_limit_and_keeps_messages_and_tools():
    body = messages()
    del body["max_tokens"]
    asked = DIALECTS["messages/count_tokens"].read(body)
    assert asked.only_counts and asked.messages == TURNS and asked.tools


def test_lone_surrogates_and_deep_nesting_are_no_crash():
    assert CHAT.read({"messages": [{"role": "user", "content": "\ud800"}]}).messages == (Message("user", "?"),)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RequestRefused, match="nested too deeply"):
        CHAT.read(chat() | {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": deep}}}]})
    while deep:  # a list that is freed whole would recurse as deep
        deep = deep[0]


def reply(text="so", calls=(), finish="stop", **more) -> Reply:
    return Reply(Message("assistant", text, calls), finish, [1, 2, 3], [7, 8], [-0.5, -0.25], pieces=["s", "o"], **more)


def asked_of(name: str, **more):
    return DIALECTS[name].read(BODIES[name]() | more)


def echo_of(name: str, answer: dict) -> tuple[Message, ...]:
    """What a harness that keeps what was said sends next."""
    if name == "chat/completions":
        sent = {"messages": [answer["choices"][0]["message"]]}
    elif name == "responses":
        sent = {"input": answer["output"]}
    else:
        sent = {"messages": [{"role": "assistant", "content": answer["content"]}], "max_tokens": 1}
    return DIALECTS[name].read(sent).messages


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "said", [reply(), reply(""), reply("", (CALL,)), reply("so", (CALL, Call("f", "{}"))), reply(finish="length")]
)
def test_an_answer_that_is_sent_back_is_the_turn_that_was_said(name, said):
    answer = DIALECTS[name].answer(said, asked_of(name), "n1")
    assert json.loads(json.dumps(answer)) == answer
    assert echo_of(name, answer) == (said.message,)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("said", [reply(), reply("", (CALL,)), reply("so", (CALL,))])
def test_the_events_add_up_to_the_answer(name, said):
    asked = asked_of(name, stream=True)
    events = list(DIALECTS[name].events(said, asked, "n1"))
    whole = DIALECTS[name].answer(said, asked, "n1")
    if name == "chat/completions":
        assert events[-1] == ("", "[DONE]")
        deltas = [data["choices"][0]["delta"] for _, data in events[:-1]]
        assert "".join(d.get("content", "") for d in deltas) == said.message.text
        calls = [call for d in deltas for call in d.get("tool_calls", ())]
        assert [c["function"]["name"] for c in calls] == [c.name for c in said.message.calls]
        assert events[-2][1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    elif name == "responses":
        assert events[-1] == (
            "response.completed",
            {"type": "response.completed", "sequence_number": len(events) - 1, "response": whole},
        )
        done = [data["item"] for kind, data in events if kind == "response.output_item.done"]
        assert done == whole["output"]
    else:
        text = "".join(d["delta"].get("text", "") for k, d in events if k == "content_block_delta")
        inputs = [
            d["delta"]["partial_json"] for k, d in events if k == "content_block_delta" and "partial_json" in d["delta"]
        ]
        assert text == said.message.text
        assert [json.loads(one) for one in inputs] == [call.parsed for call in said.message.calls]
        assert events[-2][1]["delta"]["stop_reason"] == whole["stop_reason"]


def test_chat_shows_ids_and_log_probs_as_vllm_does_where_they_are_asked_for():
    asked = asked_of("chat/completions", logprobs=True, return_token_ids=True)
    answer = CHAT.answer(reply(), asked, "n1")
    (choice,) = answer["choices"]
    assert answer["prompt_token_ids"] == [1, 2, 3] and choice["token_ids"] == [7, 8]
    assert [(one["token"], one["logprob"]) for one in choice["logprobs"]["content"]] == [("s", -0.5), ("o", -0.25)]
    bare = CHAT.answer(reply(), asked_of("chat/completions"), "n1")
    assert "prompt_token_ids" not in bare and "token_ids" not in bare["choices"][0]


@pytest.mark.parametrize(
    ("said", "chat_why", "messages_why"),
    [
        (reply(), "stop", "end_turn"),
        (reply(finish="length"), "length", "max_tokens"),
        (reply(calls=(CALL,)), "tool_calls", "tool_use"),
        (reply(stopped_by="x"), "stop", "stop_sequence"),
    ],
)
def test_why_a_turn_ended(said, chat_why, messages_why):
    assert CHAT.answer(said, asked_of("chat/completions"), "n")["choices"][0]["finish_reason"] == chat_why
    assert MESSAGES.answer(said, asked_of("messages"), "n")["stop_reason"] == messages_why


def test_there_is_one_model_with_its_context():
    assert [(one["id"], one["max_model_len"]) for one in models(512)["data"]] == [("policy", 512)]
