"""A `generate` call whose samples are turns of episodes: what their rows held at the end of the turn before is taken up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import Extend
from grpo_cli.rollout.decoding.state import Batch
from grpo_cli.rollout.engine import Completion, Request
from grpo_cli.rollout.graph.continuous_batch import ContinuousBatch
from grpo_cli.rollout.graph.episode_cache import EpisodeCache
from grpo_cli.rollout.graph.schedule import Admission, Schedule, chunk_by_tokens
from grpo_cli.rollout.graph.stepper import Stepper
from grpo_cli.rollout.stop_words import StopWords

if TYPE_CHECKING:
    from grpo_cli.rollout.decoding.rollout_mode import Forward


class TurnBatch(ContinuousBatch):
    """One sample a request, each with a slot of the cache that outlives the call."""

    def __init__(
        self,
        batch: Batch,
        forward: Forward,
        stepper: Stepper,
        requests: Sequence[Request],
        schedule: Schedule,
        stops: StopWords | None,
        episode_cache: EpisodeCache,
    ) -> None:
        super().__init__(batch, forward, stepper, requests, schedule, stops)
        self.episode_cache = episode_cache

    def _admit(self, starts: list[Admission], prefill_tokens: int) -> None:
        known = [self.episode_cache.known(self.requests[start.request]) for start in starts]
        for is_new, admit in ((True, self._prefill), (False, self._extend)):
            some = [start for start, n in zip(starts, known, strict=True) if (n == 0) == is_new]
            lengths = [
                len(self.requests[start.request].ids) - n
                for start, n in zip(starts, known, strict=True)
                if (n == 0) == is_new
            ]
            for chunk in chunk_by_tokens(lengths, prefill_tokens):
                admit([some[i] for i in chunk])

    def _prefill(self, starts: list[Admission]) -> None:
        """Equal prompts go through the model once."""
        prompts = [self.requests[start.request].ids for start in starts]
        # not by a set, whose order differs from process to process
        places = {tuple(ids): i for i, ids in enumerate(dict.fromkeys(map(tuple, prompts)))}
        prompt_of_row = self._tensor([places[tuple(ids)] for ids in prompts])
        rows, logits = self._prompt_pass(starts, list(places), prompt_of_row)
        self.episode_cache.save(self.batch.store, rows, self._of(starts), prompts, [0] * len(starts))
        self._first_tokens(starts, rows, logits[prompt_of_row])

    def _extend(self, starts: list[Admission]) -> None:
        """Only the ids that are new go through the model."""
        import torch

        requests = self._of(starts)
        known = [self.episode_cache.known(request) for request in requests]
        new = [request.ids[n:] for request, n in zip(requests, known, strict=True)]
        longest = max(map(len, new))
        tokens = self._tensor([ids + [0] * (longest - len(ids)) for ids in new])
        last = self._tensor([len(ids) - 1 for ids in new])
        rows = self._occupy(starts)
        store, whole = self.batch.store, max(len(request.ids) for request in requests)
        store.reach(whole)
        # up to the longest known: columns behind a row's own are void, and no token of it sees them
        self.episode_cache.load(store, rows, requests, max(known))
        positions = self._tensor(known)[:, None] + torch.arange(longest, device=self.device)[None]
        logits = self.forward(Extend(store, rows, positions, last, whole), tokens, positions, last)
        self.episode_cache.save(store, rows, requests, [request.ids for request in requests], known)
        self._first_tokens(starts, rows, logits)

    def _completions(self, samples: list[int]) -> list[Completion]:
        made = super()._completions(samples)
        requests = [self.requests[self.schedule.request_of[sample]] for sample in samples]
        rows = self._tensor([self.running.index(sample) for sample in samples])
        # the newest token has not gone through the model
        ids = [r.ids + c.token_ids[:-1] for r, c in zip(requests, made, strict=True)]
        self.episode_cache.save(
            self.batch.store, rows, requests, ids, [len(request.ids) for request in requests]
        )
        return made

    def _of(self, starts: Sequence[Admission]) -> list[Request]:
        return [self.requests[start.request] for start in starts]
