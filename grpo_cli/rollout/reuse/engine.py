"""Prefix reuse around an engine: score the old completions, keep what passes, generate the rest.

Costs one forward pass over prompts and old completions, and a second one over what is kept (the engine's prefill).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from grpo_cli.errors import SetupError
from grpo_cli.rollout.engine import (
    Completion,
    Engine,
    Finish,
    OnFinish,
    OnProgress,
    Request,
    SamplingSettings,
)
from grpo_cli.rollout.reuse.accept import chances, kept_tokens
from grpo_cli.rollout.reuse.history import Draft, History
from grpo_cli.rollout.reuse.score import DraftScorer

if TYPE_CHECKING:
    import torch
    from torch import nn

SampleIndex = tuple[int, int]
"""(request, sample)."""


def cannot_reuse(engine: str) -> SetupError:
    """The error where an engine does not go on from kept tokens."""
    return SetupError(
        f"`sample.reuse` goes on from kept tokens, which the engine `{engine}` cannot",
        hint="leave `sample.reuse` out: only the engine `graph` can, and it does not drive this model",
    )


class PrefixReuse:
    """When a row is drawn again, its old completions are kept as far as the policy still stands by them (SPEC-RL, arXiv
    2509.23232): token t is accepted with chance min(1, lenience x new probability / old), the first rejection cuts, and
    the engine goes on from there. One kept to its end costs no decoding. Acts from the second visit of a row on.

    What is biased. With q the old and p the new probability of a token, it comes out with q min(1, lenience p / q) + R p,
    R being the chance of a rejection. At lenience 1 tokens that became less likely are drawn a share R too often, those
    that became more likely too rarely: the samples lag behind the policy, between it and the last one. Above 1 they lag
    further, and what fell by less than the lenience is never rejected; towards 0 they become the policy's own. Exact
    speculative sampling would draw the token after a cut from max(0, p - q) instead, for which the old probabilities of
    all tokens are needed, not only of those drawn. The log-probs returned are the policy's own, so training takes the
    samples as on-policy. And what is kept was trained on before: the same samples say less the second time, and a
    group that was all wrong stays so where the policy did not move.

    What it costs. A forward pass over prompts and old completions, and another over what is kept of those cut. Where a
    token costs about as much to score as to generate (a small model on a CPU), time is saved only while nearly all is
    kept, and lost below that.

    A row is drawn once in a step (rounds of `dead_groups: resample` take rows that the step has not had; the two halves
    of `select: screen` keep from different old samples). A row turned away by `screen` keeps half a group. In bfloat16
    two passes differ in the third digit, and at lenience 1 rounding alone rejects some tokens.
    """

    def __init__(
        self, engine: Engine, model: nn.Module, lenience: float, *, autocast: torch.dtype | None = None
    ) -> None:
        if not engine.kind.can_continue:
            raise cannot_reuse(engine.kind.name)
        self.engine, self.lenience = engine, lenience
        self.score, self.history = DraftScorer(model, autocast), History()

    def generate(
        self,
        drafts: Sequence[Sequence[Draft]],
        requests: Sequence[Request],
        settings: SamplingSettings,
        on_finish: OnFinish | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[list[Completion]]:
        """What `engine.generate` returns for these requests; each sample may have a draft, the requests' first ones do."""
        # the recipe refuses the rest: what a truncated distribution drew has other chances than its log-probs
        # say
        assert settings.seed is not None and not settings.greedy and not settings.truncates
        kept = self._kept(drafts, requests, settings)
        done = {place: b for place, b in kept.items() if _is_whole(b, settings.max_tokens)}
        total = sum(request.n for request in requests)
        if on_finish:
            for place, completion in done.items():
                on_finish(*place, completion)
        if on_progress:
            on_progress(len(done), total)
        open_ = _by_start(requests, kept, done)
        asked = [
            Request(requests[r].prompt_ids, len(samples), requests[r].seed, start)
            for (r, start), samples in open_.items()
        ]
        # what the engine calls request and sample here is another one outside
        places = [[(r, s) for s in samples] for (r, _), samples in open_.items()]

        def joined(place: SampleIndex, rest: Completion) -> Completion:
            head = kept.get(place)
            if head is None:
                return rest
            # both under the policy of now: those of the kept part were scored again, the old ones only judged
            # it
            ids, logps = head.token_ids + rest.token_ids, head.logps + rest.logps
            return Completion(ids, logps, rest.finish, head.kept)

        def finished(request: int, sample: int, rest: Completion) -> None:
            assert on_finish is not None
            place = places[request][sample]
            on_finish(*place, joined(place, rest))

        def progressed(now: int, _: int) -> None:
            assert on_progress is not None
            on_progress(whole + now, total)

        whole = len(done)
        found = self.engine.generate(
            asked, settings, finished if on_finish else None, progressed if on_progress else None
        )
        for some, rests in zip(places, found, strict=True):
            done |= {place: joined(place, rest) for place, rest in zip(some, rests, strict=True)}
        return [[done[r, s] for s in range(request.n)] for r, request in enumerate(requests)]

    def _kept(
        self, drafts: Sequence[Sequence[Draft]], requests: Sequence[Request], settings: SamplingSettings
    ) -> dict[SampleIndex, Completion]:
        """What is kept of each draft, as far as that is anything."""
        import numpy as np

        assert settings.seed is not None
        old = {
            (r, s): draft
            for r, (request, some) in enumerate(zip(requests, drafts, strict=True))
            for s, draft in enumerate(some[: request.n])
        }
        prompts = [requests[r].prompt_ids for r, _ in old]
        ids = [draft.token_ids.tolist() for draft in old.values()]
        scored = self.score(prompts, ids, settings.temperature)
        longest = max(map(len, scored), default=0)
        luck = chances(settings.seed, [(draft.row, draft.sample) for draft in old.values()], longest)
        kept = {}
        for (place, draft), tokens, logps, numbers in zip(old.items(), ids, scored, luck, strict=True):
            n = kept_tokens(draft.logps, np.asarray(logps), numbers[: len(logps)], self.lenience)
            if n:
                # "length" of a part only says that it goes on
                finish: Finish = "stop" if draft.ended and n == len(logps) else "length"
                kept[place] = Completion(tokens[:n], logps[:n], finish, n)
        return kept


def reuse_metrics(completions: Iterable[Completion]) -> dict[str, float]:
    """`reuse/tokens`: share of tokens that were kept; `reuse/whole`: share of completions that were kept whole."""
    every = list(completions)
    kept = sum(completion.kept for completion in every)
    whole = sum(completion.kept == len(completion.token_ids) for completion in every)
    return {
        "reuse/tokens": kept / sum(len(completion.token_ids) for completion in every),
        "reuse/whole": whole / len(every),
    }


def _is_whole(kept: Completion, max_tokens: int) -> bool:
    return kept.finish == "stop" or len(kept.token_ids) >= max_tokens


def _by_start(
    requests: Sequence[Request], kept: dict[SampleIndex, Completion], done: dict[SampleIndex, Completion]
) -> dict[tuple[int, tuple[int, ...]], list[int]]:
    """The samples still open, by request and the tokens that are kept of them: equal starts share a prefill."""
    starts: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for r, request in enumerate(requests):
        for s in range(request.n):
            if (r, s) not in done:
                head = kept.get((r, s))
                starts[r, tuple(head.token_ids) if head else ()].append(s)
    return starts
