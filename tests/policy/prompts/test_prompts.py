"""Prompts of known families: the same text and tokens as transformers makes, with a way out where none can be made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError, SetupError
from grpo_cli.jobs.check.tokens import full_prompt_maker, prompt_maker
from grpo_cli.policy.prompts.turns import doubles
from grpo_cli.policy.tokens import decode, encode, prompts_of, special_tokens, tag_tokens, tags_among
from grpo_cli.recipe.sections.recipe import Model
from grpo_verifiers.thinking import after_thinking
from tests.builders.chat_models import CHATML, FAMILIES, make_tokenizer

ASK = [{"role": "user", "content": "What is 2+3? 🙂"}]
BRIEF = [{"role": "system", "content": "Be brief."}, *ASK]
TALK = [*ASK, {"role": "assistant", "content": "<think>2 and 3</think> 5"}, {"role": "user", "content": "And 3+4?"}]
TOOL = {"type": "function", "function": {"name": "add", "description": "a+b", "parameters": {"type": "object"}}}
CHATS = sorted(name for name, family in FAMILIES.items() if family.template)


def row(messages: list[dict[str, Any]] | None = None, **more: Any) -> Row:
    said = messages if messages is not None else ASK
    return Row("r", said[-1]["content"], said, {}, "rows.jsonl:1", **more)


def plain(text: str, prefill: str = "") -> Row:
    return Row("r", text, None, {}, "rows.jsonl:1", prefill=prefill)


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("chat", [ASK, BRIEF, TALK], ids=["ask", "brief", "talk"])
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}], ids=["", "off"])
def test_prompts_are_those_of_transformers(name: str, chat: list[dict[str, Any]], options: dict[str, Any]) -> None:
    tokenizer = make_tokenizer(name)
    try:
        wanted = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False, **options
        )
    except TemplateError as err:
        with pytest.raises(SetupError, match=str(err).splitlines()[0]):
            encode(tokenizer, row(chat), options)
    else:
        assert encode(tokenizer, row(chat), options) == wanted


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_check_makes_the_same_tokens_without_transformers(name: str, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(name)
    tokenizer.save_pretrained(tmp_path)
    model, chat = Model(path=str(tmp_path)), {"enable_thinking": False}
    rows = [row(), row(TALK), row(prefill="So ")] if FAMILIES[name].template else [plain("abc"), plain("abc", "d")]
    for one in rows:
        wanted = encode(tokenizer, one, chat)
        assert prompt_maker(model, chat).ids([one]) == [wanted]
        assert full_prompt_maker(model, chat).ids([one]) == [wanted]


def test_tools_with_a_template_of_their_own_take_it(tmp_path: Path) -> None:
    tokenizer = make_tokenizer("qwen3", chat_template={"default": "D{{ messages[0].content }}", "tool_use": CHATML})
    with_tools = row(tools=[TOOL])
    wanted = tokenizer.apply_chat_template(
        ASK, tools=[TOOL], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert encode(tokenizer, with_tools) == wanted != encode(tokenizer, row())
    tokenizer.save_pretrained(tmp_path)
    assert prompt_maker(Model(path=str(tmp_path))).ids([with_tools, row()]) == [wanted, encode(tokenizer, row())]


def test_a_tokenizer_without_template_names_both_ways_out() -> None:
    with pytest.raises(SetupError) as caught:
        encode(make_tokenizer("base"), row())
    assert "no chat template" in str(caught.value)
    assert "data.plain: true" in caught.value.hint and "model.chat_template" in caught.value.hint
    assert caught.value.code == 4


@pytest.mark.parametrize("name", ["gemma", "mistral"])
def test_a_template_that_refuses_a_system_turn_says_the_row_and_the_way_out(name: str) -> None:
    with pytest.raises(SetupError) as caught:
        prompts_of(make_tokenizer(name)).refuse([row(), row(BRIEF)])
    (mistake,) = caught.value.mistakes
    assert mistake.place == "rows.jsonl:1" and "refuses this row" in mistake.message
    assert "data.prompt" in caught.value.hint


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
        ("{% for m in messages %}{{ m.content }}", "line 1"),
        ("{{ messages[0].content | no_such_filter }}", "no_such_filter"),
        ("{{ ().__class__.__bases__[0].__subclasses__()[0].x }}", "unsafe|undefined"),
    ],
)
def test_a_template_that_fails_in_any_way_is_told_in_its_words(template: str, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        encode(make_tokenizer("qwen3", chat_template=template), row())


def test_a_template_that_drops_a_turn_without_a_word_is_refused() -> None:
    drops = make_tokenizer(
        "qwen3", chat_template="{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    )
    prompts_of(drops).refuse([row()])
    with pytest.raises(SetupError, match="leaves the system turn of this row out"):
        prompts_of(drops).refuse([row(), row(BRIEF)])
    constant = make_tokenizer("qwen3", chat_template="{{ 'Hello' }}")
    with pytest.raises(SetupError, match="leaves the user turn"):
        prompts_of(constant).refuse([row()])


@pytest.mark.parametrize("name", CHATS)
def test_no_family_is_taken_for_one_that_drops_turns(name: str) -> None:
    chats = [ASK, TALK] if name in ("gemma", "mistral") else [ASK, TALK, BRIEF]
    prompts_of(make_tokenizer(name)).refuse([row(chat) for chat in chats])


def test_tools_that_a_template_ignores_are_refused() -> None:
    with pytest.raises(DataError, match="leaves the `tools` of this row out"):
        prompts_of(make_tokenizer("llama3")).refuse([row(), row(tools=[TOOL])])
    prompts_of(make_tokenizer("qwen3")).refuse([row(tools=[TOOL])])


def test_the_prefill_stands_at_the_end_of_any_prompt() -> None:
    for name in ("qwen3", "deepseek_r1", "base"):
        tokenizer = make_tokenizer(name)
        make = (lambda **more: row(**more)) if FAMILIES[name].template else (lambda **more: plain("abc", **more))
        bare, begun = (tokenizer.decode(encode(tokenizer, make(**more))) for more in ({}, {"prefill": "Let me see"}))
        assert begun == bare + "Let me see"


@pytest.mark.parametrize(
    ("name", "options", "prefill", "assistant_prefix"),
    [
        ("deepseek_r1", {}, "", "<think>\n"),
        ("deepseek_r1", {}, "Hm, ", "<think>\nHm, "),
        ("qwen3", {}, "", ""),
        ("qwen3", {"enable_thinking": False}, "", ""),
        ("qwen3", {}, "<think>\n", "<think>\n"),
        ("gemma", {}, "The answer is ", "The answer is "),
    ],
)
def test_what_the_prompt_begins_of_the_answer(
    name: str, options: dict[str, Any], prefill: str, assistant_prefix: str
) -> None:
    assert prompts_of(make_tokenizer(name), options).assistant_prefix(row(prefill=prefill)) == assistant_prefix


def test_a_plain_prompt_that_ends_in_an_open_thinking_begins_the_answer() -> None:
    prompts = prompts_of(make_tokenizer("base"))
    assert prompts.assistant_prefix(plain("Question. Assistant: <think>\n")) == "<think>\n"
    assert prompts.assistant_prefix(plain("Think in <think> </think> tags. 1+1?")) == ""


MOON = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<moon_think>{{ m.reasoning_content }}</moon_think>\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if opened %}<moon_think>\n{% endif %}{% endif %}"
)


def test_marks_of_thinking_are_those_of_the_template() -> None:
    made = make_tokenizer("qwen3")
    assert prompts_of(made).thinking_marks == ("", "")  # known to every verifier
    assert prompts_of(make_tokenizer("base")).thinking_marks == ("", "")
    made.chat_template = MOON
    marks = prompts_of(made).thinking_marks
    assert marks == ("<moon_think>", "</moon_think>")
    spelt = marks.spelt("<moon_think>It is \\boxed{5}</moon_think>I do not know.")
    assert spelt == "<think>It is \\boxed{5}</think>I do not know."
    assert after_thinking(spelt).text == "I do not know."
    assert prompts_of(made, {"opened": True}).assistant_prefix(row()) == "<think>\n"
    assert tags_among({7: "<moon_think>", 8: "</moon_think>", 9: "<|im_end|>"}, {}, marks) == {7, 8}


def test_arguments_that_no_template_reads_are_known() -> None:
    options = {"enable_thinking": False, "enable_thinkin": True}
    assert prompts_of(make_tokenizer("qwen3"), options).unread_args() == ["enable_thinkin"]
    assert prompts_of(make_tokenizer("gemma"), options).unread_args() == ["enable_thinkin", "enable_thinking"]


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_decoding_keeps_tags_and_nothing_else_that_is_special(name: str) -> None:
    tokenizer = make_tokenizer(name)
    special = special_tokens(tokenizer)
    kept = {special[token] for token in tag_tokens(tokenizer)}
    assert kept == ({"<think>", "</think>", "<answer>", "</answer>"} if name == "tags" else set())
    text = "".join(special.values()) + "a"
    ids = [tokenizer(text, add_special_tokens=False).input_ids]
    wanted = "".join(word for word in special.values() if word in kept) + "a"
    assert decode(tokenizer, ids, tag_tokens(tokenizer)) == [wanted]


def test_words_of_the_template_in_the_rows_are_found() -> None:

    def said(rows: list[Row], family: str = "qwen3") -> list[str]:
        made = make_tokenizer(family)
        return doubles(rows, special_tokens(made), tag_tokens(made), lambda one: encode(made, one))

    twice = row([{"role": "user", "content": "<|im_start|>user\n2+3?<|im_end|>"}])
    assert [text.split("`")[1] for text in said([row(), twice])] in (
        ["<|im_start|>", "<|im_end|>"],
        ["<|im_end|>", "<|im_start|>"],
    )
    assert all("1 of 2 prompts" in text and "twice" in text for text in said([row(), twice]))
    assert said([row()]) == said([plain("<|im_start|>user\nalready templated<|im_end|>")]) == []
    (first,) = said([plain("<|begin_of_text|>abc")], "llama3")
    assert "`<|begin_of_text|>` stands twice" in first
    assert said([plain("abc")], "llama3") == []
    assert said([row([{"role": "user", "content": "think in <think> tags"}])], "tags") == []


LLAMA32 = (
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{%- endif %}"
    "Today Date: {{ date_string }}\n{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"
)
GRANITE = (
    "{%- if messages[0]['role'] != 'system' %}Today's Date: {{ strftime_now('%B %d, %Y') }}.\n{% endif %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"
)
GPT_OSS = "Current date: {{ strftime_now('%Y-%m-%d') }}\n{% for m in messages %}{{ m.content }}{% endfor %}"
COPY = "write the date into a copy of the template and name that with `model.chat_template`"
DATED = {
    "an argument takes it": (LLAMA32, {}, [row()], r'set `model.template_args: {date_string: "\d\d \w+ \d{4}"}`'),
    "the argument is given": (LLAMA32, {"date_string": "26 Jul 2024"}, [row()], None),
    "no argument takes it": (GPT_OSS, {}, [row()], COPY),
    "a system turn takes its place": (GRANITE, {}, [row(BRIEF)], None),
    "only rows without a system turn": (GRANITE, {}, [row(BRIEF), row()], COPY),
    "no clock": (CHATML, {}, [row()], None),
    "plain text": (GPT_OSS, {}, [plain("What?")], None),
    "read and not written": ("{% set d = strftime_now('%Y') %}{{ messages[0].content }}", {}, [row()], None),
    "weekdays alone": ("{{ strftime_now('%A') }}{{ messages[0].content }}", {}, [row()], COPY),
    "seconds alone": ("{{ strftime_now('%S') }}{{ messages[0].content }}", {}, [row()], COPY),
}  # fmt: skip


@pytest.mark.parametrize("case", DATED)
def test_a_template_that_writes_the_date_is_known_with_the_key_that_fixes_it(case: str) -> None:
    template, args, rows, wanted = DATED[case]
    prompts = prompts_of(make_tokenizer("qwen3", chat_template=template), args)
    fix = prompts.clock(rows)
    assert (fix is None) if wanted is None else re.fullmatch(wanted, fix or ""), fix
