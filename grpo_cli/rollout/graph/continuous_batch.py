"""One running `generate` call: admit, decode, collect, close gaps, until every sample has ended.

How this works: requests come in, as many samples of each as asked for, and the rows of a `Batch` are free. In a loop,
`finish_all` either admits waiting samples (a prompt goes through the model once and its columns are copied into the rows of all
its samples) or decodes one or some tokens in every row. Samples that an end token, `max_tokens` or a stop word has ended are
taken out as completions, their rows become free, and the last rows move into the gaps. `TurnBatch` does the same for turns of
episodes, whose history is loaded from a cache in place of a prefill. Continuous batching as in Orca (Yu et al., OSDI 2022).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grpo_cli.errors import TrainingError
from grpo_cli.rollout.decoding.cache import Extend, Prefill
from grpo_cli.rollout.decoding.state import Batch, accept
from grpo_cli.rollout.engine import NOT_FINITE, NOT_FINITE_HINT, Completion, OnFinish, OnProgress, Request
from grpo_cli.rollout.graph.caches import EpisodeCache
from grpo_cli.rollout.graph.stepper import Stepper
from grpo_cli.rollout.stop_words import StopWords

if TYPE_CHECKING:
    from torch import Tensor

    from grpo_cli.rollout.decoding.rollout_mode import Forward
    from grpo_cli.rollout.decoding.state import Outputs


# Which samples run next: requests in order, `n` samples each, as rows become free. Pure bookkeeping, no
# tensors.


@dataclass(frozen=True, slots=True)
class Admission:
    """Samples of one request that start together."""

    request: int
    samples: list[int]


class Schedule:
    """The waiting samples. Samples are numbered over all requests; `request_of` and `index_of` map a number back."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.request_of = [r for r, request in enumerate(requests) for _ in range(request.n)]
        self.index_of = [s for request in requests for s in range(request.n)]
        # for each request: its first waiting sample, and how many wait
        self._left = deque[tuple[int, int, int]]()
        total = 0
        for r, request in enumerate(requests):
            if request.n:
                self._left.append((r, total, request.n))
            total += request.n
        self.total, self.waiting = total, total

    def take(self, free: int) -> list[Admission]:
        """At most `free` samples, the longest waiting first; a request may be split."""
        taken = []
        while free and self._left:
            request, first, count = self._left.popleft()
            now = min(count, free)
            if now < count:
                # the rest stays first in line, so that its prompt's columns are still in a row when it is admitted
                self._left.appendleft((request, first + now, count - now))
            taken.append(Admission(request, list(range(first, first + now))))
            free -= now
            self.waiting -= now
        return taken

    def unfinished(self, request: int) -> bool:
        """Whether samples of this request still wait."""
        # requests start in order, so only the first in line can be started but not complete
        return bool(self._left) and self._left[0][0] == request


def worth_refilling(free: int, rows: int, waiting: int, share: float) -> bool:
    """Prefill is more efficient on many prompts: it waits until this share of the rows is free, or enough for all
    waiting samples."""
    return waiting > 0 and free >= min(waiting, max(1, int(rows * share)))


def plan_moves(ended: Sequence[int], live: int) -> tuple[list[int], list[int], int]:
    """(from rows, to rows, rows left) that close the gaps `ended` leaves among the first `live` rows."""
    gone = set(ended)
    left = live - len(gone)
    holes = sorted(row for row in gone if row < left)
    # as many as there are holes: both count the live rows at or after `left`
    movers = [row for row in range(left, live) if row not in gone]
    return movers, holes, left


