"""The reference engine: transformers' own `generate` on left-padded prompts, each repeated `n` times. Slow and simple;
its samples follow torch's generator, so they do depend on which prompts share the batch.

How this works: `generate` of transformers runs once over all rows. Our `SampleWatch` is called twice in each step: as
the first logits processor it copies the raw logits; as a stopping criterion it reads the chosen token, takes its
log-prob from the copy, and finishes the samples that have ended. The sampling rules stand between, as transformers' own
processors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError, TrainingError
from grpo_cli.policy.modes import causal_model, evaluating
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.rollout.decoding.sampling import invert, sample_keys, uniforms
from grpo_cli.rollout.engine import (
    NOT_FINITE,
    NOT_FINITE_HINT,
    Completion,
    OnFinish,
    OnProgress,
    Request,
    SamplingSettings,
    check_requests,
    check_settings,
)
from grpo_cli.rollout.stop_words import StopWords, completion, stop_words

if TYPE_CHECKING:
    from torch import Tensor, nn

    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.policy.vision import Vision


IMAGE_ROWS = 64
"""Rows that show images in one call of the model."""


class TransformersEngine:
    """Works with every model that has `generate`."""

    def __init__(
        self,
        model: nn.Module,
        end_ids: Collection[int],
        *,
        pad_id: int | None = None,
        tokenizer: Tokenizer | None = None,
        vision: Vision | None = None,
    ) -> None:
        self.model, self.end_ids, self.tokenizer, self.vision = model, sorted(end_ids), tokenizer, vision
        # rows that show images are drawn by numbers of their own
        self.kind = replace(ENGINES["transformers"], has_own_seeds=vision is not None)
        self.pad_id = pad_id if pad_id is not None else (self.end_ids[0] if self.end_ids else 0)
        base: Any = causal_model(model)
        self.context: int | None = getattr(base.config.get_text_config(), "max_position_embeddings", None)
        self.vocabulary: int = base.get_input_embeddings().num_embeddings

    def generate(
        self,
        requests: Sequence[Request],
        settings: SamplingSettings,
        on_finish: OnFinish | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[list[Completion]]:
        """Completions in the order of the requests, `n` for each."""
        import torch
        from transformers import GenerationConfig

        check_settings(settings)
        check_requests(requests, settings, context=self.context, vocabulary=self.vocabulary)
        if settings.mix is not None:
            raise SetupError(
                "`sample.mix` needs the engine `graph`, which cannot drive this model", hint="leave `sample.mix` out"
            )
        assert not any(request.prefix for request in requests), "`generate` has no limit for each row"
        places = [(r, s) for r, request in enumerate(requests) for s in range(request.n)]
        if not places:
            return [[] for _ in requests]
        base: Any = causal_model(self.model)
        device = next(base.parameters()).device
        stops = stop_words(settings.stop, self.tokenizer)
        shown = self.vision if any(request.images for request in requests) else None
        # pixels are by far the largest input: rows that show images go through the model in parts
        size = IMAGE_ROWS if shown else len(places)
        table = torch.empty(0)
        if shown:  # a number of its own for each sample and token: rows do not depend on which others are beside them
            seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()).item())
            table = torch.from_numpy(uniforms(sample_keys(requests, seed), settings.max_tokens))
        parts = [places[at : at + size] for at in range(0, len(places), size)]
        # fork the random state of this device only: forking all would create a context on each
        devices = [device] if device.type == "cuda" else []
        # the rules of sampling run as our processors after the one that records the raw logits: here they are all off
        config = GenerationConfig(
            max_new_tokens=settings.max_tokens,
            do_sample=not settings.greedy,
            temperature=None if settings.greedy else 1.0,
            top_k=None if settings.greedy else 0,
            top_p=None if settings.greedy else 1.0,
            eos_token_id=self.end_ids or None,
            pad_token_id=self.pad_id,
            use_cache=True,
        )
        # `generate` uses torch's global generator, which dropout and shuffling in training use too
        seeded = torch.random.fork_rng(devices, enabled=settings.seed is not None)
        done: list[list[Completion]] = [[] for _ in requests]
        own = base.generation_config
        # `generate` takes unset values from the model's `generation_config.json`, including penalties, beams and forced
        # tokens. Only the recipe may determine sampling
        base.generation_config = GenerationConfig()
        try:
            with evaluating(base), seeded:
                if settings.seed is not None:
                    torch.manual_seed(settings.seed)
                for at, part in enumerate(parts):
                    rows = [requests[r] for r, _ in part]
                    longest = max(len(row.prompt_ids) for row in rows)
                    # left padding: `generate` appends, so the last prompt token must be in the last column
                    padded = [[self.pad_id] * (longest - len(row.prompt_ids)) + row.prompt_ids for row in rows]
                    real = [[0] * (longest - len(row.prompt_ids)) + [1] * len(row.prompt_ids) for row in rows]
                    ids = torch.tensor(padded, device=device)
                    progress = partial(_further, on_progress, at * size, len(places)) if on_progress else None
                    banned = [partial(_without, sorted(shown.image_ids))] if shown else []
                    drawn = []
                    if shown and not settings.greedy:
                        drawn.append(partial(_drawn, table[at * size :][: len(part)].to(device), count()))
                    watch = SampleWatch(part, set(self.end_ids), settings, stops, on_finish, progress)
                    base.generate(
                        input_ids=ids,
                        attention_mask=torch.tensor(real, device=device),
                        generation_config=config,
                        logits_processor=watch.processors(banned, drawn),
                        stopping_criteria=[watch.stop],
                        # these weights are not sharded: under ZeRO-3 transformers would wait for other ranks
                        synced_gpus=False,
                        **(shown.inputs(ids, [row.images for row in rows], scores=False) if shown else {}),
                    )
                    for (request, _), found in zip(part, watch.completions(), strict=True):
                        done[request].append(found)
        finally:
            base.generation_config = own
        return done

    def release(self) -> None:
        """Nothing is kept."""


class SampleWatch:
    """Sees each step's raw logits before they are changed, and the token chosen from them right after."""

    def __init__(
        self,
        places: list[tuple[int, int]],
        end_ids: set[int],
        settings: SamplingSettings,
        stops: StopWords | None,
        on_finish: OnFinish | None,
        on_progress: OnProgress | None,
    ) -> None:
        self.places, self.end_ids, self.settings, self.stops = places, end_ids, settings, stops
        self.on_finish, self.on_progress = on_finish, on_progress
        self.raw: Tensor | None = None
        self.tokens: list[list[int]] = [[] for _ in places]
        self.logps: list[list[float]] = [[] for _ in places]
        self.open = set(range(len(places)))
        self.stopped: set[int] = set()

    def processors(self, before: Sequence[Any] = (), behind: Sequence[Any] = ()) -> list[Any]:
        """The recorder, then the rules in the order Hugging Face applies them, with more `before` and `behind` them."""
        from transformers.generation import logits_process as rules

        s = self.settings
        chain: list[Any] = [self._record, *before]
        if s.penalises:
            chain.append(rules.RepetitionPenaltyLogitsProcessor(s.repetition_penalty))
        if not s.greedy:
            # in transformers' own order: penalty, temperature, top-k, top-p, min-p
            if s.temperature != 1:
                chain.append(rules.TemperatureLogitsWarper(float(s.temperature)))
            if s.top_k:
                chain.append(rules.TopKLogitsWarper(s.top_k))
            if s.top_p < 1:
                chain.append(rules.TopPLogitsWarper(s.top_p))
            if s.min_p:
                chain.append(rules.MinPLogitsWarper(s.min_p))
        return rules.LogitsProcessorList([*chain, *behind])  # type: ignore[no-any-return]

    def _record(self, _: Tensor, scores: Tensor) -> Tensor:
        # a copy: later processors write into `scores`
        self.raw = scores.float().clone()
        if bool(self.raw.isnan().any()):
            raise TrainingError(NOT_FINITE, hint=NOT_FINITE_HINT)
        return scores

    def stop(self, input_ids: Tensor, _: Tensor, **__: object) -> Tensor:
        """Called by `generate` after each token: records it with its log-prob.

        Args:
            input_ids: [rows, tokens so far]; the last column is new.

        Returns:
            [rows] bool, True where a stop word has ended the row.
        """
        import torch

        assert self.raw is not None
        # the contract: log-probs of the untruncated distribution, whatever the rules left to choose from
        scaled = self.raw if self.settings.greedy else self.raw / self.settings.temperature
        chosen = input_ids[:, -1]
        logps = torch.log_softmax(scaled, -1).gather(-1, chosen[:, None])[:, 0].tolist()
        ended = []
        for row, token in enumerate(chosen.tolist()):
            # `generate` keeps padding ended rows until all have ended
            if row not in self.open:
                continue
            # before a stop word is looked for: the token that completes it belongs to the sample
            self.tokens[row].append(token)
            self.logps[row].append(logps[row])
            if self.stops is not None and self.stops.end_with(self.tokens[row]):
                self.stopped.add(row)
            if token in self.end_ids or row in self.stopped or len(self.tokens[row]) == self.settings.max_tokens:
                ended.append(row)
        # now, not at the end: verdicts overlap with the samples that go on
        for row in ended:
            self.open.discard(row)
            if self.on_finish:
                self.on_finish(*self.places[row], self._completion(row))
        if self.on_progress and ended:
            self.on_progress(len(self.places) - len(self.open), len(self.places))
        return torch.tensor([row in self.stopped for row in range(len(self.places))], device=input_ids.device)

    def _completion(self, row: int) -> Completion:
        is_stopped = row in self.stopped
        return completion(self.tokens[row], self.logps[row], self.end_ids, is_stopped=is_stopped)

    def completions(self) -> list[Completion]:
        """One for each place."""
        return [self._completion(row) for row in range(len(self.places))]


def _without(banned: list[int], _: Tensor, scores: Tensor) -> Tensor:
    """Logits with which these tokens are not drawn: an image token without an image has no meaning."""
    scores[:, banned] = float("-inf")
    return scores


def _drawn(uniforms: Tensor, steps: Iterator[int], _: Tensor, scores: Tensor) -> Tensor:
    """Logits that leave one token a row: the one that the row's uniform number of this step picks."""
    import torch

    weights = (scores - scores.amax(-1, keepdim=True)).float().exp()
    chosen, _total = invert(weights, uniforms[:, next(steps)])
    return torch.full_like(scores, float("-inf")).scatter(1, chosen[:, None], 0.0)


def _further(on_progress: OnProgress, before: int, total: int, done: int, _: int) -> None:
    on_progress(before + done, total)


def make_transformers_engine(
    model: nn.Module,
    ends: set[int],
    *,
    tokenizer: Tokenizer | None,
    pad_id: int | None,
    vision: Vision | None,
    **_: object,
) -> TransformersEngine:
    """The `rollout.make.Factory` of this engine."""
    return TransformersEngine(model, ends, pad_id=pad_id, tokenizer=tokenizer, vision=vision)
