"""Losses are driven through TRL's own `_compute_loss` and compared with definitions worked out token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_cli.algorithm.loss import kl_per_token
from grpo_cli.recipe.widening import PRESETS
from tests.builders.loss_bench import slow_loss, table_loss, trainer

NAN = float("nan")
LENGTHS = [3, 5, 2, 4]
ADVANTAGES = [1.0, -0.5, 0.75, -1.25]


def ragged(seed: int, low: float, high: float) -> Tensor:
    """(4, 5) log-probs with NaN after each row's length."""
    draw = torch.Generator().manual_seed(seed)
    table = low + (high - low) * torch.rand(4, 5, generator=draw, dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        table[row, length:] = NAN
    return table


OLD = ragged(1, -2.0, -0.5)
LOGPS = OLD + (ragged(2, -0.6, 0.6))
REF = OLD + (ragged(3, -0.4, 0.4))


def rows(table: Tensor) -> list[list[float]]:
    return [[x for x in row if not math.isnan(x)] for row in table.tolist()]


def batch(**changes: Any) -> dict[str, Tensor]:
    return {"old_per_token_logps": OLD.nan_to_num(), "ref_per_token_logps": REF.nan_to_num()} | changes


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("first", [True, False], ids=["first update", "later update"])
def test_a_presets_loss_equals_the_slow_definition(name: str, first: bool) -> None:
    built = trainer(algorithm=name, mini_batches=1)
    now = OLD if first else LOGPS
    got = table_loss(built, now, torch.tensor(ADVANTAGES, dtype=torch.float64), **batch())
    train = built.loop.recipe.train
    assert got.item() == pytest.approx(slow_loss(train, rows(now), rows(OLD), rows(REF), ADVANTAGES), abs=1e-6)


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dapo", "dr_grpo", "sapo"])
@pytest.mark.parametrize("estimator", ["k1_loss", "k2", "k3", "k3_corrected"])
def test_every_kl_estimator_goes_with_every_aggregation(loss: str, estimator: str) -> None:
    built = trainer(algorithm="grpo", loss=loss, kl={"beta": 0.3, "estimator": estimator})
    got = table_loss(built, LOGPS, torch.tensor(ADVANTAGES, dtype=torch.float64), **batch())
    want = slow_loss(built.loop.recipe.train, rows(LOGPS), rows(OLD), rows(REF), ADVANTAGES)
    assert got.item() == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_two_micro_batches_add_up_to_the_whole(name: str) -> None:
    one = {"algorithm": name, "mini_batches": 1}
    whole, parts = trainer(**one), trainer(micro_batches=2, **one)
    A, items = torch.tensor(ADVANTAGES, dtype=torch.float64), torch.tensor(sum(LENGTHS))
    want = table_loss(whole, LOGPS, A, **batch()).item()
    got = sum(
        table_loss(
            parts,
            LOGPS[half],
            A[half],
            num_items_in_batch=items,
            old_per_token_logps=OLD.nan_to_num()[half],
            ref_per_token_logps=REF.nan_to_num()[half],
        ).item()
        for half in (slice(0, 2), slice(2, 4))
    )
    assert got == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo", "gmpo"])
def test_dropping_dead_rows_changes_neither_loss_nor_gradient(loss: str) -> None:
    method: dict[str, Any] = {"loss": loss, "clip": {"cap": 5.0}} if loss == "cispo" else {"loss": loss}
    if loss in ("luspo", "gmpo"):
        method["ratio"] = "sequence"
    found = []
    for dead_groups in ("keep", "drop"):
        built = trainer(algorithm="default", dead_groups=dead_groups, **method)
        logps = LOGPS.clone().requires_grad_()
        value = table_loss(built, logps, torch.tensor([1.0, -0.5, 0.0, 0.0], dtype=torch.float64), **batch())
        value.backward()
        assert logps.grad is not None
        found.append((value.item(), logps.grad.nan_to_num()))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-9)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-9, rtol=0)
    assert found[1][1].abs().sum() > 0


def test_an_entropy_bonus_keeps_dead_rows_in() -> None:
    built = trainer(algorithm="dapo", trl={"entropy_coef": 0.01})
    assert not built.objective.drop_dead


def test_kl_numbers() -> None:
    for estimator, value, slope in (("k1_loss", 0.5, 1.0), ("k2", 0.125, 0.5), ("k3", 0.106531, 0.393469)):
        logp = torch.tensor(-1.0, requires_grad=True)
        found = kl_per_token(logp, torch.tensor(-1.5), estimator)  # type: ignore[arg-type]
        found.backward()
        assert found.item() == pytest.approx(value, abs=1e-6)
        assert logp.grad is not None
        assert logp.grad.item() == pytest.approx(slope, abs=1e-6)


