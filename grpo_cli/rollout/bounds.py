"""What a call may ask for, checked before any work: an error here names the request, one later would lose a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpo_cli.errors import DataError, Mistake, RecipeError
from grpo_cli.rollout.engine import Request, SamplingSettings

NOT_FINITE = "the model's logits are not finite"
NOT_FINITE_HINT = "its weights are broken: start anew with a lower `train.lr`, from a good checkpoint as `model` if you like"


def check_settings(settings: SamplingSettings) -> None:
    """RecipeError with every sampling value that has no meaning."""
    s = settings
    rules = [
        ("max_tokens", s.max_tokens, s.max_tokens >= 1, "at least 1"),
        (
            "temperature",
            s.temperature,
            math.isfinite(s.temperature) and s.temperature >= 0,
            "0 (greedy) or more",
        ),
        ("top_p", s.top_p, 0 < s.top_p <= 1, "above 0, at most 1"),
        ("top_k", s.top_k, s.top_k >= 0, "0 (off) or more"),
        ("min_p", s.min_p, 0 <= s.min_p <= 1, "from 0 to 1"),
        ("repetition_penalty", s.repetition_penalty, 0 < s.repetition_penalty < math.inf, "above 0"),
    ]
    wrong = [
        Mistake("", f"`sample.{key}` is {value}; it must be {bound}")
        for key, value, fits, bound in rules
        if not fits
    ]
    if wrong:
        raise RecipeError(wrong)


def check_requests(
    requests: Sequence[Request], settings: SamplingSettings, *, context: int | None, vocabulary: int
) -> None:
    """DataError with every prompt that is empty, too long for the model's context, or outside its vocabulary."""
    wrong: list[Mistake] = []
    too_long = False
    for index, request in enumerate(requests):
        place, length = f"prompt {index}", len(request.prompt_ids)
        if request.n < 1:
            wrong.append(Mistake(place, f"asks for {request.n} samples"))
        # a prefix counts towards `max_tokens`
        if len(request.prefix) >= settings.max_tokens:
            begun = f"{len(request.prefix)} of {settings.max_tokens} tokens"
            wrong.append(Mistake(place, f"has begun with {begun}: nothing is left to sample"))
        if not length:
            wrong.append(Mistake(place, "is empty: there is no token to go on from"))
        elif min(request.ids) < 0 or max(request.ids) >= vocabulary:
            wrong.append(Mistake(place, f"has token ids outside the model's vocabulary of {vocabulary}"))
        # before the step, by the most it may take: a cache that overflows in the middle loses what was
        # sampled
        if context is not None and length + settings.max_tokens > context:
            too_long = True
            wrong.append(
                Mistake(
                    place,
                    f"{length} tokens and {settings.max_tokens} new ones exceed the model's context of {context}",
                )
            )
    if wrong:
        hint = (
            "lower `sample.max_tokens`, or drop long prompts with `data.max_prompt_tokens`"
            if too_long
            else ""
        )
        raise DataError(wrong, hint=hint)
