"""The three dialects that harnesses speak, chat completions, responses and messages, read into one form and answered in their own.

How this works. A `Dialect` has four functions: `read` makes an `Asked` of a request's body or refuses it with a sentence, `answer` makes
a body of a `Reply`, `events` the same as server-sent events, `error` a body of a refusal. What cannot be served is refused:
images, thoughts that are sent in, several choices, constrained decoding. What only says how to sample is read and left to the
recipe, since a harness must not make the policy off-policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.environments.endpoint.messages import (
    Asked,
    Call,
    Message,
    Reply,
    RequestRefused,
    arguments_of,
    canonical,
    clean,
    numbered,
)

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "logit_bias",
)
MODEL = "policy"
"""The name of the one model."""
Body = Mapping[str, Any]
Event = tuple[str, dict[str, Any] | str]
"""The name of a server-sent event, empty where the dialect gives none, and its data."""


@dataclass(frozen=True)
class Dialect:
    """How one kind of request is read and answered; the last argument of an answer is its name, of which its ids are made."""

    read: Callable[[Body], Asked]
    answer: Callable[[Reply, Asked, str], dict[str, Any]]
    events: Callable[[Reply, Asked, str], Iterator[Event]]
    error: Callable[[RequestRefused], dict[str, Any]]


# Reading what may be anything.


def _of(body: Body, key: str, kind: type, default: Any) -> Any:
    """The value of a key, which may be left out or null.

    Raises:
        RequestRefused: it is of another type.
    """
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "text", list: "a list", dict: "an object", int: "a whole number", bool: "true or false"}
        raise RequestRefused(f"`{key}` must be {words[kind]}")
    return clean(value) if isinstance(value, str) else value


def _objects(body: Body, key: str) -> list[Mapping[str, Any]]:
    found = _of(body, key, list, [])
    if not all(isinstance(one, dict) for one in found):
        raise RequestRefused(f"`{key}` must be a list of objects")
    return list(found)


def _text(content: object, types: Sequence[str], where: str) -> str:
    """A text, or parts of these types joined.

    Raises:
        RequestRefused: another type of part, such as an image.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise RequestRefused(f"{where} must be text or a list of parts")
    for part in content:
        if part.get("type") not in types:
            raise RequestRefused(f"{where} has a part of the type `{str(part.get('type'))[:40]}`: only text is taken")
    return "".join(_of(part, "text", str, "") for part in content)


def _limit(body: Body, *keys: str) -> int | None:
    for key in keys:
        if (found := _of(body, key, int, None)) is not None:
            if found < 1:
                raise RequestRefused(f"`{key}` must be 1 or more")
            return int(found)
    return None


def _stop(body: Body, key: str) -> tuple[str, ...]:
    found = body.get(key)
    texts = [found] if isinstance(found, str) else _of(body, key, list, [])
    if len(texts) > 16 or not all(isinstance(text, str) for text in texts):
        raise RequestRefused(f"`{key}` must be a text or a list of at most 16")
    return tuple(clean(text) for text in texts if text)


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> str:
    if not name:
        raise RequestRefused("a tool has no name")
    function = {"name": name, "description": description, "parameters": parameters}
    return canonical({"type": "function", "function": function})


def _nothing_of(body: Body, keys: Mapping[str, str]) -> None:
    for key, said in keys.items():
        if body.get(key):
            raise RequestRefused(f"`{key}` is not served: {said}")


Messages = list[tuple[Message, list[str], str]]
"""Each with the ids of its calls, and the id of the call that it answers."""


def _asked(body: Body, messages: Messages, tools: list[str], limit: int | None, stop: str = "", **more: Any) -> Asked:
    """The request, with what all dialects write alike; `stop` is the key of its stop texts."""
    if not messages:
        raise RequestRefused("there are no messages")
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return Asked(
        numbered(messages),
        tuple(tools),
        limit,
        _stop(body, stop) if stop else (),
        _of(body, "stream", bool, False),
        _names(body, "model", MODEL),
        {name: body[name] for name in SAMPLING if body.get(name) not in (None, {})},
        # nothing makes the model call a tool, or keeps it from that
        ignored=() if kind in (None, "auto") else ("tool_choice",),
        reads_calls=kind != "none",
        **more,
    )


def _role(held: Body, *allowed: str) -> str:
    role = _names(held, "role", "").replace("developer", "system")
    if role not in allowed:
        raise RequestRefused(f"a message has the role `{role[:40]}`")
    return role


def _names(body: Body, key: str, default: str) -> str:
    return str(_of(body, key, str, default))


