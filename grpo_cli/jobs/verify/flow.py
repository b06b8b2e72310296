"""Sends chunks of lines through one or many scorers, in input order, with a bounded number in progress.

`chunks` cuts the input; `score_all` sends the chunks to this process and, once there are more than a few, to a pool of others,
which score whole groups where a verifier wants them. Scored chunks cross processes as bytes (`packed`, `unpacked`).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import astuple
from functools import partial
from itertools import chain
from typing import Any

from grpo_cli.errors import SetupError
from grpo_cli.jobs.verify.fields import BadLine, FieldNames, group_of
from grpo_cli.jobs.verify.scorer import MOST_REASONS, ScoredLines, Scorer, VerdictCounts, parse
from grpo_cli.lines import NumberedLine
from grpo_cli.reward.plan import ScoringPlan
from grpo_cli.statistics.failures import Failures
from grpo_verifiers.combine import PairSums
from grpo_verifiers.processes.pool import Done, Pool, ProcessLimits, Result
from grpo_verifiers.verifier import Unavailable, Verifier

CHUNK_LINES = 256
CHUNK_BYTES = 1 << 20
ALONE_CHUNKS = 4
"""Inputs of up to this many chunks are scored in this process: starting others would take longer."""
_NO_LIMIT = ProcessLimits(cpu_s=86_400.0, wall_s=86_400.0, memory_mb=None)  # verifiers have their own


def chunks(
    lines: Iterable[NumberedLine],
    most_lines: int = CHUNK_LINES,
    key_of: Callable[[NumberedLine], int | None] | None = None,
) -> Iterator[list[NumberedLine]]:
    """Chunks of this many lines or about a megabyte. A chunk is longer if neighbours with the same `key_of`
    continue."""
    chunk: list[NumberedLine] = []
    size = 0
    for line in lines:
        is_full = len(chunk) >= most_lines or size >= CHUNK_BYTES
        if is_full and (key_of is None or (key := key_of(line)) is None or key_of(chunk[-1]) != key):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line.text or b"")
        if key_of is None and (len(chunk) >= most_lines or size >= CHUNK_BYTES):
            yield chunk  # yield at once: a client that sends line by line waits for an answer
            chunk, size = [], 0
    if chunk:
        yield chunk


def score_all(
    lines: Iterable[NumberedLine],
    plan: ScoringPlan,
    keys: FieldNames,
    verifiers: Mapping[str, Verifier],
    *,
    jobs: int,
    stream: bool = False,
    explains: bool = False,
) -> Iterator[ScoredLines]:
    """Scored chunks in input order; `verifiers` are the plan's, started.

    Raises:
        SetupError: a scoring process died.
    """
    by_group = any(verifier.low is None or verifier.wants_whole_batch for verifier in verifiers.values())
    key_of = partial(_group, keys) if by_group and not stream else None
    parts = chunks(lines, 1 if stream else CHUNK_LINES, key_of)
    # copies of verifiers with own processes would compete for cores, copies of models for memory
    alone = stream or explains or any(verifier.runs_elsewhere or verifier.is_learned for verifier in verifiers.values())
    here = Scorer(plan, keys, verifiers, explains).score
    first: list[list[NumberedLine]] = []
    for part in () if alone or jobs < 2 else parts:
        first.append(part)
        if len(first) > ALONE_CHUNKS:
            yield from _in_parallel(chain(first, parts), here, plan, keys, jobs)
            return
    yield from map(here, chain(first, parts))


def _group(keys: FieldNames, line: NumberedLine) -> int | None:
    """The group of a line; None for one that cannot be read."""
    try:
        return group_of(parse(line), keys, line.number)
    except BadLine:
        return None


def _in_parallel(
    parts: Iterable[list[NumberedLine]],
    alone: Callable[[list[NumberedLine]], ScoredLines],
    plan: ScoringPlan,
    keys: FieldNames,
    jobs: int,
) -> Iterator[ScoredLines]:
    """Score chunks in processes, and in this one until the first of them has started."""
    pool = Pool("grpo_cli.jobs.verify.flow:serve", (plan, keys), workers=jobs, limits=_NO_LIMIT)
    starter = threading.Thread(target=_start, args=(pool,), daemon=True)
    starter.start()
    waiting: deque[tuple[list[NumberedLine], Future[list[Result]]]] = deque()
    try:
        for part in parts:
            if starter.is_alive():
                yield alone(part)
                continue
            waiting.append((part, pool.submit([part])))
            if len(waiting) > 2 * jobs:
                yield _taken(*waiting.popleft())
        while waiting:
            yield _taken(*waiting.popleft())
    finally:
        # do not wait for processes that are still starting: they end with the pool or with this process
        threading.Thread(target=pool.close, daemon=starter.is_alive()).start()


def _start(pool: Pool) -> None:
    with contextlib.suppress(Unavailable):  # the first chunk will raise the error
        pool.start()


def _taken(part: list[NumberedLine], future: Future[list[Result]]) -> ScoredLines:
    (result,) = future.result()
    if isinstance(result, Done):
        return unpacked(result.value)
    where = f"lines {part[0].number} to {part[-1].number}"
    why = getattr(result, "reason", "") or f"{getattr(result, 'kind', '')}: {getattr(result, 'message', '')}"
    raise SetupError(f"a scoring process failed on {where}: {why}", hint="`--jobs 1` shows the cause")


def serve(config: tuple[ScoringPlan, FieldNames]) -> tuple[Callable[[list[NumberedLine]], bytes], None]:
    """The pool's task: a scorer in a process of its own."""
    plan, keys = config
    scorer: list[Scorer] = []

    def work(lines: list[NumberedLine]) -> bytes:
        if not scorer:  # after the fork: a verifier's own processes and threads do not survive one
            scorer.append(Scorer(plan, keys, plan.start()))
        return packed(scorer[0].score(lines))

    plan.build()  # imports happen once, before the fork
    return work, None


def packed(scored: ScoredLines) -> bytes:
    """A scored chunk as bytes: a JSON header, then the output lines."""
    counts = scored.counts
    header: dict[str, Any] = {
        "sizes": [None if line is None else len(line) for line in scored.out],
        "samples": scored.samples,
        "problems": scored.problems,
        "counts": [counts.outcomes, counts.reasons, counts.score_sum, counts.score_n],
        "failures": counts.failures.packed(),
        "episodes": counts.episodes,
        "marks": counts.marks.most_common(MOST_REASONS),
        "pairs": [[*names, *astuple(sums)] for names, sums in counts.pairs.items()],
    }
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "big") + head + b"".join(line for line in scored.out if line is not None)


def unpacked(data: bytes) -> ScoredLines:
    """The scored chunk that `packed` wrote."""
    at = 8 + int.from_bytes(data[:8], "big")
    header = json.loads(data[8:at])
    out: list[bytes | None] = []
    for size in header["sizes"]:
        out.append(None if size is None else data[at : at + size])
        at += size or 0
    outcomes, reasons, score_sum, score_n = header["counts"]
    counts = VerdictCounts(
        {name: Counter(one) for name, one in outcomes.items()},
        {name: Counter(one) for name, one in reasons.items()},
        score_sum,
        score_n,
        {(one, other): PairSums(*sums) for one, other, *sums in header["pairs"]},
        Failures.unpacked(header["failures"]),
        Counter(dict(header["marks"])),
        header["episodes"],
    )
    return ScoredLines(out, [tuple(one) for one in header["samples"]], [tuple(p) for p in header["problems"]], counts)
