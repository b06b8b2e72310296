"""Turns of a talk, with a model that says what it was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError
from grpo_cli.jobs.chat import Talk, place_of
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"


class Parrot:
    """Answers with as many `a` as it was asked before; keeps the prompts and settings."""

    name = "parrot"

    def __init__(self, policy: Policy, finish: str = "stop") -> None:
        self.policy, self.finish = policy, finish
        self.prompts: list[str] = []
        self.seeds: list[int | None] = []

    def generate(self, requests: list[Request], settings: SamplingSettings, **_: Any) -> list[list[Completion]]:
        self.prompts += self.policy.decode([requests[0].prompt_ids])
        self.seeds.append(settings.seed)
        ids = list(self.policy.tokenizer("a" * len(self.prompts)).input_ids)
        return [[Completion(ids, [0.0] * len(ids), self.finish)]]  # type: ignore[arg-type]


def talking(template: str | None, **options: Any) -> tuple[Talk, Parrot]:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    policy = Policy.of(tiny_llama(tokenizer, 0), tokenizer)
    parrot = Parrot(policy, options.pop("finish", "stop"))
    settings = SamplingSettings(8, seed=options.pop("seed", None))
    return Talk(policy, parrot, settings, plain=template is None, **options), parrot  # type: ignore[arg-type]


def test_a_chat_remembers_both_sides_and_the_system_turn() -> None:
    talk, parrot = talking(TEMPLATE, system="be kind")
    assert [talk.answer("one"), talk.answer("two")] == ["a", "aa"]
    assert parrot.prompts[1] == "[system]be kind[user]one[assistant]a[user]two[assistant]"
    talk.forget()
    talk.answer("three")
    assert parrot.prompts[2] == "[system]be kind[user]three[assistant]"


def test_without_a_template_each_line_is_a_prompt_as_it_is() -> None:
    talk, parrot = talking(None, system="be kind")
    talk.answer("1+1=")
    talk.answer("2+2=")
    assert parrot.prompts == ["1+1=", "2+2="]


def test_a_cut_answer_says_so() -> None:
    talk, _ = talking(None, finish="length")
    assert talk.answer("x") == "a… (cut at 1 tokens)"


def test_the_same_words_said_again_get_another_answer_and_a_seed_repeats_the_talk() -> None:
    first, heard = talking(None, seed=5)
    first.answer("x")
    first.answer("x")
    assert heard.seeds == [5, 6]
    free, heard = talking(None)
    free.answer("x")
    assert heard.seeds == [None]


@pytest.mark.parametrize(("named", "at"), [("1", 0), ("3", 2), ("ab", 0), ("abd", 1), ("12", 2)])
def test_a_row_is_named_by_its_number_or_the_beginning_of_its_id(named: str, at: int) -> None:
    rows = [Row(name, "", None, {}) for name in ("abc", "xbd", "12f")]
    if named == "abd":
        rows[1] = replace(rows[1], id="abd")
        rows[0] = replace(rows[0], id="xbc")
    assert place_of(rows, named, "train") == at


def test_no_such_row_says_how_many_there_are() -> None:
    rows = [Row(name, "", None, {}) for name in ("abc", "abd")]
    with pytest.raises(DataError, match=r"`data\.eval` has rows 1 to 2"):
        place_of(rows, "3", "eval")
    with pytest.raises(DataError, match="several rows"):
        place_of(rows, "ab", "eval")
