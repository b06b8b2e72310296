"""Chat templates that would go on for ever or fill the memory: found out in a process that may be killed."""

from __future__ import annotations

import resource
import time

import pytest

from grpo_cli.errors import Exit, SetupError
from grpo_cli.policy.prompts.chat_template import ChatTemplate, TemplateRefuses

ASK = [{"role": "user", "content": "What is 2+3?"}]
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}@{% endfor %}{% endfor %}{% endfor %}"
ENDLESS = {
    "nested loops": LOOP.replace("@", ""),
    "a macro that calls itself twice": "{% macro a(n) %}{% if n %}{{ a(n-1) }}{{ a(n-1) }}{% endif %}{% endmacro %}{{ a(60) }}",
    "only for long messages": "{% if messages[0].content|length > 9999 %}"
    + LOOP.replace("@", "")
    + "{% endif %}",
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


def test_a_long_system_prompt_and_many_turns_are_no_burst() -> None:
    template = "{{ 'Be good. ' * 10000 }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    talk = [{"role": role, "content": "x" * 5000} for _ in range(50) for role in ("user", "assistant")]
    assert ChatTemplate(template).render(talk).count("<user>") == 50
