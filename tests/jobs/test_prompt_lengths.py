"""Rows that surely fit the context are not tokenised; the others are counted exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_cli.data.rows import Row, Split
from grpo_cli.data.sources import Which
from grpo_cli.errors import SetupError
from grpo_cli.jobs.rows import PromptTokenCounts, fit_split
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tokens import encode
from tests.builders.loss_bench import recipe


def row(text: str, system: str | None = None) -> Row:
    said = [{"role": "system", "content": system}] if system else []
    return Row(id=text, prompt=text, messages=[*said, {"role": "user", "content": text}], fields={})


def counting(lengths: PromptTokenCounts, asked: Row) -> tuple[int, int]:
    """The length, and how often it took the tokenizer."""
    calls, exact = 0, lengths.encode

    def counted(row: Row) -> list[int]:
        nonlocal calls
        calls += 1
        return exact(row)

    lengths.encode = counted
    found = lengths(asked)
    lengths.encode = exact
    return found, calls


def tokens(asked: Row) -> list[int]:
    return encode(byte_tokenizer(), asked)


def test_a_short_row_is_not_tokenised_and_its_bound_is_no_less_than_its_length() -> None:
    rows = [row("1+1=?"), row("22+3=?")]
    bound, calls = counting(PromptTokenCounts(tokens, rows, 200), rows[1])
    assert calls == 0
    assert 8 <= bound <= 200


def test_a_row_near_the_limit_is_counted_exactly() -> None:
    rows = [row("1+1=?"), row("9" * 198), row("9" * 199)]
    lengths = PromptTokenCounts(tokens, rows, 200)
    assert counting(lengths, rows[1]) == (200, 1)
    assert counting(lengths, rows[2]) == (201, 1)


def test_rows_with_other_turns_are_counted_exactly() -> None:
    rows = [row("1+1=?"), row("1+1=?", system="be brief")]
    assert counting(PromptTokenCounts(tokens, rows, 200), rows[1]) == (16, 1)


def fit(
    texts: list[str],
    sample: dict[str, Any] | None = None,
    served: int | None = None,
    which: Which = "train",
    longest: int | None = None,
    **data: Any,
) -> tuple[list[str], list[str]]:
    """The rows that stay with a model whose context is 512 tokens, and what is said."""
    made = recipe()
    made = made.model_copy(
        update={
            "data": made.data.model_copy(update=data),
            "sample": made.sample.model_copy(update=sample or {}),
            "eval": made.eval.model_copy(update={"max_tokens": longest}),
        }
    )
    tokenizer = byte_tokenizer()
    policy = Policy.of(tiny_llama(tokenizer, 0), tokenizer)
    said: list[str] = []
    display: Any = SimpleNamespace(note=lambda level, text: said.append(text))
    rows = [row(text) for text in texts]
    found = fit_split(made, Split(rows, {}), which, policy, display, served)
    return [kept.prompt for kept in found.rows], said


def test_prompts_over_the_context_are_dropped_whatever_the_recipe_allows() -> None:
    kept, said = fit(["1+1=?", "9" * 503], max_prompt_tokens=4000)
    assert kept == ["1+1=?"]
    assert said == ["dropped 1 of 2 rows: prompts over 504 tokens (the longest has 505, " + "9" * 503 + ")"]
    assert fit(["1+1=?", "9" * 502]) == (["1+1=?", "9" * 502], [])


def test_the_context_vllm_is_started_with_counts() -> None:
    through_vllm = {"engine": "vllm", "vllm": {"max_model_length": 100}}
    assert fit(["1+1=?", "9" * 91], through_vllm)[0] == ["1+1=?"]
    assert fit(["1+1=?", "9" * 90], through_vllm)[0] == ["1+1=?", "9" * 90]
    with pytest.raises(SetupError, match=r"`sample\.max_tokens` is 8, vLLM's context only 8 tokens"):
        fit(["1+1=?"], {"engine": "vllm", "vllm": {"max_model_length": 8}})


def test_the_context_of_a_server_counts() -> None:
    assert fit(["1+1=?", "9" * 91], served=100)[0] == ["1+1=?"]
    with pytest.raises(SetupError, match=r"`sample\.max_tokens` is 8, vLLM's context only 8 tokens"):
        fit(["1+1=?"], served=8)


def test_completions_that_leave_no_room_are_refused() -> None:
    with pytest.raises(SetupError, match=r"`sample\.max_tokens` is 512, the model's context only 512 tokens"):
        fit(["1+1=?"], {"max_tokens": 512})


def test_held_out_rows_leave_room_for_their_own_longer_completions() -> None:
    texts = ["1+1=?", "9" * 400]
    assert fit(texts, which="eval", longest=200)[0] == ["1+1=?"]
    assert fit(texts, which="eval", longest=4)[0] == texts
    assert fit(texts, which="train", longest=200)[0] == texts
    with pytest.raises(SetupError, match=r"`eval\.max_tokens` is 512, the model's context only 512 tokens"):
        fit(["1+1=?"], which="eval", longest=512)
