"""GSM8K and MATH-500 through the whole data part, with the verifier that will judge them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_cli.data.audit import Corpus, audit_golds
from grpo_cli.data.rows import load_rows
from grpo_verifiers import build
from tests.builders.data_builders import Data, Source

FOLDER = Path(os.environ.get("GRPO_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(
        not FOLDER.is_dir() and os.environ.get("CI") != "true",
        reason=f"GSM8K and MATH-500 are not in {FOLDER}; set GRPO_DATA",
    ),
]


def test_gsm8k_loads_with_distinct_ids_and_its_test_rows_are_no_training_rows() -> None:
    source = Source("gsm8k_train.jsonl")
    data = Data(
        [source],
        eval=Source("gsm8k_test.jsonl"),
        prompt="{question}\nEnd with \\boxed{{}}.",
        answer="{answer | number}",
    )
    train, test = load_rows(data, "train", FOLDER), load_rows(data, "eval", FOLDER)
    assert (len({r.id for r in train}), len({r.id for r in test})) == (7_473, 1_319)
    assert Corpus(train).overlap(test) == []


def test_every_gold_of_math_500_passes_its_own_verifier() -> None:
    rows = load_rows(Data([Source("math500.jsonl")], prompt="{problem}", id="unique_id"), "train", FOLDER)
    verifier = build("math")
    try:
        audit = audit_golds(rows, {"math": verifier}, "drop")
    finally:
        verifier.close()
    assert (len(audit.rows), audit.dropped) == (500, [])
