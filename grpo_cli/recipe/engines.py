"""The engines that generate completions, by their name in `sample.engine`. A new engine is a file in `rollout` and an
entry here.

The abilities are fields of this table, not attributes of the engines' classes, because a recipe is checked, explained and
sized by them before torch is imported. No other module compares an engine's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One engine and what it can do; `auto` has the abilities of the first engine that it tries."""

    name: str
    factory: str = ""
    """`module:function` that makes it in this process; called as `rollout.make.Factory`."""
    tries: tuple[str, ...] = ()
    """The kinds that are tried instead, in this order; the last one generates from any model."""
    is_selective: bool = False
    """Whether there are models that it cannot drive."""
    has_own_seeds: bool = True
    """Whether each sample has its own random stream. Otherwise all samples of a call share one stream, so a sample
    depends on its neighbours, and each process needs a different seed."""
    exact_logps: bool = False
    """Whether its log-probs are those of a forward pass in the same numbers, to 1e-4."""
    through_trl: bool = False
    """Whether TRL's trainer starts it, sends it the weights of each step and calls it: TRL's vLLM. It has a copy of the weights,
    whole ones, and no part in evaluation."""
    takes_settings: bool = False
    """Whether `sample.vllm` may be set with it."""

    @property
    def fallback(self) -> EngineKind:
        """The kind that generates in the end where no other can."""
        return ENGINES[self.tries[-1]] if self.tries else self


ENGINES = {
    kind.name: kind
    for kind in (
        EngineKind("auto", tries=("graph", "transformers"), takes_settings=True),
        EngineKind("graph", "grpo_cli.rollout.graph.engine:make_graph_engine", is_selective=True, exact_logps=True),
        EngineKind(
            "transformers", "grpo_cli.rollout.transformers_engine:make_transformers_engine", has_own_seeds=False
        ),
        EngineKind("vllm", through_trl=True, takes_settings=True),
    )
}
