"""Renders a model's chat template. All rendering is here, so every job gets the same text, with or without
transformers.

Templates are programs that come with a model: they run in jinja's sandbox, on plain JSON values. They get the same
functions as in transformers (`tojson`, `raise_exception`, `strftime_now`, `{% generation %}`, loop controls). Their
time and memory are bounded by the process that renders them (`trial`). No torch in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, meta

from grpo_cli.policy.prompts.trial import TemplateRefuses, at_line, environment, render_beside, rendered
from grpo_cli.policy.tiny import CHAT_TEMPLATE

Templates = str | Mapping[str, str]
"""One template, or several by name, of which `tool_use` serves rows with tools and `default` all others."""

GIVEN = ("messages", "tools", "documents", "add_generation_prompt")
TWO_TIMES = (datetime(2001, 2, 3, 4, 5, 6), datetime(2012, 12, 13, 20, 8, 7))
"""Two points in time that differ in every date format."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys under which data sets keep the thinking of an earlier turn; templates read the first or the second."""


@dataclass(frozen=True)
class ChatTemplate:
    """Templates of a tokenizer with its named special tokens (`bos_token`, …) and what a recipe gives them in addition."""

    templates: Templates
    special: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        opens: bool = True,
        clock: datetime | None = None,
    ) -> str:
        """The text of a chat. `opens` adds the opening of the assistant's turn; `clock` is the time that the template
        sees.

        Raises:
            TemplateRefuses: the template refuses these messages, or fails.
            SetupError: it goes on for ever, or makes far too much.
        """
        return self._dated(messages, tools, opens=opens, clock=clock)[0]

    def _dated(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        opens: bool = True,
        clock: datetime | None = None,
    ) -> tuple[str, list[str]]:
        """The text with the dates that the template wrote into it."""
        # pass None for an empty list of tools: some templates would write a header without tools
        shown = {"messages": [_plain(m) for m in messages], "tools": tools or None, "documents": None}
        # the recipe's arguments may replace a special token, but not the messages
        given: dict[str, Any] = {**self.special, **self.args, **shown, "add_generation_prompt": opens}
        source = self.templates if isinstance(self.templates, str) else None
        for name in ("tool_use", "default") if tools else ("default",):
            if not isinstance(self.templates, str) and source is None:
                source = self.templates.get(name)
        if source is None:
            names = ", ".join(sorted(self.templates))
            raise TemplateRefuses(f"there are several templates ({names}) and none is the default")
        make = rendered if source == CHAT_TEMPLATE else render_beside  # that one is ours
        return make(source, given, clock)

    def clock_fix(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str | None:
        """How to get the same prompt every day: the template argument that sets the date in place of the clock, if
        there is one. None where the clock does not change the text of these messages.

        Raises:
            TemplateRefuses: as `render`.
        """

        # rendered at two times, not searched for `strftime_now`: a template may read the clock for some messages only
        def differs(template: ChatTemplate) -> bool:
            return len({template.render(messages, tools, clock=time) for time in TWO_TIMES}) > 1

        if not differs(self):
            return None
        _, dates = self._dated(messages, tools)
        for name in sorted(self.variables()):
            fixed = replace(self, args={**self.args, name: dates[0]})
            with suppress(TemplateRefuses):
                if dates[0] in fixed.render(messages, tools) and not differs(fixed):
                    return f'set `model.template_args: {{{name}: "{dates[0]}"}}`'
        return "write the date into a copy of the template and name that with `model.chat_template`"

    def variables(self) -> set[str]:
        """Names of the variables that the templates read beyond the messages and the standard arguments.

        Raises:
            TemplateRefuses: a template that cannot be read.
            SetupError: as `render`.
        """
        sources = [self.templates] if isinstance(self.templates, str) else list(self.templates.values())
        env = environment()
        for source in sources:
            with suppress(TemplateRefuses):  # a template that cannot be read is refused below, with jinja's message
                replace(self, templates=source).render([{"role": "user", "content": "x"}])
        try:
            found = set().union(*(meta.find_undeclared_variables(env.parse(source)) for source in sources))
        except (TemplateError, RecursionError) as err:
            raise TemplateRefuses(at_line(err) if isinstance(err, TemplateError) else str(err)) from err
        # what is left over must come from the recipe
        return found - set(GIVEN) - set(self.special) - set(env.globals)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without null values, with its thinking under both names that templates read."""
    # data sets write every key into every message, null where it has none; templates test whether a key is there
    plain = {key: value for key, value in message.items() if value is not None}
    reasoning = next((plain[key] for key in REASONING if key in plain), None)
    # under both names that templates read, whichever the row has
    return plain if reasoning is None else {"thinking": reasoning, **plain, "reasoning_content": reasoning}
