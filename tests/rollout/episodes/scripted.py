"""An engine that says what it is told, a policy whose tokens are numbers, and a world of scripted answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, World
from grpo_cli.environments.step import Step
from grpo_cli.recipe.engines import EngineKind
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes, with_engine

END = 1


@dataclass
class Speaker:
    """Says the next of `turns` for each request, cut at what the settings allow; remembers what it was asked."""

    turns: dict[tuple[int, ...], list[int]]
    asked: list[tuple[Request, SamplingSettings]] = field(default_factory=list)
    kind: EngineKind = field(default_factory=lambda: EngineKind("scripted"))

    def generate(self, requests: Sequence[Request], settings: SamplingSettings, *_: Any) -> list[list[Completion]]:
        found = []
        for request in requests:
            self.asked.append((request, settings))
            ids = self.turns[tuple(request.ids)][: settings.max_tokens - len(request.prefix)]
            found.append([Completion(ids, [-0.5] * len(ids), "stop" if ids[-1] == END else "length")])
        return found

    def release(self) -> None: ...


@dataclass
class Scripted:
    """Answers by action; `first` is what `reset` says, `scores` the outcomes."""

    answers: dict[str, Step | Fault]
    first: str | Fault = ""
    outcome: float | Fault | None = 1.0
    seeds: list[int] = field(default_factory=list)

    def open(self, rows: Sequence[tuple[Any, int]]) -> list[tuple[World, str | Fault]]:
        self.seeds += [seed for _, seed in rows]
        return [(World((1, i), row, seed), self.first) for i, (row, seed) in enumerate(rows)]

    def step(self, acted: Sequence[tuple[World, str]]) -> list[Step | Fault]:
        return [self.answers[action] for _, action in acted]

    def score(self, worlds: Sequence[World]) -> list[float | Fault | None]:
        return [self.outcome for _ in worlds]


class Numbers:
    """Prompt [9], a token's text is its number, an observation is twice 7."""

    context = 64

    def encode(self, row: Row) -> list[int]:
        return [9]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(str(token) for token in some if token != END) for some in ids]


class Sevens:
    ends = frozenset([END])
    form = None

    def __call__(self, observation: str, last: int) -> list[int]:
        return [7, 7] if last == END else [END, 7, 7]


def episodes(engine: Speaker, worlds: Scripted, **spec: Any) -> Episodes:
    made = Environment.model_validate({"python": "a:B", **spec})
    return Episodes(made, worlds, Numbers(), Sevens(), with_engine(engine))  # type: ignore[arg-type]


def row(name: str = "a") -> Row:
    return Row(name, "go", [{"role": "user", "content": "go"}], {}, f"rows:{name}")