# Chat completions, as OpenAI has them and vLLM adds to them.


def _read_chat(body: Body) -> Asked:
    if _of(body, "n", int, 1) != 1:
        raise RequestRefused("`n` must be 1: send the request again for another answer")
    form = _of(body, "response_format", dict, {}).get("type", "text")
    if form != "text":
        raise RequestRefused(
            f"`response_format` of the type `{str(form)[:40]}` is not served: decoding is not constrained"
        )
    _nothing_of(body, {"functions": "`tools` are, of which it is the old form", "audio": "only text is made"})
    messages: Messages = []
    for held in _objects(body, "messages"):
        role = _role(held, "system", "user", "assistant", "tool")
        text = _text(held.get("content"), ("text", "refusal"), f"`content` of a message of `{role}`")
        calls, ids = [], []
        for call in _objects(held, "tool_calls") if role == "assistant" else ():
            function = _of(call, "function", dict, {})
            calls.append(Call(_names(function, "name", ""), arguments_of(function.get("arguments", ""))))
            ids.append(_names(call, "id", ""))
        messages.append((Message(role, text, tuple(calls)), ids, _names(held, "tool_call_id", "")))
    tools = []
    for tool in _objects(body, "tools"):
        function = _of(tool, "function", dict, {})
        if tool.get("type") != "function":
            raise RequestRefused(f"a tool of the type `{str(tool.get('type'))[:40]}` is not served: only functions are")
        tools.append(
            _tool(
                _names(function, "name", ""),
                _names(function, "description", ""),
                _of(function, "parameters", dict, {"type": "object", "properties": {}}),
            )
        )
    shows = {"logprobs"} if body.get("logprobs") else set[str]()
    shows |= {"token_ids"} if body.get("return_token_ids") else set()
    shows |= {"usage"} if _of(body, "stream_options", dict, {}).get("include_usage") else set()
    limit = _limit(body, "max_completion_tokens", "max_tokens")
    return _asked(body, messages, tools, limit, "stop", shows=frozenset(shows))


def _usage(reply: Reply) -> dict[str, int]:
    prompt, made = len(reply.prompt_ids), len(reply.ids)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _chat_calls(reply: Reply, name: str) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{name}_{i}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for i, call in enumerate(reply.message.calls)
    ]


