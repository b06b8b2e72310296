"""Prompts that are lists of chat messages. The last message must not be the assistant's: the model is to write that
one.

Other keys of a message than role and content (`tool_calls`, `tool_call_id`, `name`, …) are kept for the chat template.
Content that a text template cannot render (images, sound) is refused. Keys whose value is null are left out. ShareGPT's
turns of `from` and `value` become messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_cli.data.images import MARK
from grpo_verifiers.strict_json import RepeatedKey, loads

ROLES = ("system", "user", "assistant", "tool", "developer")
SHAREGPT = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "observation": "tool",
    "function_response": "tool",
}
"""Roles for the `from` names of ShareGPT's data sets; any other name is used as the role."""
UNREADABLE = ("images", "image", "audio", "video", "videos", "function_call", "refusal")
"""Keys of messages that a text chat template cannot render."""

Message = dict[str, Any]


class BadMessages(ValueError):
    """A message list that cannot be a prompt."""


def read_messages(value: Sequence[Any], system: str | None, *, sees: bool = False) -> list[Message]:
    """The messages, checked; `system` is put in front unless the list brings its own. `sees`: blocks of images are marks in the
    text, as `data.images` fills them.

    Raises:
        BadMessages: unknown role, content that is no text, no user turn, or an assistant turn at the end.
    """
    messages: list[Message] = []
    for number, item in enumerate(value, start=1):
        where = f"message {number} of the prompt"
        if isinstance(item, dict) and "role" not in item and isinstance(item.get("from"), str) and "value" in item:
            others = {key: value for key, value in item.items() if key not in ("from", "value")}
            item = {"role": SHAREGPT.get(item["from"], item["from"]), "content": item["value"], **others}
        if not isinstance(item, dict) or "role" not in item or not ("content" in item or item.get("tool_calls")):
            raise BadMessages(f"{where} is no object with `role` and `content`, or with `from` and `value`")
        if item["role"] not in ROLES:
            raise BadMessages(f"{where} has the role `{item['role']}`; known: {', '.join(ROLES)}")
        more = {k: v for k, v in item.items() if k not in ("role", "content") and v is not None and v != []}
        if unread := next((key for key in more if key in UNREADABLE), None):
            raise BadMessages(f"{where} has `{unread}`, which is not read here: take it out of the messages")
        if (calls := more.get("tool_calls")) is not None:
            if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
                raise BadMessages(f"{where} has `tool_calls` that are no list of objects")
            more["tool_calls"] = [_call(call) for call in calls]
        content = "" if item.get("content") is None and "tool_calls" in more else item.get("content")
        if isinstance(content, list):
            blocks = [isinstance(part, dict) and part.get("type") == "image" for part in content]
            if any(blocks) and not sees:
                raise BadMessages(f"{where} has an image: name the column that holds it with `data.images`")
            content = [{"text": MARK} if is_image else part for part, is_image in zip(content, blocks, strict=True)]
        if isinstance(content, list) and all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
        ):
            content = "".join(part["text"] for part in content)
        if not isinstance(content, str):
            raise BadMessages(f"{where} has content that is no text")
        messages.append({"role": item["role"], "content": content, **more})
    if not any(message["role"] == "user" for message in messages):
        raise BadMessages("the prompt's messages have no user turn")
    if messages[-1]["role"] == "assistant":
        raise BadMessages("the prompt's last message is the assistant's, which the model shall write; leave it out")
    if system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call with its arguments as an object: OpenAI writes them as JSON text, chat templates expect the object."""
    inner = call.get("function")
    if isinstance(inner, dict):
        return {**call, "function": _call(inner)}
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = loads(arguments)
        except RepeatedKey as err:
            raise BadMessages(f"the `arguments` of a tool call: {err}") from None
        except ValueError:
            return dict(call)
        return {**call, "arguments": parsed} if isinstance(parsed, dict) else dict(call)
    return dict(call)


def read_tools(value: object, is_chat: bool) -> list[dict[str, Any]] | None:
    """The tools that a row offers in its column `tools`, also as JSON text; None where it offers none.

    A row whose prompt is text may have a column of that name that means something else: only a list of tools counts.

    Raises:
        BadMessages: the prompt is a list of messages, but the column is not a list of tools.
    """
    if isinstance(value, str) and value.strip()[:1] == "[":
        try:
            value = loads(value)
        except RepeatedKey as err:
            raise BadMessages(f"the column `tools`: {err}") from None
        except ValueError:
            pass  # the text begins like a JSON list but is none
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, dict) and (isinstance(one.get("function"), dict) or "name" in one) for one in value)
    ):
        return value
    if is_chat and value not in (None, "", [], {}):
        raise BadMessages("the column `tools` is no list of tools, each with a `name` or a `function`")
    return None


def prompt_text(messages: Sequence[Message]) -> str:
    """The chat as text, for records and the screen, without the system turn."""
    shown = []
    for message in messages:
        if message["role"] not in ("system", "developer"):
            calls = message.get("tool_calls")
            parts = [message["content"], json.dumps(calls, ensure_ascii=False) if calls else ""]
            shown.append("\n".join(filter(None, parts)))
    return "\n\n".join(shown)
