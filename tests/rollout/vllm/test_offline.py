"""vLLM for a job that only measures: what it is asked, what comes back, and what is said where it cannot start."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.recipe.sections.method import Sample
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import measuring_engine
from grpo_cli.rollout.vllm import server


class Llm:
    """Answers each prompt with its length and the end token 1."""

    def __init__(self, **started: Any) -> None:
        self.started = started
        self.asked: list[Any] = []

    def generate(self, prompts: Any, params: Any, use_tqdm: bool) -> Any:
        self.asked += zip(prompts, params, strict=True)
        for prompt in prompts:
            ids = [len(prompt["prompt_token_ids"]), 1]
            logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in ids]
            yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=logprobs)])


def opened(monkeypatch: pytest.MonkeyPatch, llm: Any) -> tuple[Any, list[str]]:
    """The engine for a tiny policy with this in place of vLLM's `LLM`, and what was said."""
    stand_in = SimpleNamespace(LLM=llm, SamplingParams=lambda **given: SimpleNamespace(**given))
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    monkeypatch.setattr(server, "_installed", lambda name: True)
    tokenizer, said = byte_tokenizer(), list[str]()
    policy = Policy.of(tiny_llama(tokenizer, 0), tokenizer)
    sample = Sample(prompts=1, group=2, engine="vllm", vllm={"mode": "server", "max_model_length": 64})
    return measuring_engine(sample, policy, said.append), said


def test_it_is_started_as_the_recipe_says_and_each_sample_has_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, said = opened(monkeypatch, Llm)
    assert said == ["generating with `vllm`"]
    assert (engine.context, engine.kind) == (64, ENGINES["vllm"])
    assert engine.llm.started["generation_config"] == "vllm"
    assert engine.llm.started["max_model_len"] == 64 and "mode" not in engine.llm.started
    first, second = engine.generate([Request([5], 2), Request([6, 7], 1)], SamplingSettings(4, seed=3))
    assert [c.token_ids for c in (*first, *second)] == [[1, 1], [1, 1], [2, 1]]
    seeds = [params.seed for _, params in engine.llm.asked]
    assert len(set(seeds)) == 3 and all(0 <= seed < 2**63 for seed in seeds)
    engine.release()
    assert engine.llm is None


def test_where_it_does_not_fit_another_engine_generates_and_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise ValueError("no memory for a single block\nmore")

    engine, said = opened(monkeypatch, refuse)
    assert said == ["generating with `graph`, not `vllm`: no memory for a single block"]
    assert engine.kind.exact_logps
