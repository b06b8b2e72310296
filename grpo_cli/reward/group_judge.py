"""Turns the samples of a rollout into groups with rewards: verdicts, shaping, and a placebo if the recipe has one.

How this works. The rollout calls `listening` around its engine and `groups` after it. If a verifier runs in processes
of its own, `StreamingJudge` judges each sample when it is finished; otherwise `judge_finished` judges all samples at
the end. `CreditMarker` marks the token positions that `train.credit` uses, `RewardRule` (`reward/pay.py`) computes
rewards from verdicts, and a `Group` holds the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from queue import SimpleQueue

import regex

from grpo_cli.recipe.sections.recipe import Recipe, TurnCredit
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judge, Judgement, RowTasks, Task
from grpo_cli.reward.pay import RewardRule
from grpo_cli.rollout.collect import EngineCall, RowCompletions
from grpo_cli.rollout.engine import Completion, OnFinish, Turn
from grpo_verifiers.thinking import after_thinking

PATTERN_S = 2.0
"""Seconds for one pattern of `train.credit` on one answer."""
Decode = Callable[[list[list[int]]], list[str]]


class GroupJudge:
    """The judge of a run's rows. Where it saves time, samples are judged while others are generated."""

    def __init__(self, recipe: Recipe, judge: Judge, tasks: RowTasks, decode: Decode) -> None:
        self.recipe, self.judge, self.tasks, self.decode = recipe, judge, tasks, decode
        self.pay = RewardRule(recipe)
        self.early = StreamingJudge.where_it_pays(judge, decode)
        self.marks = CreditMarker(recipe.train.credit, decode) if recipe.train.credit is not None else None

    def listening(self, rows: Sequence[int]) -> AbstractContextManager[OnFinish | None]:
        """The callback that an engine calls with each finished sample of these rows; None where samples are judged at the end."""
        if self.early is None:
            return nullcontext(None)
        return self.early.listening([self.tasks[row] for row in rows])

    def groups(self, sampled: Sequence[RowCompletions], call: EngineCall) -> list[Group]:
        """A judged group for each sampled row, in order."""
        flat = [completion for s in sampled for completion in s.completions]
        texts = texts_of(flat, self.decode)
        if self.early is not None:
            judgements = self.early.judgements([len(s.completions) for s in sampled])
        else:
            tasks = [self.tasks[s.row] for s in sampled for _ in s.completions]
            judgements = judge_finished(self.judge, flat, texts, tasks)
        found, at = [], 0
        for s in sampled:
            own, completions = slice(at, at + len(s.completions)), s.completions
            at = own.stop
            # only now is the group complete: the score for no answer depends on the other samples' scores
            judged = self.judge.settled(judgements[own])
            if self.marks is not None:
                completions = self.marks.put(completions)
            # the seed depends on the call too: a row sampled twice in a step gets a new placebo draw
            place = f"{call.step}/{call.number}/{s.row}"
            tokens, invalid = [c.sampled_tokens for c in completions], [c.invalid for c in completions]
            paid = self.pay.of(judged, texts[own], tokens, place, invalid)
            prefix = self.tasks[s.row].assistant_prefix
            found.append(
                Group(s.row, completions, texts[own], judged, paid.rewards, s.prompt_ids, prefix, paid.outcomes)
            )
        return found


def texts_of(completions: Sequence[Completion], decode: Decode) -> list[str]:
    """The text that a verifier reads for each completion: its text, or for an episode the transcript or the final
    answer."""
    # the ids of an episode include the environment's tokens
    plain = iter(decode([c.token_ids for c in completions if c.episode is None]))
    return [next(plain) if c.episode is None else c.episode.judged for c in completions]


def judge_finished(
    judge: Judge, completions: Sequence[Completion], texts: Sequence[str], tasks: Sequence[Task]
) -> list[Judgement]:
    """The judgements in order; for episodes, the results of their environments are included."""
    played = [None if c.episode is None else c.episode.played for c in completions]
    return judge.judge(texts, tasks, [c.token_ids for c in completions], played)


# Streaming: if a verifier runs in processes of its own, samples are judged while others are still being generated. A
# verifier in this process would only compete with generation for the interpreter lock, so it runs at the end. One
# thread serves the whole run: on Linux the workers end with the thread that started them.

Finished = tuple[int, int, Completion]


