"""Chat templates that would go on for ever or fill the memory: found out in a process that may be killed."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.app import app
from grpo_cli.errors import Exit, SetupError
from grpo_cli.policy.prompts import trial
from grpo_cli.policy.prompts.chat_template import ChatTemplate
from grpo_cli.policy.prompts.trial import TemplateRefuses
from tests.builders.chat_models import make_model

ASK = [{"role": "user", "content": "What is 2+3?"}]
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}@{% endfor %}{% endfor %}{% endfor %}"
ENDLESS = {
    "nested loops": LOOP.replace("@", ""),
    "a macro that calls itself twice": "{% macro a(n) %}{% if n %}{{ a(n-1) }}{{ a(n-1) }}{% endif %}{% endmacro %}{{ a(60) }}",
    "only for long messages": "{% if messages[0].content|length > 9999 %}" + LOOP.replace("@", "") + "{% endif %}",
}
HUGE = {
    "a constant as it is compiled": "{{ 'x' * 10**9 * 4 }}",
    "a product": "{{ 'x' * (messages|length * 10**9) }}",
    "a doubling in a namespace": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a padded field": "{{ '{:>9999999999}'.format(1) }}",
    "its own refusal": "{{ raise_exception('x' * 10**10) }}",
    "many pieces": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
}


def refused(template: str) -> str:
    began = time.process_time()
    with pytest.raises(SetupError) as caught:
        ChatTemplate(template).render(ASK)
    assert caught.value.code == Exit.SETUP and time.process_time() - began < 1
    return str(caught.value)


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_without_an_end_is_refused_by_name(template: str) -> None:
    said = refused(template)
    assert template[:30] in said and "does not come to an end" in said
    # and at once where it is met again
    began = time.monotonic()
    with pytest.raises(SetupError):
        ChatTemplate(template, args={"day": "1"}).render([*ASK, *ASK])
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("template", HUGE.values(), ids=HUGE)
def test_a_template_that_makes_gigabytes_leaves_the_memory_of_this_process_alone(template: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = refused(template)
    assert "MB for one prompt" in said or "characters of a prompt of" in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_what_a_template_reads_is_not_asked_of_one_that_fills_the_memory() -> None:
    with pytest.raises(SetupError, match="MB"):
        ChatTemplate("{{ 'x' * 10**9 * 4 }}{{ day }}").variables()


@pytest.mark.parametrize(
    "template",
    ["{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"],
    ids=["brackets", "a macro"],
)
def test_endless_depth_is_a_refusal_in_words(template: str) -> None:
    with pytest.raises((TemplateRefuses, SetupError)):
        ChatTemplate(template).render(ASK)


def test_words_of_a_refusal_are_short_and_without_control_characters() -> None:
    with pytest.raises(TemplateRefuses) as caught:
        ChatTemplate(r"{{ raise_exception('\x1b]0;x\x07' ~ 'y' * 100000) }}").render(ASK)
    assert len(str(caught.value)) <= 1000 and str(caught.value).startswith("␛]0;x␇y")


def test_half_a_surrogate_pair_is_a_refusal() -> None:
    with pytest.raises(TemplateRefuses, match="half of a surrogate pair"):
        ChatTemplate(r"{{ 'a\ud800' }}").render(ASK)


def test_a_long_system_prompt_and_many_turns_are_no_burst() -> None:
    template = "{{ 'Be good. ' * 10000 }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    talk = [{"role": role, "content": "x" * 5000} for _ in range(50) for role in ("user", "assistant")]
    assert ChatTemplate(template).render(talk).count("<user>") == 50


LATE = {
    "loops after the eighth message": "{% if messages|length > 8 %}" + LOOP.replace("@", "") + "{% endif %}",
    "loops for one word": "{% if 'burst' in messages[-1].content %}" + LOOP.replace("@", "") + "{% endif %}",
    "loops over what a message holds": "{% if 'burst' in messages[-1].content %}{% for a in messages[-1].content * 99 %}"
    "{% for b in messages[-1].content * 99 %}{% for c in messages[-1].content * 99 %}{% endfor %}{% endfor %}{% endfor %}{% endif %}",
    "a text of gigabytes": "{% if 'burst' in messages[-1].content %}{{ 'x' * 10**10 }}{% endif %}",
    "a number of gigabytes": "{% if 'burst' in messages[-1].content %}{{ (messages|length + 9) ** (9 ** 9) }}{% endif %}",
    "twice as long for each character": "{% if 'burst' in messages[-1].content %}{% set n = namespace(x='ab') %}"
    "{% for c in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{% endif %}",
}


@pytest.mark.parametrize("template", LATE.values(), ids=LATE)
def test_a_template_that_bursts_on_a_later_prompt_is_refused_there(template: str) -> None:
    chat = ChatTemplate(template + "{{ messages[-1].content }}")
    for number in range(20):
        assert chat.render([{"role": "user", "content": f"What is {number}?"}]) == f"What is {number}?"
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SetupError, match=r"come to an end|MB for one prompt"):
        chat.render([{"role": "user", "content": f"burst {'x' * 100}"}] * 9)
    assert time.process_time() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_healthy_template_pays_a_round_trip_and_no_process_for_each_prompt() -> None:
    chat = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    chat.render(ASK)
    (worker,) = trial._pool()._slots
    began = time.process_time()
    for number in range(500):
        assert chat.render([{"role": "user", "content": str(number)}]) == f"<user>{number}"
    assert time.process_time() - began < 0.5
    assert trial._pool()._slots == [worker]


@pytest.mark.parametrize("template", LATE.values(), ids=LATE)
@pytest.mark.parametrize("command", ["eval", "chat"])
def test_commands_end_in_a_sentence_where_a_later_prompt_bursts(
    command: str, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").write_text(template + "{{ messages[-1].content }}")
    rows: list[dict[str, Any]] = [{"question": f"What is {i}?", "answer": "1"} for i in range(9)]
    burst = [{"role": role, "content": "burst burst"} for _ in range(5) for role in ("user", "assistant")]
    rows.append({"question": [*burst, burst[0]], "answer": "1"})
    for name in ("train", "eval"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "model": "./model",
        "data": {"train": "train.jsonl", "eval": "eval.jsonl", "prompt": "{question}"},
        "verify": {"regex": {"pattern": "[a-m]"}},
        "sample": {"prompts": 2, "group": 2, "max_tokens": 4},
        "train": {"steps": 1},
        "eval": {"samples": 1, "k": [1]},
    }
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    words = {"eval": ["--display", "none"], "chat": ["--row", "9", "--samples", "1"]}[command]
    began = time.monotonic()
    with pytest.raises(SetupError, match=r"come to an end|MB for one prompt"):
        app([command, "./model", "--recipe", "r.yaml", *words], standalone_mode=False)
    assert time.monotonic() - began < 10 + 20  # seconds of a busy machine
