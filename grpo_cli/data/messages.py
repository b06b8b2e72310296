"""Prompts that already are chat messages. The last one must not be the assistant's: that is what the model shall write."""

from __future__ import annotations

from typing import Any

ROLES = ("system", "user", "assistant", "tool", "developer")


class BadMessages(ValueError):
    """A message list that cannot be a prompt."""


def as_chat(prompt: str, system: str | None) -> list[dict[str, str]]:
    """A text prompt as a chat of one user turn."""
    head = [{"role": "system", "content": system}] if system is not None else []
    return [*head, {"role": "user", "content": prompt}]


def read_messages(value: list[Any], system: str | None) -> list[dict[str, str]]:
    """The messages, checked; `system` is put in front unless the list brings its own.

    Raises:
        BadMessages: unknown role, content that is no text, no user turn, or an assistant turn at the end.
    """
    messages = [_message(item, number) for number, item in enumerate(value, start=1)]
    if not any(message["role"] == "user" for message in messages):
        raise BadMessages("the prompt's messages have no user turn")
    if messages[-1]["role"] == "assistant":
        raise BadMessages(
            "the prompt's last message is the assistant's, which the model shall write; leave it out"
        )
    if system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _message(item: Any, number: int) -> dict[str, str]:
    if not isinstance(item, dict) or "role" not in item or "content" not in item:
        raise BadMessages(f"message {number} of the prompt is no object with `role` and `content`")
    if item["role"] not in ROLES:
        raise BadMessages(
            f"message {number} of the prompt has the role `{item['role']}`; known: {', '.join(ROLES)}"
        )
    return {"role": item["role"], "content": _text(item["content"], number)}


def _text(content: Any, number: int) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise BadMessages(f"message {number} of the prompt has content that is no text")


def prompt_text(messages: list[dict[str, str]]) -> str:
    """The text that stands for the chat in records and on the screen: its turns without the system's."""
    return "\n\n".join(
        message["content"] for message in messages if message["role"] not in ("system", "developer")
    )
