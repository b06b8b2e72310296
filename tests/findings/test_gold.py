"""The alarm on a gamed training verifier, on records made by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from grpo_cli.findings.held_out import clustered_z, gap_metrics, gold_gap
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome, Verdict


def records(proxy: float, gold: float, prompts: int = 64, samples: int = 4, seed: int = 0) -> list[SampleRecord]:
    """Samples of which a share `proxy` is right for training and `gold` of them right in truth (gold within proxy)."""
    rng, found = random.Random(seed), []
    for i in range(prompts * samples):
        u = rng.random()
        outcome = Outcome.RIGHT if u < proxy else Outcome.WRONG
        verdict = Verdict(Outcome.RIGHT if u < gold else Outcome.WRONG, float(u < gold))
        found.append(SampleRecord(1, f"r{i // samples}", f"r{i // samples}", "p", "c", {}, {"gold": verdict}, outcome))
    return found


def evaluation(proxy: float, gold: float, seed: int = 0) -> dict[str, Any]:
    return {"eval/pass@1": proxy, **gap_metrics(records(proxy, gold, seed=seed), "gold", 1.0)}


def test_the_gap_is_paired_on_the_same_samples() -> None:
    said = evaluation(0.9, 0.7)
    assert said["eval/gold/gap"] == pytest.approx(0.2, abs=0.05)
    assert said["eval/gold/z"] > (0.9 - 0.7) / math.sqrt(0.8 * 0.2 * 2 / 256)  # the unpaired test
    assert said["eval/gold/fooled"] == pytest.approx(0.2 * 256, abs=15)
    assert said["eval/gold/n"] == 64


def test_a_growing_significant_gap_raises_the_alarm() -> None:
    history = [evaluation(0.30, 0.30), evaluation(0.42, 0.38), evaluation(0.50, 0.40)]
    assert gold_gap(history[:2]) is None
    said = gold_gap(history)
    assert said is not None and "gap grew" in said.text


def test_a_falling_gold_score_does_not_wait_for_a_third_evaluation() -> None:
    assert gold_gap([evaluation(0.30, 0.30), evaluation(0.36, 0.27)]) is not None


def test_a_gap_surely_above_ten_points_is_said_at_once() -> None:
    assert gold_gap([evaluation(0.65, 0.14)]) is not None
    assert gold_gap([evaluation(0.30, 0.20)]) is None


def test_a_small_constant_gap_is_two_definitions_of_right_and_stays_silent() -> None:
    history = [evaluation(0.56, 0.5, seed=seed) for seed in range(80)]
    assert max(e["eval/gold/z"] for e in history) > 3
    assert all(gold_gap(history[:n]) is None for n in range(81))


def test_agreeing_verifiers_stay_silent_over_many_seeds() -> None:
    for seed in range(20):
        history = [evaluation(0.2 + 0.1 * i, 0.17 + 0.1 * i, seed=100 * seed + i) for i in range(8)]
        assert all(gold_gap(history[:n]) is None for n in range(9))


def test_samples_without_a_verdict_count_on_neither_side() -> None:
    broken = SampleRecord(1, "r0", "r0", "p", "c", {}, {"gold": Verdict(Outcome.ERROR, None)}, Outcome.RIGHT)
    assert gap_metrics([broken], "gold", 1.0)["eval/gold/n"] == 0
    assert gold_gap([gap_metrics([broken], "gold", 1.0)] * 5) is None


def test_z_of_identical_differences() -> None:
    assert clustered_z([0.0] * 9) == 0
    assert clustered_z([0.5] * 9) == 3