def _chat_extras(reply: Reply, asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = {"stop_reason": reply.stopped_by} if reply.stopped_by else {}
    if "token_ids" in asked.shows:
        found["token_ids"] = list(reply.ids)
    if "logprobs" in asked.shows:
        found["logprobs"] = {
            "content": [
                {"token": text, "logprob": logp, "bytes": list(text.encode()), "top_logprobs": []}
                for text, logp in zip(reply.pieces, reply.logps, strict=True)
            ]
        }
    return found


def _chat_finish(reply: Reply) -> str:
    return "tool_calls" if reply.message.calls else reply.finish


def _chat_head(kind: str, asked: Asked, name: str, reply: Reply) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{name}", "object": kind, "created": 0, "model": asked.model}
    return head | ({"prompt_token_ids": list(reply.prompt_ids)} if "token_ids" in asked.shows else {})


def _answer_chat(reply: Reply, asked: Asked, name: str) -> dict[str, Any]:
    calls = _chat_calls(reply, name)
    message: dict[str, Any] = {"role": "assistant", "content": reply.message.text or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _chat_finish(reply)}
    return _chat_head("chat.completion", asked, name, reply) | {
        "choices": [choice | _chat_extras(reply, asked)],
        "usage": _usage(reply),
    }


def _events_chat(reply: Reply, asked: Asked, name: str) -> Iterator[Event]:
    head = _chat_head("chat.completion.chunk", asked, name, reply)

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> Event:
        return "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish} | more]}

    yield chunk({"role": "assistant", "content": ""})
    if reply.message.text or not reply.message.calls:
        yield chunk({"content": reply.message.text}, **_chat_extras(reply, asked))
    for i, call in enumerate(_chat_calls(reply, name)):
        more = {} if reply.message.text or i else _chat_extras(reply, asked)
        yield chunk({"tool_calls": [{"index": i} | call]}, **more)
    yield chunk({}, _chat_finish(reply))
    if "usage" in asked.shows:
        yield "", head | {"choices": [], "usage": _usage(reply)}
    yield "", "[DONE]"


def _error_openai(err: RequestRefused) -> dict[str, Any]:
    kind = "invalid_request_error" if err.status < 500 else "server_error"
    return {"error": {"message": str(err), "type": kind, "param": None, "code": err.code}}


# Responses.


def _read_responses(body: Body) -> Asked:
    whole = "send the whole conversation as `input`"
    _nothing_of(body, {"previous_response_id": whole, "conversation": whole, "background": "answers come at once"})
    if (_of(_of(body, "text", dict, {}), "format", dict, {})).get("type", "text") != "text":
        raise RequestRefused("`text.format` other than text is not served: decoding is not constrained")
    messages: Messages = []
    if instructions := _names(body, "instructions", ""):
        messages.append((Message("system", instructions), [], ""))
    given = body.get("input")
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else _objects(body, "input"):
        kind = item.get("type", "message")
        if kind == "message":
            role = _role(item, "system", "user", "assistant")
            parts = ("input_text", "output_text", "text")
            messages.append((Message(role, _text(item.get("content"), parts, "`content`")), [], ""))
        elif kind == "function_call":
            call = Call(_names(item, "name", ""), arguments_of(item.get("arguments", "")))
            # text and calls of one turn come as items of their own
            last, ids, _ = messages[-1] if messages and messages[-1][0].role == "assistant" else (None, [], "")
            if last is None:
                messages.append((Message("assistant", "", (call,)), [_names(item, "call_id", "")], ""))
            else:
                merged = Message("assistant", last.text, (*last.calls, call))
                messages[-1] = merged, [*ids, _names(item, "call_id", "")], ""
        elif kind == "function_call_output":
            text = _text(item.get("output"), ("input_text", "output_text", "text"), "`output`")
            messages.append((Message("tool", text), [], _names(item, "call_id", "")))
        else:
            raise RequestRefused(
                f"an item of the type `{str(kind)[:40]}` is not served: messages and function calls are"
            )
    tools = []
    for tool in _objects(body, "tools"):
        if tool.get("type") != "function":
            raise RequestRefused(f"the tool `{str(tool.get('type'))[:40]}` is not served: only functions are")
        parameters = _of(tool, "parameters", dict, {"type": "object", "properties": {}})
        tools.append(_tool(_names(tool, "name", ""), _names(tool, "description", ""), parameters))
    return _asked(body, messages, tools, _limit(body, "max_output_tokens"))


def _response_items(reply: Reply, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.message.text or not reply.message.calls:
        part = {"type": "output_text", "text": reply.message.text, "annotations": []}
        items.append(
            {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [part]}
        )
    for i, call in enumerate(reply.message.calls):
        of_call = {"name": call.name, "arguments": call.arguments, "call_id": f"call_{name}_{i}"}
        items.append({"type": "function_call", "id": f"fc_{name}_{i}", "status": "completed"} | of_call)
    return items


def _answer_responses(reply: Reply, asked: Asked, name: str) -> dict[str, Any]:
    is_cut = reply.finish == "length"
    prompt, made = len(reply.prompt_ids), len(reply.ids)
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "error": None,
        "model": asked.model,
        "output": _response_items(reply, name),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + made,
        },
    }


