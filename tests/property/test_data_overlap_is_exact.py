from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.data import audit
from grpo_cli.data.audit import THRESHOLD, Corpus, words
from grpo_cli.data.rows import Row

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), min_size=3, max_size=9).map(" ".join), max_size=12)


def rows(texts: list[str]) -> list[Row]:
    return [Row(str(i), text, None, {}) for i, text in enumerate(texts)]


def similarity(first: str, second: str) -> float:
    a, b = (set(zip(w, w[1:], w[2:], strict=False)) for w in (words(first), words(second)))
    return len(a & b) / len(a | b)


@pytest.fixture(autouse=True)
def _nothing_is_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "COMMON_ROWS", 1_000)


@given(TEXTS)
def test_the_index_finds_what_comparing_all_pairs_finds(texts: list[str]) -> None:
    found = {int(pair.second.id): pair.similarity for pair in Corpus(rows(texts)).duplicates()}
    for index, text in enumerate(texts):
        best = max((similarity(other, text) for other in texts[:index]), default=0.0)
        same = text in texts[:index]
        assert (found.get(index, 0.0) == 1.0) == (same or best == 1.0)
        assert found.get(index, 0.0) == (1.0 if same else best if best >= THRESHOLD else 0.0)


@given(TEXTS, TEXTS)
def test_overlap_finds_a_held_out_row_wherever_it_stands(train: list[str], held_out: list[str]) -> None:
    found = {pair.second.id for pair in Corpus(rows(train)).overlap(rows(held_out))}
    for row in rows(held_out):
        assert (row.id in found) == any(similarity(other, row.prompt) >= THRESHOLD for other in train)