class StreamingJudge:
    """Judges samples while the engine generates; `decode` turns token ids into texts."""

    def __init__(self, judge: Judge, decode: Decode) -> None:
        self.judge, self.decode = judge, decode
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._found: Future[dict[tuple[int, int], Judgement]] | None = None

    @classmethod
    def where_it_pays(cls, judge: Judge, decode: Decode) -> StreamingJudge | None:
        """A streaming judge if a verifier of the recipe runs in processes and none needs all samples of a step
        together; else None."""
        # a verifier in this process would only compete with generation for the interpreter lock
        pays = any(verifier.runs_elsewhere for verifier in judge.verifiers.values())
        # episodes all end after the last step of their environments: none can be judged early
        early = pays and not judge.wants_whole_batch and judge.worlds is None
        return cls(judge, decode) if early else None

    @contextmanager
    def listening(self, tasks: Sequence[Task]) -> Iterator[OnFinish]:
        """The engine's `on_finish`; `tasks` are those of its requests."""
        finished: SimpleQueue[Finished | None] = SimpleQueue()
        self._found = self._thread.submit(self._judge_all, tasks, finished)
        try:
            yield lambda request, sample, completion: finished.put((request, sample, completion))
        finally:
            # also if generation failed: the thread waits for the end mark
            finished.put(None)

    def judgements(self, sizes: Sequence[int]) -> list[Judgement]:
        """All judgements, request by request, when the last is ready; `sizes` are the numbers of samples of the
        requests."""
        assert self._found is not None
        # raises the thread's exception, so that an error of a verifier is not lost
        found = self._found.result()
        return [found[request, sample] for request, size in enumerate(sizes) for sample in range(size)]

    def _judge_all(
        self, tasks: Sequence[Task], finished: SimpleQueue[Finished | None]
    ) -> dict[tuple[int, int], Judgement]:
        found: dict[tuple[int, int], Judgement] = {}
        is_open = True
        while is_open:
            batch = [finished.get()]
            # take all samples that have arrived in one call: verifiers are faster on batches
            while not finished.empty():
                batch.append(finished.get())
            is_open = None not in batch
            ready = [item for item in batch if item is not None]
            if ready:
                texts = self.decode([completion.token_ids for _, _, completion in ready])
                judged = self.judge.judge(texts, [tasks[request] for request, _, _ in ready])
                found |= {item[:2]: judgement for item, judgement in zip(ready, judged, strict=True)}
        return found


# Marks: token positions in a sample that credit uses, namely milestones in an answer and the end of a plan.

FIRST = "first"
"""`plan` if the first turn is the plan."""


LONGEST_MARK = 32
"""Tokens among which the mark that opens a thinking is looked for."""


@dataclass(frozen=True)
class CreditMarker:
    """Puts the marks that a recipe's `train.credit` reads on samples."""

    spec: TurnCredit
    decode: Decode

    def put(self, completions: Sequence[Completion]) -> list[Completion]:
        """The same samples with their marks: `planned` tokens at the start of each turn, or the parts up to milestones."""
        if self.spec.method == "rredcot":
            return [replace(c, marks=self._lines(c.token_ids)) for c in completions]
        if self.spec.method != "planner":
            # without patterns the environment names the milestones itself, turn by turn
            return [replace(c, marks=self._milestones(c.token_ids)) if self.spec.patterns else c for c in completions]
        found = list(completions)
        for i, c in enumerate(completions):
            if c.episode is not None:  # an answer without turns has no separate plan
                turns = []
                for number, turn in enumerate(c.episode.turns):
                    ids = c.token_ids[turn.start : turn.end]
                    if self.spec.plan == FIRST:
                        planned = len(ids) if number == 0 else 0
                    else:
                        before, end, _ = self.decode([ids])[0].partition(self.spec.plan)
                        planned = self._tokens(ids, before + end) if end else 0
                    turns.append(replace(turn, planned=planned))
                found[i] = replace(c, episode=replace(c.episode, turns=tuple(turns)))
        return found

    def _milestones(self, ids: list[int]) -> tuple[Turn, ...]:
        """The parts of an answer: each ends where a milestone is reached for the first time, the last is the rest."""
        # patterns match text, but credit needs token positions, which `_tokens` finds
        text = self.decode([ids])[0]
        try:
            matches = [
                (name, regex.search(pattern, text, timeout=PATTERN_S)) for name, pattern in self.spec.patterns.items()
            ]
        except TimeoutError:  # a pattern that backtracks without end: the answer is one part, credited as a whole
            matches = []
        found = [(match.end(), name) for name, match in matches if match is not None]
        parts, start = list[Turn](), 0
        # in the order of their places in the text, not of the recipe
        for end, name in sorted(found):
            stop = self._tokens(ids, text[:end])
            if stop > start:  # if one token completes two milestones, the first counts
                parts.append(Turn(start, stop, milestone=name))
                start = stop
        if start < len(ids) or not parts:
            parts.append(Turn(start, len(ids)))
        return tuple(parts)

    def _lines(self, ids: list[int]) -> tuple[Turn, ...]:
        """The lines of an answer's thinking, the last with all that follows it."""
        text = self.decode([ids])[0]
        read = after_thinking(text)
        # behind the thinking, or behind the forced text itself, no answer can be forced any more
        ends = [len(text) - len(read.text)] if len(read.text) < len(text) and not read.is_open else []
        if self.spec.force in text:
            ends.append(text.rindex(self.spec.force))
        last = self._tokens(ids, text[: min(ends)]) if ends else len(ids)
        breaks = ["\n" in piece for piece in self.decode([[token] for token in ids])]
        # the forced text closes the thinking, so an answer can be forced behind what opens it at the earliest
        heads = self.decode([ids[:n] for n in range(1, min(last, LONGEST_MARK) + 1)])
        opened = next((n for n, head in enumerate(heads, start=1) if after_thinking(head).is_open), 0)
        cuts = [i + 1 for i in range(opened, min(last, len(ids) - 1)) if breaks[i] and not breaks[i + 1]]
        lines = [Turn(start, end) for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
        return (replace(lines[0], planned=opened), *lines[1:])

    def _tokens(self, ids: list[int], text: str) -> int:
        """The smallest number of tokens of `ids` whose text starts with this prefix."""
        # bisect: decoding every prefix would take quadratic time
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.decode([ids[:middle]])[0].startswith(text):
                high = middle
            else:
                low = middle + 1
        return low