def expected_gradient(estimator: str) -> tuple[Tensor, Tensor]:
    """E over a 4-way policy of the estimator's gradient in the logits, and the exact gradient of KL(pi || ref)."""
    logits = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    ref = torch.log_softmax(torch.tensor([0.1, 0.4, -0.3, 0.2], dtype=torch.float64), 0)
    logps = torch.log_softmax(logits, 0)
    ratio = (logps - logps.detach()).exp() if estimator == "k3_corrected" else 1.0
    kind: Any = "k3" if estimator == "k3_corrected" else estimator
    (got,) = torch.autograd.grad(
        (logps.detach().exp() * ratio * kl_per_token(logps, ref, kind)).sum(), logits, retain_graph=True
    )
    (exact,) = torch.autograd.grad((logps.exp() * (logps - ref)).sum(), logits)
    return got, exact


def test_k1_in_the_loss_has_an_expected_gradient_of_zero() -> None:
    assert expected_gradient("k1_loss")[0].abs().max() < 1e-12


@pytest.mark.parametrize("estimator", ["k2", "k3_corrected"])
def test_k2_and_corrected_k3_have_the_reverse_kl_gradient(estimator: str) -> None:
    torch.testing.assert_close(*expected_gradient(estimator), atol=1e-12, rtol=0)


def test_plain_k3_has_the_forward_kl_gradient() -> None:
    logits = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    ref = torch.log_softmax(torch.tensor([0.1, 0.4, -0.3, 0.2], dtype=torch.float64), 0)
    (forward,) = torch.autograd.grad((ref.exp() * (ref - torch.log_softmax(logits, 0))).sum(), logits)
    torch.testing.assert_close(expected_gradient("k3")[0], forward, atol=1e-12, rtol=0)


def slopes(built: Any, ratios: list[float], advantage: float) -> tuple[list[float], list[float]]:
    """Objective (minus the loss) and slope in the ratio, for one-token answers of these ratios."""
    old = torch.full((len(ratios), 1), -3.0, dtype=torch.float64)
    logps = (old + torch.tensor(ratios, dtype=torch.float64).log().unsqueeze(1)).requires_grad_()
    values = []
    for i in range(len(ratios)):
        one = table_loss(
            built, logps[i : i + 1], torch.tensor([advantage], dtype=torch.float64), old_per_token_logps=old[i : i + 1]
        )
        one.backward()
        values.append(-one.item())
    assert logps.grad is not None
    return values, [-g / r for (g,), r in zip(logps.grad.tolist(), ratios, strict=True)]


def test_clip_table() -> None:
    built = trainer(algorithm="grpo", kl={"beta": 0.0}, clip={"low": 0.2, "high": 0.2})
    value, slope = slopes(built, [0.5, 1.0, 1.5], 1.0)
    assert value == pytest.approx([0.5, 1.0, 1.2])
    assert slope == pytest.approx([1.0, 1.0, 0.0])
    value, slope = slopes(built, [0.5, 1.0, 1.5], -1.0)
    assert value == pytest.approx([-0.8, -1.0, -1.5])
    assert slope == pytest.approx([0.0, -1.0, -1.0])


def test_two_sided_clip() -> None:
    built = trainer(algorithm="grpo", kl={"beta": 0.0}, trl={"delta": 3.0})
    value, slope = slopes(built, [4.0], -1.0)
    assert (value[0], slope[0]) == (pytest.approx(-3.0), pytest.approx(0.0))


def test_clip_higher_lets_a_ratio_of_1_25_through() -> None:
    value, slope = slopes(trainer(algorithm="dapo"), [1.25], 1.0)
    assert (value[0], slope[0]) == (pytest.approx(1.25), pytest.approx(1.0))
    value, slope = slopes(trainer(algorithm="grpo", kl={"beta": 0.0}), [1.25], 1.0)
    assert (value[0], slope[0]) == (pytest.approx(1.2), pytest.approx(0.0))


def test_sapo_slopes_decay_smoothly() -> None:
    built = trainer(algorithm="sapo")
    assert slopes(built, [1.0, 1.5], 1.0)[1] == pytest.approx([1.0, 0.940015], abs=1e-6)
    assert slopes(built, [1.0, 1.5], -1.0)[1] == pytest.approx([-1.0, -0.934140], abs=1e-6)
    assert slopes(built, [1.0], 1.0)[0] == pytest.approx([2.0])


