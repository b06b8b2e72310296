"""How rows become prompts and golds, for `grpo explain`: templates, their filters, chat rows. Each example is computed
when it is shown.

An example is a row and the template that reads it. `describe` fills the template, or reads the messages, when it is
called, so a page always shows what the program does; an example that is refused shows the refusal.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from grpo_cli.data.filters import FILTERS
from grpo_cli.data.messages import BadMessages, read_messages
from grpo_cli.data.template import FillError, TemplateError, gold_of, parse

WIDTH = 100
Fields = Mapping[str, Any]


class WorkedRow(NamedTuple):
    """A row, the template or system message applied to it, and a comment."""

    row: Fields
    template: str
    shows: str


class RowPage(NamedTuple):
    """The part of a page before its examples."""

    summary: str
    key: str
    examples: tuple[WorkedRow, ...]


GSM8K = {"question": "6 eggs, 7 times?", "answer": "6 * 7 = 42\n#### 42"}
TEMPLATES = (
    WorkedRow({"question": "2+2?"}, "{question}\nThink first.", "a column in text"),
    WorkedRow({"meta": {"level": 3}}, "{meta.level}", "inside an object"),
    WorkedRow({"choices": ["Rome", "Paris"]}, "{choices.1}", "an item of a list, from 0"),
    WorkedRow(GSM8K, "{answer | after('####') | number}", "filters, from left to right"),
    WorkedRow({"answer": "4"}, "\\boxed{{{answer}}}", "`{{` and `}}` are braces"),
    WorkedRow({"answer": ["4", "four"]}, "{answer}", "one placeholder alone gives the value itself"),
    WorkedRow({"hint": None}, "{hint | default('none')}", "instead of null, missing or empty"),
    WorkedRow({"answer": "4"}, "{anwser}", "a column that is not there refuses the row"),
    WorkedRow({"answer": None}, "{answer}", "null refuses the row too; `data.on_null: drop` leaves it out"),
    WorkedRow({"answer": "4"}, "{answer | nubmer}", "a mistake of the recipe, found before any row is read"),
)
LETTERS = {"choices": ["Rome", "Paris"], "correct": 1}
FILTER_EXAMPLES: dict[str, tuple[Fields, str]] = {
    "after": (GSM8K, "{answer | after('####')}"),
    "after_last": ({"answer": "a: 1, b: 2"}, "{answer | after_last(':')}"),
    "before": ({"answer": "42 eggs"}, "{answer | before(' ')}"),
    "boxed": ({"solution": "so \\boxed{\\frac{1}{2}}."}, "{solution | boxed}"),
    "choices": (LETTERS, "{choices | choices}"),
    "default": ({"hint": None}, "{hint | default('none')}"),
    "first_line": (GSM8K, "{answer | first_line}"),
    "join": (LETTERS, "{choices | join(' or ')}"),
    "json": ({"meta": '{"gold": {"value": 42}}'}, "{meta | json('gold.value')}"),
    "last_line": (GSM8K, "{answer | last_line}"),
    "letter": (LETTERS, "{correct | letter}"),
    "lower": ({"answer": "Paris"}, "{answer | lower}"),
    "number": ({"answer": "about 1,200 eggs."}, "{answer | number}"),
    "replace": ({"answer": "1 200"}, "{answer | replace(' ', '')}"),
    "strip": ({"answer": "  42 "}, "{answer | strip}"),
    "upper": ({"answer": "b"}, "{answer | upper}"),
}
USER = {"role": "user", "content": "2+2?"}
CALL = {"function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
CHATS = (
    WorkedRow({"messages": [USER]}, "", "one turn of the user"),
    WorkedRow({"messages": [USER]}, "Be brief.", "`data.system` is put in front"),
    WorkedRow({"messages": [{"role": "system", "content": "Think."}, USER]}, "Be brief.", "the row's own stays"),
    WorkedRow(
        {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "4"}]},
        "",
        "calls of tools reach the chat template; a column `tools` offers some",
    ),
    WorkedRow(
        {"messages": [USER, {"role": "assistant", "content": "4"}]},
        "",
        "what the model shall write must not stand there; `data.prefill` begins an answer",
    ),
    WorkedRow({"messages": [{"role": "human", "content": "2+2?"}]}, "", "a role of another format"),
    WorkedRow({"messages": [USER | {"images": ["a.png"]}]}, "", "only text is read"),
)
PAGES = {
    "templates": RowPage(
        "Text with columns of the row in it: `{column}`, `{column.key}`, `{column.0}`, each through filters as in "
        "`{answer | after('####') | number}`. A filter that finds nothing refuses the row, with its line: a gold that "
        "silently became something else would be trained on. See `grpo explain filters`.",
        'data: {prompt: "{question}", answer: "{answer | number}"}',
        TEMPLATES,
    ),
    "filters": RowPage(
        "What may stand behind `|` in a template. Text in, text out; `json` alone may give a list or an object. One that "
        "finds nothing refuses the row, unless `default` comes after it.",
        "data: {answer: \"{answer | after('####') | number}\"}",
        (),
    ),
    "chat": RowPage(
        "Rows whose prompt is a list of messages, `role` and `content` each. It goes through the model's chat template as "
        "it is. Roles are system, developer, user, assistant and tool; there must be a turn of the user, and the last one "
        "is not the assistant's.",
        'data: {prompt: "{messages}"}',
        CHATS,
    ),
}

PAGES["messages"] = PAGES["chat"]


def names() -> list[str]:
    """The pages, then every filter."""
    return [*PAGES, *FILTERS]


def describe(name: str) -> dict[str, Any]:
    """Summary, the line that sets it, and examples with their current results."""
    if name in FILTERS:
        fields, template = FILTER_EXAMPLES[name]
        worked = _worked(WorkedRow(fields, template, ""))
        return {"page": name, "summary": about(name), "set": f'data: {{answer: "{template}"}}', "examples": [worked]}
    page = PAGES[name]
    examples = page.examples
    if name == "filters":
        examples = tuple(WorkedRow(*FILTER_EXAMPLES[one], f"{one}: {about(one)}") for one in FILTERS)
    worked_all = [_worked(example, is_chat=page is PAGES["chat"]) for example in examples]
    return {"page": name, "summary": page.summary, "set": page.key, "examples": worked_all}


def about(name: str) -> str:
    """What a filter does, from its function."""
    return FILTERS[name].gives


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    lines = [described["page"], "", *textwrap.wrap(described["summary"], WIDTH), "", f"set with `{described['set']}`"]
    lines += ["", "examples, worked now"]
    for one in described["examples"]:
        lines += textwrap.wrap(one["shows"], WIDTH, initial_indent="  ", subsequent_indent="  ")
        said = {"row": one["row"], "template": one["template"], "system": one.get("system")}
        said |= {"gives": one["gives"]} if one["refused"] is None else {"refused": one["refused"]}
        for word, value in said.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                lines += textwrap.wrap(
                    text.replace("\n", "⏎"),
                    WIDTH,
                    initial_indent=f"    {word:<9} ",
                    subsequent_indent=" " * 14,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return "\n".join(lines)


def _worked(example: WorkedRow, *, is_chat: bool = False) -> dict[str, Any]:
    said: dict[str, Any] = {"row": example.row, "template": example.template, "shows": example.shows}
    if is_chat:
        said |= {"template": "{messages}", "system": example.template or None}
    try:
        if is_chat:
            return said | {"gives": read_messages(example.row["messages"], example.template or None), "refused": None}
        return said | {"gives": gold_of(parse(example.template), example.row), "refused": None}
    except (FillError, TemplateError, BadMessages) as err:
        return said | {"gives": None, "refused": str(err)}
