"""Judging while generating gives the judgements that judging afterwards gives, sooner."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.recipe.sections.recipe import Verify
from grpo_cli.reward.group_judge import StreamingJudge
from grpo_cli.reward.judge import Judge, Task
from grpo_cli.rollout.engine import Completion


class Even:
    """Right where the text is even; remembers the sizes of its batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.began = threading.Event()

    def judge(self, texts: list[str], tasks: list[Task]) -> list[tuple[bool, str]]:
        self.began.set()
        self.batches.append(len(texts))
        return [(int(text) % 2 == 0, task.prompt) for text, task in zip(texts, tasks, strict=True)]


def said(number: int) -> Completion:
    return Completion([number], [0.0], "stop")


def early(judge: Any) -> StreamingJudge:
    return StreamingJudge(judge, lambda ids: [str(only) for (only,) in ids])


def test_judgements_come_in_the_order_of_requests_whenever_samples_end() -> None:
    judging = early(Even())
    with judging.listening([Task({}, "a"), Task({}, "b")]) as on_finish:
        for request, sample, number in [(1, 1, 4), (0, 0, 3), (1, 0, 5), (0, 1, 2)]:
            on_finish(request, sample, said(number))
    assert judging.judgements([2, 2]) == [(False, "a"), (True, "a"), (False, "b"), (True, "b")]


def test_the_first_sample_is_judged_before_the_last_has_ended() -> None:
    judge = Even()
    judging = early(judge)
    with judging.listening([Task({}, "a")]) as on_finish:
        on_finish(0, 0, said(2))
        assert judge.began.wait(10)
        on_finish(0, 1, said(3))
    assert judging.judgements([2]) == [(True, "a"), (False, "a")]
    assert sum(judge.batches) == 2


def test_a_verifier_that_raises_is_heard_of() -> None:
    class Broken(Even):
        def judge(self, texts: list[str], tasks: list[Task]) -> list[tuple[bool, str]]:
            raise OSError("no disk")

    judging = early(Broken())
    with judging.listening([Task({}, "a")]) as on_finish:
        on_finish(0, 0, said(2))
    with pytest.raises(OSError, match="no disk"):
        judging.judgements([1])


def test_only_verifiers_with_processes_are_judged_early(tmp_path: Path) -> None:
    (tmp_path / "mine_early.py").write_text("def short(completion):\n    return True\n")
    options = {"function": "mine_early:short", "path": [str(tmp_path)]}
    assert StreamingJudge.where_it_pays(Judge({"regex": Verify(kind="regex", options={"pattern": "1"})}), str) is None  # type: ignore[arg-type]
    ours = Judge({"own": Verify(kind="python", options=options)})
    assert StreamingJudge.where_it_pays(ours, str) is not None  # type: ignore[arg-type]
