"""One `generate` call under way: admit, decode, collect, close gaps, until every sample has ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.errors import TrainingError
from grpo_cli.rollout.bounds import NOT_FINITE, NOT_FINITE_HINT
from grpo_cli.rollout.decoding.cache import Prefill
from grpo_cli.rollout.decoding.state import Batch, accept
from grpo_cli.rollout.engine import Completion, OnFinish, OnProgress, Request
from grpo_cli.rollout.graph.schedule import Admission, Schedule, chunk_by_tokens, plan_moves, worth_refilling
from grpo_cli.rollout.graph.stepper import Stepper
from grpo_cli.rollout.graph.stop_scanner import StopScanner
from grpo_cli.rollout.stop_words import StopWords

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from grpo_cli.rollout.decoding.rollout_mode import Forward

IDLE = -1

Ids = Sequence[Sequence[int]]
"""Token ids of prompts."""


def prompt_tensors(prompts: Ids, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens and positions [prompts, tokens], padded on the right, and the place of each last token [prompts]; all int64."""
    import torch

    longest = max(map(len, prompts))
    tokens = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in prompts], device=device)
    positions = torch.arange(longest, device=device)[None].expand(len(prompts), -1)
    return tokens, positions, torch.tensor([len(ids) - 1 for ids in prompts], device=device)


