"""Turns a row into its prompt text, for all jobs. Nothing here imports torch.

A row with messages goes through the chat template; behind it, and behind plain text, stands the row's `prefill`: the
beginning of the assistant's turn. What cannot be rendered is refused before weights are loaded (`refuse`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from grpo_cli.data.images import with_blocks
from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError, SetupError
from grpo_cli.policy.prompts.chat_template import ChatTemplate
from grpo_cli.policy.prompts.trial import TemplateRefuses
from grpo_verifiers.thinking import after_thinking, opening_at_end

NO_TEMPLATE = "the model's tokenizer has no chat template: its prompts cannot be chats"
CLOCK = "the chat template writes the date into the prompts (`strftime_now`): a resume on another day is refused"
NO_TEMPLATE_MENDS = "set `data.plain: true` for a base model, or give a template with `model.chat_template`"


_LAST_MARK = re.compile(r"(<[^<>\s]{1,60}>\w{0,20}|\S{1,60})\s*\Z")
THOUGHT, ANSWERED = "First thought.", "First answer."


class ThinkingMarks(NamedTuple):
    """What a chat template writes before and behind a thinking, where verifiers know no such spelling; else empty."""

    begin: str = ""
    end: str = ""

    def spelt(self, text: str) -> str:
        """The text with these marks as `<think>` and `</think>`, which every verifier knows."""
        return text.replace(self.begin, "<think>").replace(self.end, "</think>") if self.begin else text


@dataclass(frozen=True)
class Prompts:
    """How rows become prompts: `chat` is None where the tokenizer has no chat template."""

    chat: ChatTemplate | None

    def text(self, row: Row) -> str:
        """The prompt of a row as the tokenizer gets it.

        Raises:
            SetupError: no chat template, or it does not take this row.
            DataError: it leaves tools or tool calls of the row out.
        """
        if row.messages is None:
            return row.prompt + row.prefill
        text = self._render(row, row.messages, row.tools)
        # render without the tools: if the prompt stays the same, the template never shows them to the model
        bare = [{k: v for k, v in message.items() if k != "tool_calls"} for message in row.messages]
        ignored = ""
        if row.tools and text == self._render(row, row.messages, None):
            ignored = "the `tools`"
        elif bare != row.messages and text == self._render(row, bare, row.tools):
            ignored = "the `tool_calls`"
        if ignored:
            raise DataError(
                f"the model's chat template leaves {ignored} of this row out of the prompt",
                place=row.place,
                hint="take a model whose template renders them, or take them out of the rows",
            )
        return text + row.prefill

    def chat_text(self, messages: Sequence[Mapping[str, Any]], *, opens: bool) -> str:
        """Messages that belong to no row, such as the turns of an episode.

        Raises:
            SetupError: no chat template.
            TemplateRefuses: it does not take these messages.
        """
        if self.chat is None:
            raise SetupError(NO_TEMPLATE, hint=NO_TEMPLATE_MENDS)
        return self.chat.render(messages, opens=opens)

    def assistant_prefix(self, row: Row) -> str:
        """The part of the assistant's turn that the prompt already contains: a thinking tag that the template opens,
        and the prefill."""
        text = self.text(row)
        # the template's opening stands before the prefill; only its last characters matter
        template = text.removesuffix(row.prefill) if row.prefill else text
        marks = self.thinking_marks
        return opening_at_end(marks.spelt(template)) + marks.spelt(row.prefill)

    @cached_property
    def thinking_marks(self) -> ThinkingMarks:
        """The marks of thinking that the template itself shows: it is asked with a turn that has a thought."""
        if self.chat is None:
            return ThinkingMarks()
        turn = {"role": "assistant", "content": ANSWERED}
        turn |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), THOUGHT)
        try:
            text = self.chat.render([{"role": "user", "content": "First question?"}, turn], opens=False)
        except (TemplateRefuses, SetupError):  # `refuse` reports what it does not render
            return ThinkingMarks()
        before, _, behind = text.partition(THOUGHT)
        begin, end = _LAST_MARK.search(before), behind.partition(ANSWERED)[0].strip()
        if begin is None or not end or ANSWERED not in behind:
            return ThinkingMarks()
        known = after_thinking(f"{begin[1]}{THOUGHT}{end}{ANSWERED}")
        return ThinkingMarks() if known.has_thought else ThinkingMarks(begin[1], end)

    def refuse(self, rows: Iterable[Row]) -> None:
        """Try one row of each sequence of roles.

        Raises:
            SetupError, DataError: as `text`; or the template leaves a turn out.
        """
        for row in one_of_each(rows):
            self.text(row)
            messages = list(row.messages or ())
            text = self._render(row, messages, row.tools) if messages else ""
            for i, message in enumerate(messages):
                # earlier assistant turns may be left out: some templates drop thoughts, and the task is in other turns
                if message["role"] == "assistant" or not message["content"].strip():
                    continue
                # change one word of the turn: a template that shows the turn must show the change
                other = [*messages[:i], {**message, "content": message["content"] + "x"}, *messages[i + 1 :]]
                if text == self._render(row, other, row.tools):
                    lost = str(message["role"])
                    raise SetupError(
                        f"the model's chat template leaves the {lost} turn of this row out of the prompt",
                        place=row.place,
                        hint=_role_mend(lost),
                    )

    def unread_args(self) -> list[str]:
        """Names of template arguments that the template does not read."""
        if self.chat is None:
            return []
        try:
            read = self.chat.variables()
        except TemplateRefuses:
            return []  # `refuse` reports it
        return sorted(set(self.chat.args) - read)

    def clock(self, rows: Iterable[Row]) -> str | None:
        """How to fix the date that the template writes into these prompts; None where it writes none."""
        for row in one_of_each(rows):
            if self.chat is None or row.messages is None:
                continue
            if (
                fix := self.chat.clock_fix(with_blocks(row.messages) if row.images else row.messages, row.tools)
            ) is not None:
                return fix
        return None

    def _render(
        self, row: Row, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> str:
        if self.chat is None:
            raise SetupError(NO_TEMPLATE, hint=NO_TEMPLATE_MENDS)
        messages = with_blocks(messages) if row.images else messages
        try:
            return self.chat.render(messages, tools)
        except TemplateRefuses as err:
            # find the hint by leaving out what some templates do not accept
            mend = "give another template with `model.chat_template`, or render the prompt yourself with `data.plain: true`"
            for role in ("system", "developer", "tool"):
                if any(m["role"] == role for m in row.messages or ()):
                    with suppress(TemplateRefuses):
                        self.chat.render([m for m in messages if m["role"] != role])
                        mend = _role_mend(role)
            words = f"the model's chat template refuses this row: {err}"
            raise SetupError(words, place=row.place, hint=mend) from err


def _role_mend(role: str) -> str:
    if role in ("system", "developer"):
        return "put its words into `data.prompt`, or give a template that takes it with `model.chat_template`"
    return "take such turns out of the rows, or give a template that takes them with `model.chat_template`"


def one_of_each(rows: Iterable[Row]) -> Iterator[Row]:
    """The first row of each sequence of roles, with and without tools."""
    # a template branches on roles and tools, not on words: one row of a shape shows what it does with all
    seen = set()
    for row in rows:
        shape = (
            None if row.messages is None else tuple((m["role"], "tool_calls" in m) for m in row.messages),
            bool(row.tools),
        )
        if shape not in seen:
            seen.add(shape)
            yield row
