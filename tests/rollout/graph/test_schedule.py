"""Rows, chunks and moves, without tensors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.rollout.engine import Request
from grpo_cli.rollout.graph.continuous_batch import Schedule, chunk_by_tokens, plan_moves, worth_refilling


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 7))
def test_every_sample_is_taken_exactly_once_in_order(counts, free):
    schedule = Schedule([Request([1], n) for n in counts])
    taken = []
    for _ in range(31):
        starts = schedule.take(free)
        assert sum(len(s.samples) for s in starts) <= free
        taken += [(s.request, sample) for s in starts for sample in s.samples]
    assert [sample for _, sample in taken] == list(range(sum(counts)))
    assert [r for r, _ in taken] == schedule.request_of
    assert schedule.waiting == 0


@given(st.integers(1, 30).flatmap(lambda live: st.tuples(st.just(live), st.sets(st.integers(0, live - 1)))))
def test_moves_close_every_gap(case):
    live, ended = case
    movers, holes, left = plan_moves(sorted(ended), live)
    rows = list(range(live))
    for mover, hole in zip(movers, holes, strict=True):
        rows[hole] = rows[mover]
    assert sorted(rows[:left]) == sorted(set(range(live)) - ended)


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 200))
def test_chunks_hold_every_prompt_once_within_the_budget(lengths, budget):
    chunks = chunk_by_tokens(lengths, budget)
    assert sorted(i for chunk in chunks for i in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * max(lengths[i] for i in chunk) <= budget


def test_refilling_waits_for_an_eighth_of_the_rows():
    assert not worth_refilling(3, 32, 100, 1 / 8)
    assert worth_refilling(4, 32, 100, 1 / 8)
    assert worth_refilling(2, 32, 2, 1 / 8)
    assert not worth_refilling(32, 32, 0, 1 / 8)
