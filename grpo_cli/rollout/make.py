"""Choosing and making an engine. `auto` never fails: what the graph engine cannot drive goes to transformers, and one
line says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.tokens import end_tokens
from grpo_cli.rollout.engine import Engine

if TYPE_CHECKING:
    import torch
    from torch import nn

    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.policy.policy import Policy
    from grpo_cli.recipe.sections.method import Sample

CPU_ROWS, CUDA_ROWS, CUDA_PREFILL = 256, 1024, 32768
NAMES = ("auto", "graph", "transformers", "vllm")


def make_engine(
    name: str,
    model: nn.Module,
    tokenizer: Tokenizer | None = None,
    *,
    end_ids: Iterable[int] | None = None,
    pad_id: int | None = None,
    max_rows: int | None = None,
    autocast: torch.dtype | None = None,
    say: Callable[[str], None] | None = None,
) -> Engine:
    """The engine `name` for the unwrapped model.

    Args:
        name: of `sample.engine`; `auto` takes `graph` where that can drive the model, else `transformers`.
        model: with its head, on its device.
        tokenizer: for stop words and the pad token.
        end_ids: tokens that end a completion; the model's and the tokenizer's together where None.
        max_rows: completions in flight at most; as memory allows where None.
        autocast: the type that products run in; the weights' own where None.
        say: takes one line for a fallback.

    Raises:
        SetupError: `vllm`, which generates inside the trainer, or `graph` cannot drive this model.
        RecipeError: there is no such engine.
    """
    from grpo_cli.rollout.decoding.supports import supports
    from grpo_cli.rollout.transformers_engine import TransformersEngine

    if name == "vllm":
        raise SetupError(
            "`vllm` generates inside the trainer, not in this process", hint="set `sample.engine: auto`"
        )
    if name not in NAMES:
        raise RecipeError(f"unknown engine `{name}`", hint=f"one of {', '.join(f'`{n}`' for n in NAMES)}")
    ends = set(end_ids) if end_ids is not None else end_tokens(model, tokenizer)
    if pad_id is None:
        pad_id = getattr(tokenizer, "pad_token_id", None)
    if name != "transformers":
        # None where nothing stands in the way
        reason = supports(model)
        if reason is None:
            return _graph(model, ends, tokenizer, max_rows, autocast, say or (lambda _: None))
        if name == "graph":
            raise cannot_drive(reason)
        if say:
            say(f"generating with `transformers`, not `graph`: {reason}")
    return TransformersEngine(model, ends, pad_id=pad_id, tokenizer=tokenizer)


def cannot_drive(reason: str) -> SetupError:
    """The error where the engine `graph` is asked for by name."""
    return SetupError(
        f"the engine `graph` cannot drive this model: {reason}", hint="set `sample.engine: auto`"
    )


def policy_engine(name: str, policy: Policy, say: Callable[[str], None]) -> Engine:
    """The engine `name` that generates from the live weights of a policy.

    Raises:
        RecipeError: there is no such engine.
        SetupError: it cannot drive this model.
    """
    return make_engine(
        name, policy.model, policy.tokenizer, end_ids=policy.end_ids, autocast=policy.autocast, say=say
    )


def measuring_engine(sample: Sample, policy: Policy, say: Callable[[str], None]) -> Engine:
    """The engine of a job that only measures: the recipe's, or `auto` where that is vLLM and it cannot generate here.

    With vLLM, what generates is said. The weights are those of now: what trains takes `policy_engine`.

    Raises:
        SetupError: as `policy_engine`.
    """
    if sample.engine != "vllm":
        return policy_engine(sample.engine, policy, say)
    from grpo_cli.rollout.vllm.offline import Unfit, open_offline

    try:
        engine: Engine = open_offline(policy, sample)
    except Unfit as unfit:
        engine = policy_engine("auto", policy, say)
        say(f"generating with `{engine.name}`, not `vllm`: {unfit}")
        return engine
    say("generating with `vllm`")
    return engine


def _graph(
    model: nn.Module,
    ends: set[int],
    tokenizer: Tokenizer | None,
    max_rows: int | None,
    autocast: torch.dtype | None,
    say: Callable[[str], None],
) -> Engine:
    """On CUDA with captured graphs and fused kernels, each only if it works here; elsewhere eager and lean."""
    from grpo_cli.policy.modes import numerics
    from grpo_cli.rollout.decoding.rollout_mode import Forward
    from grpo_cli.rollout.engine import Request, SamplingSettings
    from grpo_cli.rollout.fused.llama_cpu import checked_llama_cpu
    from grpo_cli.rollout.fused.self_check import (
        checked_accept,
        checked_attention,
        checked_backbone,
        checked_merged_weights,
        checked_patches,
    )
    from grpo_cli.rollout.graph.cuda_graphs import GraphStepper
    from grpo_cli.rollout.graph.engine import GraphEngine

    if next(model.parameters()).device.type != "cuda":
        patches = checked_llama_cpu(model) if autocast is None else []
        rows = max_rows or CPU_ROWS
        return GraphEngine(
            model, ends, max_rows=rows, autocast=autocast, patches=patches, tokenizer=tokenizer
        )
    # every self-check runs in the numbers that training will use: a kernel may be right in one type only
    with numerics(model, autocast):
        merged, attention = checked_merged_weights(model, autocast, say), checked_attention(model, say)
        patches = checked_patches(model, say)
        patches += checked_backbone(model, autocast, attention, patches, merged)
        fused: dict[str, Any] = {
            "attention": attention,
            "patches": patches,
            "accept": checked_accept(model, say),
            "merged": merged,
        }
    rows = max_rows or CUDA_ROWS
    options: dict[str, Any] = {
        "max_rows": rows,
        "prefill_tokens": CUDA_PREFILL,
        "autocast": autocast,
        "tokenizer": tokenizer,
        **fused,
    }
    engine = GraphEngine(model, ends, stepper=GraphStepper(Forward(model)), **options)
    try:
        # a capture fails here, on two samples of three tokens, or not at all
        engine.generate([Request([0, 0], 2)], SamplingSettings(3, seed=0))
    except RuntimeError as err:
        say(f"decoding without CUDA graphs: {str(err).splitlines()[0][:100]}")
        return GraphEngine(model, ends, **options)
    engine.release()
    return engine
