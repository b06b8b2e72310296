"""Chooses and creates an engine. `auto` never fails: models that the graph engine cannot drive go to transformers, with
a note of the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.tokens import end_tokens
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.rollout.engine import CannotDrive, Engine

if TYPE_CHECKING:
    import torch
    from torch import nn

    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.policy.policy import Policy
    from grpo_cli.policy.vision import Vision
    from grpo_cli.recipe.sections.method import Sample


Factory = Callable[..., Engine]
"""Makes an engine of one kind for the unwrapped model and its end ids. It uses those of `tokenizer`, `pad_id`,
`max_rows`, `autocast` and `note` that it needs. It raises CannotDrive for an unsupported model."""


def make_engine(
    name: str,
    model: nn.Module,
    tokenizer: Tokenizer | None = None,
    *,
    end_ids: Iterable[int] | None = None,
    pad_id: int | None = None,
    max_rows: int | None = None,
    autocast: torch.dtype | None = None,
    note: Callable[[str], None] | None = None,
    vision: Vision | None = None,
) -> Engine:
    """The engine `name` for the unwrapped model.

    Args:
        name: of `sample.engine`; `auto` takes `graph` where that can drive the model, else `transformers`.
        model: with its head, on its device.
        tokenizer: for stop words and the pad token.
        end_ids: tokens that end a completion; the model's and the tokenizer's together where None.
        max_rows: completions in flight at most; as memory allows where None.
        autocast: the type that products run in; the weights' own where None.
        note: takes one line for a fallback.
        vision: what the model reads images with.

    Raises:
        SetupError: `vllm`, which generates inside the trainer, or `graph` cannot drive this model.
        RecipeError: there is no such engine.
    """
    kind = ENGINES.get(name)
    if kind is None:
        raise RecipeError(f"unknown engine `{name}`", hint=f"one of {', '.join(f'`{n}`' for n in ENGINES)}")
    if kind.through_trl:
        raise SetupError(
            f"`{name}` generates inside the trainer, not in this process", hint="set `sample.engine: auto`"
        )
    # the ids of model and tokenizer together: some chat models name the end of a turn in only one of them
    ends = set(end_ids) if end_ids is not None else end_tokens(model, tokenizer)
    if pad_id is None:
        pad_id = getattr(tokenizer, "pad_token_id", None)

    def made(tried: str) -> Engine:
        if vision is not None and ENGINES[tried].is_selective:
            raise CannotDrive(tried, "it reads images")
        # imported only when used: other engines must not slow down the start
        module, _, function = ENGINES[tried].factory.partition(":")
        factory: Factory = getattr(import_module(module), function)
        return factory(
            model,
            ends,
            tokenizer=tokenizer,
            pad_id=pad_id,
            max_rows=max_rows,
            autocast=autocast,
            note=note or (lambda _: None),
            vision=vision,
        )

    # an engine tests a model by a trial run, so create it to find out; the last engine accepts any model
    *hopeful, last = kind.tries or (name,)
    for tried in hopeful:
        try:
            return made(tried)
        except CannotDrive as err:
            if note:
                note(f"generating with `{last}`, not `{tried}`: {err.reason}")
    return made(last)


def policy_engine(name: str, policy: Policy, note: Callable[[str], None]) -> Engine:
    """The engine `name` that generates from the live weights of a policy.

    Raises:
        RecipeError: there is no such engine.
        SetupError: it cannot drive this model.
    """
    return make_engine(
        name,
        policy.model,
        policy.tokenizer,
        end_ids=policy.end_ids,
        autocast=policy.autocast,
        note=note,
        vision=policy.vision,
    )


def measuring_engine(sample: Sample, policy: Policy, note: Callable[[str], None]) -> Engine:
    """The engine of a job that only measures: the recipe's, or `auto` if that is vLLM and vLLM cannot generate here.

    With vLLM a note names the engine that generates. It uses the current weights only: training jobs use
    `policy_engine`.

    Raises:
        SetupError: as `policy_engine`.
    """
    if not sample.engine_kind.through_trl:
        return policy_engine(sample.engine, policy, note)
    from grpo_cli.rollout.vllm.offline import Unfit, open_offline

    # vLLM may not fit into the remaining memory; then measure the same weights with another engine
    try:
        engine: Engine = open_offline(policy, sample)
    except Unfit as unfit:
        engine = policy_engine("auto", policy, note)
        note(f"generating with `{engine.kind.name}`, not `{sample.engine}`: {unfit}")
        return engine
    note(f"generating with `{engine.kind.name}`")
    return engine
