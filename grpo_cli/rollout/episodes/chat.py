"""Messages of harnesses as the ids that a policy reads, and its ids as messages.

How this works: `render` makes the ids of a whole request, where a history begins. Behind a turn that was sampled only `suffix` is rendered,
as the chat template puts it there; what stands before are the ids themselves. `reply` makes text and calls of sampled ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from grpo_cli.environments.endpoint.messages import Asked, Call, Message, Reply, RequestRefused, canonical
from grpo_cli.environments.tools.calls import CallForm, call_id, read_calls, turn_with_calls
from grpo_cli.errors import SetupError
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.prompts.conversation import ANSWERS, WORDS, Conversation, call_form
from grpo_cli.policy.prompts.trial import TemplateRefuses
from grpo_cli.rollout.engine import Completion

MOST_KEPT = 4096
"""Suffixes that are remembered."""


class Chat:
    """Messages as the ids that a policy reads, and its ids as messages: rendered once, never encoded again."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.prompts = policy, policy.prompts
        name = str(getattr(policy.model, "name_or_path", "")) or "the model"
        self.form: CallForm | None
        try:
            self.form = call_form(self.prompts, name)
        except SetupError:
            self.form = None
        self.conversation = Conversation(
            lambda messages, opens: self.prompts.chat_text(messages, opens=opens),
            self._encode,
            policy.end_ids,
            "user",
            name,
            self.form,
        )
        self._suffixes: dict[tuple[Any, ...], tuple[list[int], int] | None] = {}

    def render(self, messages: Sequence[Message], tools: Sequence[str]) -> list[int]:
        """The ids of a whole request.

        Raises:
            RequestRefused: the template does not take it.
            SetupError: there is no template, or it bursts its limits.
        """
        if tools and self.form is None:
            raise RequestRefused("the model's chat template does not say how tools are called: ask without `tools`")
        shown, offered = [self._shown(one) for one in messages], [json.loads(one) for one in tools]
        assert self.prompts.chat is not None
        try:
            return self._encode(self.prompts.chat.render(shown, offered))
        except TemplateRefuses as err:
            raise RequestRefused(f"the model's chat template refuses these messages: {err}") from err

    def suffix(self, turn: Message, last: int, tail: Sequence[Message]) -> list[int] | None:
        """The ids behind a turn that ended with the id `last`, as `tree.Suffix`."""
        called, thinks = tuple(call.name for call in turn.calls), "</think>" in turn.text
        key = called, thinks, tuple(tail)
        if key not in self._suffixes:
            if len(self._suffixes) >= MOST_KEPT:
                self._suffixes.clear()
            shown = [self._shown(one) for one in tail]
            try:
                said, found = self.conversation.parted_by(shown, WORDS, called)
                # a template that takes thoughts out of earlier turns cannot go on behind one
                is_kept = not thinks or self.conversation.parted_by(shown, ANSWERS[1], called)[1] == found
                self._suffixes[key] = (found, said[-1]) if is_kept else None
            except SetupError:
                self._suffixes[key] = None
        known = self._suffixes[key]
        if known is None:
            return None
        found, closing = known
        return found if last in self.policy.end_ids else [closing, *found]

    def reply(self, asked: Asked, prompt: list[int], sampled: Completion) -> tuple[Reply, list[Message]]:
        """The answer to a request, and the forms in which its harness may send it back."""
        ids = sampled.token_ids
        (text,), (whole,) = self.policy.decode([ids]), self.policy.decode_whole([ids])
        calls: tuple[Call, ...] = ()
        if asked.tools and asked.reads_calls and self.form is not None:
            found = read_calls(whole, self.form)
            # a call that is none is text: its harness tells the model so
            if found and not any(call.error for call in found):
                types = {tool["name"]: tool["parameters"] for tool in (json.loads(t)["function"] for t in asked.tools)}
                calls = tuple(
                    Call(
                        one.name,
                        canonical(_typed(one.arguments, types.get(one.name, {})) if one.is_text else one.arguments),
                    )
                    for one in found
                )
                text = whole.split(self.form.opens)[0].strip() if self.form.opens else ""
        stopped_by, uncut = None, text
        if sampled.finish == "stop" and ids[-1] not in self.policy.end_ids and not calls:
            at = {text.find(stop): stop for stop in reversed(asked.stop) if stop in text}
            if at:
                stopped_by = at[min(at)]
                text = text[: min(at)]
        pieces = self.policy.decode_whole([[token] for token in ids]) if "logprobs" in asked.shows else ()
        said = Message("assistant", text, calls)
        forms = [said] if text == uncut else [said, replace(said, text=text + (stopped_by or ""))]
        return Reply(said, sampled.finish, prompt, ids, sampled.logps, stopped_by, pieces), forms

    def _encode(self, text: str) -> list[int]:
        return list(self.policy.tokenizer(text, add_special_tokens=False).input_ids)

    def _shown(self, message: Message) -> dict[str, Any]:
        """A message as templates have it."""
        if message.role == "tool":
            answers = {"name": message.name, "tool_call_id": call_id(message.answers)}
            return {"role": "tool", "content": message.text} | answers
        if not message.calls:
            return {"role": message.role, "content": message.text}
        shown = turn_with_calls([call.name for call in message.calls], {}, message.text)
        as_text = self.form is not None and self.form.as_text
        for one, call in zip(shown["tool_calls"], message.calls, strict=True):
            one["function"]["arguments"] = call.arguments if as_text else call.parsed
        return shown


def _typed(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a template writes as text, as their tool's schema has them."""
    kinds = schema.get("properties")
    found = {}
    for name, value in arguments.items():
        kind = kinds.get(name) if isinstance(kinds, dict) else None
        found[name] = value
        if isinstance(kind, dict) and kind.get("type", "string") != "string":
            with suppress(ValueError, RecursionError):
                found[name] = json.loads(value)
    return found
