"""Samples are judged while others are still being generated, where the verifier works in processes of its own.

A verifier that runs in this process would only take turns with the generation (one interpreter lock), so those wait.
One thread serves the whole run: workers it starts are tied to its life on Linux, and a thread a step would end them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.rollout.engine import Completion, OnFinish

Finished = tuple[int, int, Completion]


class StreamingJudge:
    """Judges what `listening` hears of; `decode` turns token ids into texts."""

    def __init__(self, judge: Judge, decode: Callable[[list[list[int]]], list[str]]) -> None:
        self.judge, self.decode = judge, decode
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._found: Future[dict[tuple[int, int], Judgement]] | None = None

    @classmethod
    def where_it_pays(
        cls, judge: Judge, decode: Callable[[list[list[int]]], list[str]]
    ) -> StreamingJudge | None:
        """One, if any of the recipe's verifiers works in processes and none has to see a step's samples together.

        Episodes end together, after their environments have spoken: nothing is early.
        """
        pays = any(verifier.runs_elsewhere for verifier in judge.verifiers.values())
        early = pays and not judge.wants_whole_batch and judge.worlds is None
        return cls(judge, decode) if early else None

    @contextmanager
    def listening(self, tasks: Sequence[Task]) -> Iterator[OnFinish]:
        """The engine's `on_finish`; `tasks` are those of its requests."""
        heard: SimpleQueue[Finished | None] = SimpleQueue()
        self._found = self._thread.submit(self._judge_all, tasks, heard)
        try:
            yield lambda request, sample, completion: heard.put((request, sample, completion))
        finally:
            # also where generation failed: the thread waits for an end
            heard.put(None)

    def judgements(self, sizes: Sequence[int]) -> list[Judgement]:
        """All of them, request by request, once the last is there; `sizes` are the requests' numbers of samples."""
        assert self._found is not None
        # raises what the thread raised: an error of a verifier is not lost there
        found = self._found.result()
        return [found[request, sample] for request, size in enumerate(sizes) for sample in range(size)]

    def _judge_all(
        self, tasks: Sequence[Task], heard: SimpleQueue[Finished | None]
    ) -> dict[tuple[int, int], Judgement]:
        found: dict[tuple[int, int], Judgement] = {}
        is_open = True
        while is_open:
            batch = [heard.get()]
            # all that has come meanwhile in one call: a verifier's processes want batches
            while not heard.empty():
                batch.append(heard.get())
            is_open = None not in batch
            ready = [item for item in batch if item is not None]
            if ready:
                texts = self.decode([completion.token_ids for _, _, completion in ready])
                judged = self.judge.judge(texts, [tasks[request] for request, _, _ in ready])
                found |= {item[:2]: judgement for item, judgement in zip(ready, judged, strict=True)}
        return found