def chunk_by_tokens(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices in batches of similar length whose padded size is at most `budget` tokens (one prompt always fits)."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    chunks: list[list[int]] = []
    for index in order:
        # sorted by length, so the newest prompt is the longest, and its chunk is padded to it
        if chunks and (len(chunks[-1]) + 1) * lengths[index] <= budget:
            chunks[-1].append(index)
        else:
            chunks.append([index])
    return chunks


# Stop words while samples decode: the host reads what came since its last scan, and what ran on behind a
# text is left out.


class StopScanner:
    """Records the number of tokens of each stopped sample, in `cut`, and the tokens of the running ones."""

    def __init__(self, words: StopWords) -> None:
        self.words = words
        self.cut: dict[int, int] = {}
        self._tokens_of: dict[int, list[int]] = {}

    def begin(self, sample: int, begun: Sequence[int]) -> None:
        """Start a sample that already has these tokens."""
        self._tokens_of[sample] = list(begun)

    def scan(self, out: Outputs, samples: Sequence[int]) -> set[int]:
        """The running `samples` that a stop text has ended since the last scan."""
        import torch

        index = torch.tensor(samples, device=out.tokens.device)
        looked = [len(self._tokens_of[sample]) for sample in samples]
        # since the last scan the device may have taken several steps on some samples and none on others
        new = [count - n for count, n in zip(out.count[index].tolist(), looked, strict=True)]
        first = torch.tensor(looked, device=index.device)[:, None]
        columns = first + torch.arange(max(new), device=index.device)
        # one copy from the device for all samples: those with fewer new tokens read on into void columns, left out below
        tokens = out.tokens[index[:, None], columns.clamp_(max=out.tokens.shape[1] - 1)].tolist()
        ended = set()
        for sample, before, n, some in zip(samples, looked, new, tokens, strict=True):
            so_far = self._tokens_of[sample]
            so_far += some[:n]
            count = self.words.cut(so_far, before)
            if count is not None:
                self.cut[sample] = count
                ended.add(sample)
        return ended


IDLE = -1


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
        # rows and buffers come from the last call: their contents are invalid, but memory and captured graphs are
        # reused
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
            # admitting and decoding alternate and never mix: a captured graph needs steps of one shape
            free = rows - self._active()
            if worth_refilling(free, rows, schedule.waiting, self.stepper.refill_share):
                self._admit(schedule.take(free), prefill_tokens)
            else:
                columns = [c for c, sample in zip(self.fed, self.running, strict=True) if sample != IDLE]
                self.stepper.run(self.batch, len(self.running), min(columns), max(columns))
                # idle rows are advanced too: the column is reset when a sample enters the row
                self.fed = [column + self.stepper.steps for column in self.fed]
            ended = self._collect()
            # report it while the others still decode, so that verdicts overlap with generation
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

        # the prompt's last logits were kept: later samples need no pass, only a copy of its columns
        logits = self.first_logits.pop(start.request)
        of = self.schedule.request_of
        donors = [row for row, s in enumerate(self.running) if s != IDLE and of[s] == start.request]
        if not donors:
            fresh.append(start)
            return
        rows = self._occupy([start])
        self.batch.store.copy_rows(torch.full_like(rows, donors[0]), rows, len(self.requests[start.request].ids))
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

    def _prompt_pass(
        self, starts: list[Admission], prompts: Sequence[Sequence[int]], of_row: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The rows that these samples fill, row i from prompt `of_row[i]`, and each prompt's last logits [prompts, vocabulary]."""
        import torch

        # padded on the right: a row's columns begin at 0, and no real token sees what stands behind it
        longest = max(map(len, prompts))
        tokens = self._tensor([[*ids, *[0] * (longest - len(ids))] for ids in prompts])
        positions = torch.arange(longest, device=self.device)[None].expand(len(prompts), -1)
        last = self._tensor([len(ids) - 1 for ids in prompts])
        rows = self._occupy(starts)
        self.batch.store.reach(tokens.shape[1])
        return rows, self.forward(Prefill(self.batch.store, rows, of_row), tokens, positions, last)

    def _occupy(self, starts: list[Admission]) -> Tensor:
        """Rows for these samples, idle ones first."""
        # fill gaps first: a decode step computes all rows up to the last running one
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
        # fill rows in place: captured graphs read these tensors
        batch.rows.sample[rows] = self._tensor(samples)
        # `accept` advances by one, to the first column after the prompt
        batch.rows.position[rows] = self._tensor([len(request.ids) - 1 for request in requests])
        # a completion with a prefix continues with the uniform number of its next token, as if generated in one piece
        batch.rows.step[rows] = self._tensor([len(request.prefix) for request in requests])
        if batch.seen is not None:
            # the prompt counts for the penalty too, as in transformers
            batch.seen[rows] = False
            done = 0
            for start in starts:
                ids = self._tensor(self.requests[start.request].ids)
                request_rows = rows[done : done + len(start.samples)]
                batch.seen[request_rows[:, None], ids[None]] = True
                done += len(start.samples)
        accept(batch, logits, rows)

    def _collect(self) -> list[int]:
        """The samples that just ended, taken out of their rows."""
        sink = self.batch.out.sink
        if self.stop_scanner is not None:
            running = [sample for sample in self.running if sample != IDLE]
            stopped = self.stop_scanner.scan(self.batch.out, running)
            rows = [row for row, sample in enumerate(self.running) if sample in stopped]
            if rows:
                # from here on as if the device itself had ended them
                self.batch.rows.idle(self._tensor(rows), sink)
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
        self._close_gaps()
        return samples

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
        made = []
        for ids, values, first, count, stop in zip(tokens, logps, begun, counts, stopped, strict=True):
            # check the sum only: any NaN or infinity makes the sum non-finite
            if not math.isfinite(sum(values[first:count])):
                raise TrainingError(NOT_FINITE, hint=NOT_FINITE_HINT)
            made.append(Completion(ids[first:count], values[first:count], "stop" if stop else "length"))
        mixer = self.batch.mixer
        if mixer is not None:
            made = [
                replace(one, mixtures=mixer.mixtures(sample, first, count))
                for one, sample, first, count in zip(made, samples, begun, counts, strict=True)
            ]
        return made

    def _close_gaps(self) -> None:
        """Moves the last rows into the gaps where that makes a step cheaper."""
        width, active = self.stepper.width, self._active()
        # rows are computed in buckets: closing gaps within a bucket saves nothing, and waiting samples will fill them
        if width(active) == width(len(self.running)) or (self.schedule.waiting and self.stepper.steps > 1):
            return
        idle = [row for row, sample in enumerate(self.running) if sample == IDLE]
        movers, holes, left = plan_moves(idle, len(self.running))
        if holes:
            source, target = self._tensor(movers), self._tensor(holes)
            # copy only as many columns as the longest of them uses
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


# A `generate` call whose samples are turns of episodes: the columns from the end of the previous turn is taken up.


class TurnBatch(ContinuousBatch):
    """One sample a request, each with a slot in the cache that outlives the call."""

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
        # separate passes: a prefill attends within prompts only, an extension to all columns of a row
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
        # not a set: its order differs between processes
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
        # load up to the longest known length: a row's later columns are invalid, but none of its tokens sees them
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
        self.episode_cache.save(self.batch.store, rows, requests, ids, [len(request.ids) for request in requests])
        return made

    def _of(self, starts: Sequence[Admission]) -> list[Request]:
        return [self.requests[start.request] for start in starts]