class ContinuousBatch:
    """`running[row]` is the sample in that row or IDLE, `fed[row]` the column its next token goes to."""

    def __init__(
        self,
        batch: Batch,
        forward: Forward,
        stepper: Stepper,
        requests: Sequence[Request],
        schedule: Schedule,
        stops: StopWords | None = None,
    ) -> None:
        self.batch, self.forward, self.stepper = batch, forward, stepper
        self.requests, self.schedule = requests, schedule
        self.stop_scanner = StopScanner(stops) if stops is not None else None
        self.device = batch.store.layout.device
        self.running: list[int] = []
        self.fed: list[int] = []
        self.first_logits: dict[int, Tensor] = {}
        self.done: dict[int, Completion] = {}
        # rows and buffers are those of the last call: what they hold is void, the memory and the captured graphs are not
        batch.rows.idle(slice(None), batch.out.sink)
        batch.store.restart()

    def finish_all(
        self, prefill_tokens: int, on_finish: OnFinish | None, on_progress: OnProgress | None
    ) -> list[Completion]:
        """The completion of every sample, in the order of their numbers."""
        schedule, rows = self.schedule, self.batch.store.rows
        if on_progress:
            on_progress(0, schedule.total)
        while len(self.done) < schedule.total:
            # admitting and decoding take turns and never mix: a step has one shape, which a captured graph needs
            free = rows - self._active()
            if worth_refilling(free, rows, schedule.waiting, self.stepper.refill_share):
                self._admit(schedule.take(free), prefill_tokens)
            else:
                self._decode()
            ended = self._collect()
            # while the others still decode: verdicts overlap with generation
            for sample in ended if on_finish else ():
                on_finish(schedule.request_of[sample], schedule.index_of[sample], self.done[sample])  # type: ignore[misc]
            if on_progress and ended:
                on_progress(len(self.done), schedule.total)
        return [self.done[sample] for sample in range(schedule.total)]

    def _active(self) -> int:
        return len(self.running) - self.running.count(IDLE)

    def _admit(self, starts: list[Admission], prefill_tokens: int) -> None:
        fresh = [start for start in starts if start.request not in self.first_logits]
        for start in starts:
            if start.request in self.first_logits:
                self._share(start, fresh)
        lengths = [len(self.requests[start.request].ids) for start in fresh]
        for chunk in chunk_by_tokens(lengths, prefill_tokens):
            self._prefill([fresh[i] for i in chunk])

    def _share(self, start: Admission, fresh: list[Admission]) -> None:
        """Later samples of a request copy the prompt's columns from a row that still runs; without one, prefill again."""
        import torch

        # the prompt's last logits were kept: its later samples need no pass, only its columns
        logits = self.first_logits.pop(start.request)
        of = self.schedule.request_of
        donors = [row for row, s in enumerate(self.running) if s != IDLE and of[s] == start.request]
        if not donors:
            fresh.append(start)
            return
        rows = self._occupy([start])
        self.batch.store.copy_rows(
            torch.full_like(rows, donors[0]), rows, len(self.requests[start.request].ids)
        )
        self._first_tokens([start], rows, logits[None].expand(len(rows), -1))
        if self.schedule.unfinished(start.request):
            self.first_logits[start.request] = logits

    def _prefill(self, starts: list[Admission]) -> None:
        prompts = [self.requests[start.request].ids for start in starts]
        # a prompt goes through the model once, whatever its number of samples; the rows are filled by its copies
        prompt_of_row = self._tensor([i for i, start in enumerate(starts) for _ in start.samples])
        rows, logits = self._prompt_pass(starts, prompts, prompt_of_row)
        for start, row in zip(starts, logits, strict=True):
            if self.schedule.unfinished(start.request):
                self.first_logits[start.request] = row.clone()
        self._first_tokens(starts, rows, logits[prompt_of_row])

    def _prompt_pass(self, starts: list[Admission], prompts: Ids, of_row: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that these samples fill, row i from prompt `of_row[i]`, and each prompt's last logits [prompts, vocabulary]."""
        tokens, positions, last = prompt_tensors(prompts, self.device)
        rows = self._occupy(starts)
        self.batch.store.reach(tokens.shape[1])
        return rows, self.forward(Prefill(self.batch.store, rows, of_row), tokens, positions, last)

    def _occupy(self, starts: list[Admission]) -> Tensor:
        """Rows for these samples, idle ones first."""
        idle = [row for row, sample in enumerate(self.running) if sample == IDLE]
        rows: list[int] = []
        for start in starts:
            column = len(self.requests[start.request].ids)
            for sample in start.samples:
                if self.stop_scanner is not None:
                    self.stop_scanner.begin(sample, self.requests[start.request].prefix)
                if len(rows) < len(idle):
                    row = idle[len(rows)]
                    self.running[row], self.fed[row] = sample, column
                else:
                    row = len(self.running)
                    self.running.append(sample)
                    self.fed.append(column)
                rows.append(row)
        return self._tensor(rows)

    def _first_tokens(self, starts: list[Admission], rows: Tensor, logits: Tensor) -> None:
        batch = self.batch
        samples = [sample for start in starts for sample in start.samples]
        requests = [self.requests[start.request] for start in starts for _ in start.samples]
        batch.rows.sample[rows] = self._tensor(samples)
        # `accept` moves on by one: to the first column behind the prompt
        batch.rows.position[rows] = self._tensor([len(request.ids) - 1 for request in requests])
        # a completion that is begun goes on with the uniform number of its next token, as if it had never been cut
        batch.rows.step[rows] = self._tensor([len(request.prefix) for request in requests])
        if batch.seen is not None:
            batch.seen[rows] = False
            done = 0
            for start in starts:
                ids = self._tensor(self.requests[start.request].ids)
                request_rows = rows[done : done + len(start.samples)]
                batch.seen[request_rows[:, None], ids[None]] = True
                done += len(start.samples)
        accept(batch, logits, rows)

    def _decode(self) -> None:
        columns = [column for column, sample in zip(self.fed, self.running, strict=True) if sample != IDLE]
        self.stepper.run(self.batch, len(self.running), min(columns), max(columns))
        self.fed = [column + self.stepper.steps for column in self.fed]

    def _collect(self) -> list[int]:
        """The samples that just ended, taken out of their rows."""
        sink = self.batch.out.sink
        self._stop()
        # the only wait for the device between two steps
        now: list[int] = self.batch.rows.sample[: len(self.running)].tolist()
        ended = [row for row, sample in enumerate(self.running) if sample != IDLE and now[row] == sink]
        if not ended:
            return []
        samples = [self.running[row] for row in ended]
        for sample, completion in zip(samples, self._completions(samples), strict=True):
            self.done[sample] = completion
        for row in ended:
            self.running[row] = IDLE
        self._close()
        return samples

    def _stop(self) -> None:
        """Takes samples that a stop word has ended off their rows."""
        if self.stop_scanner is None:
            return
        ended = self.stop_scanner.scan(self.batch.out, [sample for sample in self.running if sample != IDLE])
        rows = [row for row, sample in enumerate(self.running) if sample in ended]
        if rows:
            self.batch.rows.idle(self._tensor(rows), self.batch.out.sink)

    def _completions(self, samples: list[int]) -> list[Completion]:
        out, index = self.batch.out, self._tensor(samples)
        cut = self.stop_scanner.cut if self.stop_scanner is not None else {}
        counts = [cut.get(s, n) for s, n in zip(samples, out.count[index].tolist(), strict=True)]
        longest = max(counts)
        tokens, logps = out.tokens[index, :longest].tolist(), out.logps[index, :longest].tolist()
        last = out.tokens[index, self._tensor(counts) - 1]
        is_end = self.batch.is_end[last].tolist()
        stopped = [end or sample in cut for end, sample in zip(is_end, samples, strict=True)]
        begun = [len(self.requests[self.schedule.request_of[sample]].prefix) for sample in samples]
        spans = zip(tokens, logps, begun, counts, stopped, strict=True)
        return [_completion(ids[a:b], values[a:b], stop) for ids, values, a, b, stop in spans]

    def _close(self) -> None:
        """Moves the last rows into the gaps where that makes a step cheaper."""
        width, active = self.stepper.width, self._active()
        # rows are computed by the bucket: closing gaps within one saves nothing, and waiting samples will fill them
        if width(active) == width(len(self.running)) or (self.schedule.waiting and self.stepper.steps > 1):
            return
        idle = [row for row, sample in enumerate(self.running) if sample == IDLE]
        movers, holes, left = plan_moves(idle, len(self.running))
        if holes:
            source, target = self._tensor(movers), self._tensor(holes)
            # only as many columns as any of them has been fed
            self.batch.store.copy_rows(source, target, max(self.fed[row] for row in movers))
            self.batch.rows.move(source, target)
            self.batch.rows.idle(source, self.batch.out.sink)
            if self.batch.seen is not None:
                self.batch.seen[target] = self.batch.seen[source]
            for mover, hole in zip(movers, holes, strict=True):
                self.running[hole], self.fed[hole] = self.running[mover], self.fed[mover]
        del self.running[left:], self.fed[left:]

    def _tensor(self, values: list[int] | list[list[int]]) -> Tensor:
        import torch

        return torch.tensor(values, device=self.device)


def _completion(ids: list[int], logps: list[float], stopped: bool) -> Completion:
    # one look at the sum: a NaN or infinity anywhere makes it one
    if not math.isfinite(sum(logps)):
        raise TrainingError(NOT_FINITE, hint=NOT_FINITE_HINT)
    return Completion(ids, logps, "stop" if stopped else "length")