def _events_responses(reply: Reply, asked: Asked, name: str) -> Iterator[Event]:
    whole, number = _answer_responses(reply, asked, name), 0

    def event(kind: str, **data: Any) -> Event:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number - 1} | data

    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for i, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": i}
        is_text = item["type"] == "message"
        empty: dict[str, Any] = {"content": []} if is_text else {"arguments": ""}
        yield event("response.output_item.added", output_index=i, item=item | empty | {"status": "in_progress"})
        if is_text:
            (part,) = item["content"]
            at |= {"content_index": 0}
            yield event("response.content_part.added", **at, part=part | {"text": ""})
            yield event("response.output_text.delta", **at, delta=part["text"], logprobs=[])
            yield event("response.output_text.done", **at, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **at, part=part)
        else:
            yield event("response.function_call_arguments.delta", **at, delta=item["arguments"])
            yield event("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
        yield event("response.output_item.done", output_index=i, item=item)
    yield event(f"response.{whole['status']}", response=whole)


# Messages, as Anthropic has them.


def _read_messages(body: Body) -> Asked:
    if _of(body, "thinking", dict, {}).get("type", "disabled") != "disabled":
        raise RequestRefused("`thinking` is not served: what the model thinks stands in its text")
    messages: Messages = []
    if system := _text(body.get("system"), ("text",), "`system`"):
        messages.append((Message("system", system), [], ""))
    for held in _objects(body, "messages"):
        role, content = _role(held, "user", "assistant"), held.get("content")
        parts = _objects(held, "content") if isinstance(content, list) else None
        calls, ids, texts = [], [], []
        for part in parts or ():
            kind = part.get("type")
            if kind == "tool_use" and role == "assistant":
                calls.append(Call(_names(part, "name", ""), arguments_of(_of(part, "input", dict, {}))))
                ids.append(_names(part, "id", ""))
            elif kind == "tool_result" and role == "user":
                text = _text(part.get("content"), ("text",), "a `tool_result`")
                messages.append((Message("tool", text), [], _names(part, "tool_use_id", "")))
            elif kind == "text":
                texts.append(part)
            else:
                raise RequestRefused(f"a part of the type `{str(kind)[:40]}` in a message of `{role}` is not served")
        text = _text(content if parts is None else texts, ("text",), f"`content` of a message of `{role}`")
        if parts is None or texts or calls or not parts:
            messages.append((Message(role, text, tuple(calls)), ids, ""))
    tools = []
    for tool in _objects(body, "tools"):
        if tool.get("type", "custom") != "custom":
            raise RequestRefused(f"the tool `{str(tool['type'])[:40]}` is not served: only tools of yours are")
        schema = _of(tool, "input_schema", dict, {"type": "object", "properties": {}})
        tools.append(_tool(_names(tool, "name", ""), _names(tool, "description", ""), schema))
    return _asked(body, messages, tools, _limit(body, "max_tokens"), "stop_sequences")


def _read_sized(body: Body) -> Asked:
    if body.get("max_tokens") is None:
        raise RequestRefused("`max_tokens` is missing")
    return _read_messages(body)


def _answer_messages(reply: Reply, asked: Asked, name: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.message.text}] if reply.message.text else []
    for i, call in enumerate(reply.message.calls):
        content.append({"type": "tool_use", "id": f"toolu_{name}_{i}", "name": call.name, "input": call.parsed})
    why = {"length": "max_tokens", "stop": "stop_sequence" if reply.stopped_by else "end_turn"}[reply.finish]
    return {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": content,
        "stop_reason": "tool_use" if reply.message.calls else why,
        "stop_sequence": reply.stopped_by,
        "usage": {"input_tokens": len(reply.prompt_ids), "output_tokens": len(reply.ids)},
    }


def _events_messages(reply: Reply, asked: Asked, name: str) -> Iterator[Event]:
    whole = _answer_messages(reply, asked, name)

    def event(kind: str, **data: Any) -> Event:
        return kind, {"type": kind} | data

    begun: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
    used = whole["usage"] | {"output_tokens": 0}
    yield event("message_start", message=whole | begun | {"usage": used})
    for i, part in enumerate(whole["content"]):
        is_text = part["type"] == "text"
        empty: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
        yield event("content_block_start", index=i, content_block=part | empty)
        delta = (
            {"type": "text_delta", "text": part["text"]}
            if is_text
            else {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
        )
        yield event("content_block_delta", index=i, delta=delta)
        yield event("content_block_stop", index=i)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    yield event("message_delta", delta=ended, usage={"output_tokens": whole["usage"]["output_tokens"]})
    yield event("message_stop")


def _error_messages(err: RequestRefused) -> dict[str, Any]:
    kinds = {401: "authentication_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}
    text = f"prompt is too long: {err}" if err.code == "context_length_exceeded" else str(err)
    return {"type": "error", "error": {"type": kinds.get(err.status, "invalid_request_error"), "message": text}}


def _read_counted(body: Body) -> Asked:
    asked = _read_messages(body)
    return Asked(asked.messages, asked.tools, model=asked.model, only_counts=True)


def _answer_counted(reply: Reply, asked: Asked, name: str) -> dict[str, Any]:
    return {"input_tokens": len(reply.prompt_ids)}


DIALECTS = {
    "chat/completions": Dialect(_read_chat, _answer_chat, _events_chat, _error_openai),
    "responses": Dialect(_read_responses, _answer_responses, _events_responses, _error_openai),
    "messages": Dialect(_read_sized, _answer_messages, _events_messages, _error_messages),
    "messages/count_tokens": Dialect(_read_counted, _answer_counted, _events_messages, _error_messages),
}
"""By what stands behind `/v1/` in the address."""


def models(context: int | None) -> dict[str, Any]:
    """The list of the one model."""
    one = {"id": MODEL, "object": "model", "type": "model", "created": 0, "owned_by": "grpo", "max_model_len": context}
    return {"object": "list", "data": [one], "has_more": False, "first_id": MODEL, "last_id": MODEL}
