"""One `generate` call under way: admit, decode, collect, close gaps, until every sample has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.errors import TrainingError
from grpo_cli.train.rollout.bounds import NOT_FINITE, NOT_FINITE_HINT
from grpo_cli.train.rollout.cache import Prefill
from grpo_cli.train.rollout.engine import Completion, OnFinish, OnProgress, Request
from grpo_cli.train.rollout.schedule import Schedule, Start, chunk_by_tokens, plan_moves, worth_refilling
from grpo_cli.train.rollout.state import Batch, accept, decode

if TYPE_CHECKING:
    from torch import Tensor

    from grpo_cli.train.rollout.modelseat import Forward


class Run:
    """`running[row]` is the sample in that row, `fed[row]` the column its next token goes to; both mirror the device."""

    def __init__(
        self, batch: Batch, forward: Forward, requests: Sequence[Request], schedule: Schedule
    ) -> None:
        self.batch, self.forward = batch, forward
        self.requests, self.schedule = requests, schedule
        self.running: list[int] = []
        self.fed: list[int] = []
        self.first_logits: dict[int, Tensor] = {}
        self.done: dict[int, Completion] = {}

    def finish_all(
        self, prefill_tokens: int, on_finish: OnFinish | None, on_progress: OnProgress | None
    ) -> list[Completion]:
        """The completion of every sample, in the order of their numbers."""
        total = self.schedule.total
        if on_progress:
            on_progress(0, total)
        while self.running or self.schedule.waiting:
            free = self.batch.store.rows - len(self.running)
            if worth_refilling(free, self.batch.store.rows, self.schedule.waiting):
                self._admit(self.schedule.take(free), prefill_tokens)
            else:
                self._decode()
            for sample in self._collect():
                if on_finish:
                    on_finish(
                        self.schedule.request_of[sample], self.schedule.index_of[sample], self.done[sample]
                    )
                if on_progress:
                    on_progress(len(self.done), total)
        return [self.done[sample] for sample in range(total)]

    def _admit(self, starts: list[Start], prefill_tokens: int) -> None:
        fresh = [start for start in starts if start.request not in self.first_logits]
        for start in starts:
            if start.request in self.first_logits:
                self._share(start, fresh)
        lengths = [len(self.requests[start.request].prompt_ids) for start in fresh]
        for chunk in chunk_by_tokens(lengths, prefill_tokens):
            self._prefill([fresh[i] for i in chunk])

    def _share(self, start: Start, fresh: list[Start]) -> None:
        """Later samples of a request copy the prompt's columns from a row that still runs; without one, prefill again."""
        import torch

        logits = self.first_logits.pop(start.request)
        donors = [row for row, s in enumerate(self.running) if self.schedule.request_of[s] == start.request]
        if not donors:
            fresh.append(start)
            return
        length = len(self.requests[start.request].prompt_ids)
        rows = self._occupy([start])
        device = logits.device
        targets = torch.tensor(rows, device=device)
        self.batch.store.copy_rows(torch.full_like(targets, donors[0]), targets, length)
        self._first_tokens([start], rows, logits[None].expand(len(rows), -1))
        if self.schedule.unfinished(start.request):
            self.first_logits[start.request] = logits

    def _prefill(self, starts: list[Start]) -> None:
        import torch

        prompts = [self.requests[start.request].prompt_ids for start in starts]
        device = self.batch.store.layout.device
        longest = max(map(len, prompts))
        tokens = torch.tensor([ids + [0] * (longest - len(ids)) for ids in prompts], device=device)
        last = torch.tensor([len(ids) - 1 for ids in prompts], device=device)
        prompt_of_row = torch.tensor(
            [i for i, start in enumerate(starts) for _ in start.samples], device=device
        )
        rows = self._occupy(starts)
        self.batch.store.reach(longest)
        phase = Prefill(self.batch.store, torch.tensor(rows, device=device), prompt_of_row)
        positions = torch.arange(longest, device=device)[None].expand(len(prompts), -1)
        logits = self.forward(phase, tokens, positions, last)
        for start, row in zip(starts, logits, strict=True):
            if self.schedule.unfinished(start.request):
                self.first_logits[start.request] = row.clone()
        self._first_tokens(starts, rows, logits[prompt_of_row])

    def _occupy(self, starts: list[Start]) -> list[int]:
        first = len(self.running)
        for start in starts:
            self.running += start.samples
            self.fed += [len(self.requests[start.request].prompt_ids)] * len(start.samples)
        return list(range(first, len(self.running)))

    def _first_tokens(self, starts: list[Start], rows: list[int], logits: Tensor) -> None:
        import torch

        batch, where = self.batch, slice(rows[0], rows[-1] + 1)
        device = logits.device
        batch.rows.sample[where] = torch.tensor(self.running[where], device=device)
        batch.rows.position[where] = torch.tensor(self.fed[where], device=device) - 1
        batch.rows.step[where] = 0
        if batch.seen is not None:
            batch.seen[where] = False
            row = rows[0]
            for start in starts:
                ids = torch.tensor(self.requests[start.request].prompt_ids, device=device)
                batch.seen[row : row + len(start.samples), ids] = True
                row += len(start.samples)
        accept(batch, logits, where)

    def _decode(self) -> None:
        live = len(self.running)
        longest, shortest = max(self.fed), min(self.fed)
        self.batch.store.reach(longest + 1)
        decode(self.batch, self.forward, live, longest + 1, ragged=longest != shortest)
        self.fed = [column + 1 for column in self.fed]

    def _collect(self) -> list[int]:
        """The samples that just ended, taken out of their rows."""
        ended: list[int] = (
            (self.batch.rows.sample[: len(self.running)] == self.batch.out.sink).nonzero()[:, 0].tolist()
        )
        samples = [self.running[row] for row in ended]
        for row, sample in zip(ended, samples, strict=True):
            self.done[sample] = self._completion(sample, self.fed[row])
        self._close(ended)
        return samples

    def _completion(self, sample: int, fed: int) -> Completion:
        out = self.batch.out
        count = fed + 1 - len(self.requests[self.schedule.request_of[sample]].prompt_ids)
        tokens, logps = out.tokens[sample, :count].tolist(), out.logps[sample, :count].tolist()
        if not all(map(_is_finite, logps)):
            raise TrainingError(NOT_FINITE, hint=NOT_FINITE_HINT)
        return Completion(tokens, logps, "stop" if bool(self.batch.is_end[tokens[-1]]) else "length")

    def _close(self, ended: list[int]) -> None:
        import torch

        movers, holes, left = plan_moves(ended, len(self.running))
        if holes:
            device = self.batch.store.layout.device
            source, target = torch.tensor(movers, device=device), torch.tensor(holes, device=device)
            self.batch.store.copy_rows(source, target, max(self.fed[row] for row in movers) + 1)
            state = self.batch.rows
            for column in (state.token, state.position, state.sample, state.step):
                column[target] = column[source]
            if self.batch.seen is not None:
                self.batch.seen[target] = self.batch.seen[source]
            for mover, hole in zip(movers, holes, strict=True):
                self.running[hole], self.fed[hole] = self.running[mover], self.fed[mover]
        del self.running[left:], self.fed[left:]


def _is_finite(value: float) -> bool:
    return value - value == 0