def token_gradient(built: Any, log_ratios: list[float], advantages: list[float] | float) -> list[float]:
    """Minus the gradient of the loss in each token's log-prob, for one answer."""
    old = torch.full((1, len(log_ratios)), -2.0, dtype=torch.float64)
    logps = (old + torch.tensor([log_ratios], dtype=torch.float64)).requires_grad_()
    A = torch.tensor([advantages], dtype=torch.float64)
    table_loss(built, logps, A, old_per_token_logps=old).backward()
    assert logps.grad is not None
    return [-g for g in logps.grad[0].tolist()]


FOUR = [0.1, 0.1, -0.05, 0.05]
WIDE = {"clip": {"low": 0.5, "high": 0.5}}


def test_gspo_shares_the_sequence_ratio_among_tokens() -> None:
    assert token_gradient(trainer(algorithm="gspo", **WIDE), FOUR, 1.0) == pytest.approx([0.262818] * 4, abs=1e-6)
    plain = trainer(algorithm="grpo", kl={"beta": 0.0}, **WIDE)
    assert token_gradient(plain, FOUR, 1.0) == pytest.approx([0.276293, 0.276293, 0.237807, 0.262818], abs=1e-6)


def test_gspos_narrow_clip() -> None:
    built = trainer(algorithm="gspo")
    old = torch.full((1, 4), -2.0, dtype=torch.float64)
    now = (old + torch.tensor([FOUR], dtype=torch.float64)).requires_grad_()
    loss = table_loss(built, now, torch.tensor([1.0], dtype=torch.float64), old_per_token_logps=old)
    assert -loss.item() == pytest.approx(1.0004)
    assert token_gradient(built, FOUR, 1.0) == [0.0] * 4
    assert token_gradient(built, [2e-4] * 4, 1.0) == pytest.approx([math.exp(2e-4) / 4] * 4)


def test_gspo_token_keeps_the_credit_of_each_token() -> None:
    built = trainer(algorithm="gspo_token", **WIDE)
    signed = token_gradient(built, FOUR, [1.0, 1.0, -1.0, -1.0])
    assert signed == pytest.approx([0.262818, 0.262818, -0.262818, -0.262818], abs=1e-6)
    flat = trainer(algorithm="gspo", **WIDE)
    assert token_gradient(flat, FOUR, [1.0, 1.0, -1.0, -1.0]) == pytest.approx([0.0] * 4, abs=1e-12)
    assert token_gradient(built, FOUR, 1.0) == pytest.approx(token_gradient(flat, FOUR, 1.0), abs=1e-12)


def test_cispo_caps_the_weight_and_never_cuts_a_token_off() -> None:
    built = trainer(algorithm="cispo")
    for ratio, weight in ((0.5, 0.5), (1.0, 1.0), (8.0, 5.0)):
        assert token_gradient(built, [math.log(ratio)], 1.0) == pytest.approx([weight])
    assert token_gradient(built, [math.log(8)] * 4, 1.0) == pytest.approx([1.25] * 4)


def test_aggregations_of_two_lengths() -> None:
    logps = torch.full((2, 4), -1.0, dtype=torch.float64)
    logps[0, 2:] = NAN
    A = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for loss, want, weights in (
        ("grpo", 0.0, (0.25, 0.125)),
        ("dapo", 1 / 3, (1 / 6, 1 / 6)),
        ("dr_grpo", 0.125, (0.0625, 0.0625)),
    ):
        now = logps.clone().requires_grad_()
        value = table_loss(trainer(algorithm="dr_grpo", loss=loss), now, A)
        value.backward()
        assert value.item() == pytest.approx(want, abs=1e-6)
        assert now.grad is not None
        assert (now.grad[0, 0].abs().item(), now.grad[1, 0].abs().item()) == pytest.approx(weights)


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_the_inner_loop_stops_outside_the_band(epochs: int) -> None:
    built = trainer(algorithm="grpo", kl={"beta": 0.0})
    logit = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    old, A = (torch.full((2, 1), math.log(0.5), dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64))
    for _ in range(epochs):
        logps = torch.nn.functional.logsigmoid(torch.stack([logit, -logit]))
        (gradient,) = torch.autograd.grad(table_loss(built, logps, A, old_per_token_logps=old), logit)
        with torch.no_grad():
            logit -= gradient
    ratios = (torch.sigmoid(torch.cat([logit, -logit])) / 0.5).tolist()
    assert logit.item() == pytest.approx(0.5)
    assert ratios == pytest.approx([1.244919, 0.755081], abs=1e-6)
