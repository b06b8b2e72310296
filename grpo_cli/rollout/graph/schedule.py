"""Which samples run next: requests in order, `n` samples each, as rows become free. Pure bookkeeping, no tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_cli.rollout.engine import Request


@dataclass(frozen=True, slots=True)
class Admission:
    """Samples of one request that start together."""

    request: int
    samples: list[int]


class Schedule:
    """The waiting samples. Samples are numbered through all requests; `request_of` and `index_of` lead back."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.request_of = [r for r, request in enumerate(requests) for _ in range(request.n)]
        self.index_of = [s for request in requests for s in range(request.n)]
        starts: list[int] = []
        total = 0
        for request in requests:
            starts.append(total)
            total += request.n
        self.total, self.waiting = total, total
        self._left = deque((r, starts[r], request.n) for r, request in enumerate(requests) if request.n)

    def take(self, free: int) -> list[Admission]:
        """At most `free` samples, the longest waiting first; a request may be split."""
        taken = []
        while free and self._left:
            request, first, count = self._left.popleft()
            now = min(count, free)
            if now < count:
                # its rest stays first, so that its prompt's columns are still in a row when it comes
                self._left.appendleft((request, first + now, count - now))
            taken.append(Admission(request, list(range(first, first + now))))
            free -= now
            self.waiting -= now
        return taken

    def unfinished(self, request: int) -> bool:
        """Whether samples of this request still wait."""
        # requests start in order, so only the first in line can have started and not be done
        return bool(self._left) and self._left[0][0] == request


def worth_refilling(free: int, rows: int, waiting: int, share: float) -> bool:
    """Prefill runs better on many prompts at once: this share of the rows must be free, or enough for all that wait."""
    return waiting > 0 and free >= min(waiting, max(1, int(rows * share)))


def plan_moves(ended: Sequence[int], live: int) -> tuple[list[int], list[int], int]:
    """(from rows, to rows, rows left) that close the gaps `ended` leaves among the first `live` rows."""
    gone = set(ended)
    left = live - len(gone)
    holes = sorted(row for row in gone if row < left)
    # as many as holes: both count the live rows that stand behind `left`
    movers = [row for row in range(left, live) if row not in gone]
    return movers, holes, left


def chunk_by_tokens(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices in batches of like length whose padded size stays within `budget` tokens (one prompt always fits)."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    chunks: list[list[int]] = []
    for index in order:
        if chunks and (len(chunks[-1]) + 1) * lengths[index] <= budget:
            chunks[-1].append(index)
        else:
            chunks.append([index])
    return chunks
