"""One call of a vLLM that lives in this process, every sample with a seed and a limit of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from grpo_cli.rollout.engine import Completion, OnFinish, OnProgress, Request, SamplingSettings
from grpo_cli.rollout.graph.uniforms import sample_keys
from grpo_cli.rollout.stop_words import finisher, stop_words

if TYPE_CHECKING:
    from vllm import LLM
    from vllm.outputs import CompletionOutput

    from grpo_cli.policy.contract import Tokenizer

UNLIKELY = -100.0
"""vLLM's lowest bias of a logit."""


def sample_from(
    llm: LLM,
    requests: Sequence[Request],
    settings: SamplingSettings,
    end_ids: Collection[int],
    banned: Collection[int],
    tokenizer: Tokenizer | None,
    on_finish: OnFinish | None = None,
    on_progress: OnProgress | None = None,
) -> list[list[Completion]]:
    """Completions in the order of the requests, `n` for each; a `prefix` counts towards the limit."""
    places = [(r, s) for r, request in enumerate(requests) for s in range(request.n)]
    if not places:
        return [[] for _ in requests]
    keys: Sequence[int | None] = [None] * len(places)
    if settings.seed is not None or all(request.seed is not None for request in requests):
        keys = [key >> 1 for key in sample_keys(requests, settings.seed or 0)]  # vLLM's seeds are signed
    answers = llm.generate(
        [{"prompt_token_ids": requests[request].ids} for request, _ in places],
        [
            # to vLLM the prefix is part of the prompt, which its limit does not count
            _params(settings, settings.max_tokens - len(requests[request].prefix), key, end_ids, banned)
            for (request, _), key in zip(places, keys, strict=True)
        ],
        use_tqdm=False,
    )
    finished = finisher(stop_words(settings.stop, tokenizer), end_ids)
    done: list[list[Completion]] = [[] for _ in requests]
    for (request, sample), answer in zip(places, answers, strict=True):
        completion = finished(*_drawn(answer.outputs[0]))
        done[request].append(completion)
        if on_finish:
            on_finish(request, sample, completion)
    if on_progress:
        on_progress(len(places), len(places))
    return done


def stop_and_ban(stop: Sequence[str], banned: Collection[int]) -> dict[str, Any]:
    """`sample.stop` and `sample.ban` in vLLM's words. It leaves the text that ends a sample out of the text but not out of the
    tokens, and biases logits before it gives log-probs."""
    words: dict[str, Any] = {}
    if stop:
        words |= {"stop": list(stop), "include_stop_str_in_output": True, "skip_special_tokens": False}
    if banned:
        words["logit_bias"] = dict.fromkeys(sorted(banned), UNLIKELY)
    return words


def _params(
    settings: SamplingSettings,
    room: int,
    seed: int | None,
    end_ids: Collection[int],
    banned: Collection[int],
) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        max_tokens=room,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        min_p=settings.min_p,
        repetition_penalty=settings.repetition_penalty,
        seed=seed,
        stop_token_ids=sorted(end_ids),
        # of the token that was drawn alone
        logprobs=0,
        # it looks for stop words in text; without any, text is work for nothing
        detokenize=bool(settings.stop),
        **stop_and_ban(settings.stop, banned),
    )


def _drawn(answer: CompletionOutput) -> tuple[list[int], list[float]]:
    ids = list(answer.token_ids)
    logps = [float(at[token].logprob) for at, token in zip(answer.logprobs, ids, strict=True)]
    return ids, logps
