"""A stand-in for vLLM's `LLM` in this process, which draws with the engine `graph` under the seeds it is given."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.vllm import server

DRAW = GraphEngine.generate


@dataclass
class StandIn:
    """`vllm.LLM` as far as a call goes."""

    engine: GraphEngine
    asked: list[Any] = field(default_factory=list)

    def generate(self, prompts: list[dict[str, list[int]]], params: list[Any], use_tqdm: bool) -> list[Any]:
        self.asked += params
        found = []
        for prompt, one in zip(prompts, params, strict=True):
            settings = SamplingSettings(one.max_tokens, one.temperature)
            ((drawn,),) = DRAW(self.engine, [Request(prompt["prompt_token_ids"], 1, seed=one.seed)], settings)
            logps = [
                {token: SimpleNamespace(logprob=logp)} for token, logp in zip(drawn.token_ids, drawn.logps, strict=True)
            ]
            found.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=drawn.token_ids, logprobs=logps)]))
        return found


@dataclass
class Held:
    """TRL's `VLLMGeneration`."""

    llm: StandIn
    syncs: int = 0

    def sync_weights(self) -> None:
        self.syncs += 1


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, as far as a call goes."""
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=lambda **said: SimpleNamespace(**said)))
    monkeypatch.setattr(server, "_installed", lambda name: True)
