"""The critic against one answer at a time in float64: values, advantages, its loss and gradient, on one rank and on two."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from grpo_cli.algorithm.credit import credit
from grpo_cli.algorithm.gae import Moments
from grpo_cli.policy.model import attach_lora
from grpo_cli.recipe.sections.recipe import CriticSpec as Spec
from grpo_cli.recipe.sections.recipe import Lora
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.critic.critic import Critic, CriticLayers, Numerics, ValueTarget
from grpo_cli.train.critic.learning import CriticCredit, TokenKlPenalty, credit_of, critic_credit, worth_of
from tests.reference.families import make_model
from tests.train.test_credit import recipe

PROMPTS = [[5, 6, 7], [9], [4, 8], [11, 3, 2, 12]]
ANSWERS = [[20, 21, 22, 23], [30, 31], [40], [50, 51, 52]]
REWARDS = [1.0, 0.0, math.nan, 0.25]


def batch(rows: Sequence[int] = range(4), width: int = 5) -> dict[str, Tensor]:
    """Rows as TRL pads them: prompts on the left, answers on the right, with columns to spare."""
    lead = max(len(PROMPTS[i]) for i in rows)
    out: dict[str, list[list[int]]] = {"prompt_ids": [], "prompt_mask": [], "completion_ids": [], "completion_mask": []}
    for i in rows:
        before, behind = lead - len(PROMPTS[i]), width - len(ANSWERS[i])
        out["prompt_ids"].append([0] * before + PROMPTS[i])
        out["prompt_mask"].append([0] * before + [1] * len(PROMPTS[i]))
        out["completion_ids"].append(ANSWERS[i] + [0] * behind)
        out["completion_mask"].append([1] * len(ANSWERS[i]) + [0] * behind)
    return {name: torch.tensor(value) for name, value in out.items()}


def completions(rows: Sequence[int] = range(4), cut: int | None = None) -> list[Completion]:
    """The answers as an engine gives them."""
    return [Completion(ANSWERS[i], [-1.0] * len(ANSWERS[i]), "length" if i == cut else "stop") for i in rows]


def made(backbone: Any, model: nn.Module, spec: Spec | None = None, lr: float = 1e-3, rows: int = 2) -> Critic:
    """A critic whose head says something."""
    critic = Critic(backbone, model, spec or Spec(mini_batches=1), lr, Numerics(None, rows, lambda value: value))
    torch.manual_seed(1)
    nn.init.normal_(critic.head.weight, std=0.3)
    return critic


def alone(parts: Sequence[Moments]) -> list[Moments]:
    return list(parts)


def by_hand(model: nn.Module, critic: Critic, rows: Sequence[int] = range(4)) -> list[Tensor]:
    """Values before each token of each answer and behind the last, a row at a time without padding, in float64."""
    base: Any = copy.deepcopy(model).double().base_model  # type: ignore[operator, union-attr]
    head = copy.deepcopy(critic.head).double()
    found = []
    for i in rows:
        states = base(input_ids=torch.tensor([PROMPTS[i] + ANSWERS[i]]), use_cache=False).last_hidden_state[0]
        found.append(head(states[len(PROMPTS[i]) - 1 :])[:, 0])
    return found


class Places(nn.Module):
    """A backbone whose state is the place of the token it has just read."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[nn.Parameter] = []

    def hidden(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        places = torch.arange(ids_BS.shape[1]).float()
        return places[None, :, None].expand(len(ids_BS), -1, 32) / 32


def test_a_value_is_read_where_its_token_is_predicted() -> None:
    critic = Critic(Places(), make_model("llama"), Spec(), 1e-3, Numerics(None, 3, lambda value: value))
    nn.init.ones_(critic.head.weight)
    values = critic.values(batch())
    assert values.shape == (4, 6)
    assert torch.allclose(values, torch.arange(3, 9).double().expand(4, -1))  # the longest prompt has four tokens


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_values_are_those_of_each_row_alone(family: str) -> None:
    model = make_model(family)
    critic = made(CriticLayers.copied(model, absolute=family == "gpt2"), model)
    values = critic.values(batch())
    for i, want in enumerate(by_hand(model, critic)):
        assert values[i, : len(want)].tolist() == pytest.approx(want.tolist(), abs=1e-5)


def test_a_fresh_critic_says_nothing() -> None:
    model = make_model("llama")
    critic = Critic(CriticLayers.copied(model, absolute=False), model, Spec(), 1e-3, Numerics(None, 2, lambda v: v))
    assert not critic.values(batch()).any()


def reference(values: list[list[float]], beta: float, logps: Tensor, ref: Tensor) -> tuple[list[Any], list[Any]]:
    """Whitened advantages and returns by the formulas of verl and OpenRLHF: a sum over what follows, token by token."""
    gains, returns, white = [], [], []
    for i, answer in enumerate(ANSWERS):
        n, v = len(answer), [*values[i][: len(answer)], 0.0]
        if math.isnan(REWARDS[i]):
            gains.append([])
            returns.append([])
            continue
        paid = [-beta * float(logps[i, t] - ref[i, t]) + (REWARDS[i] if t == n - 1 else 0.0) for t in range(n)]
        deltas = [paid[t] + v[t + 1] - v[t] for t in range(n)]
        gains.append([sum(0.95 ** (k - t) * deltas[k] for k in range(t, n)) for t in range(n)])
        returns.append([a + b for a, b in zip(gains[-1], v, strict=False)])
    every = [a for row in gains for a in row]
    mean = sum(every) / len(every)
    std = math.sqrt(sum((a - mean) ** 2 for a in every) / (len(every) - 1))
    for row in gains:
        white.append([(a - mean) / std for a in row])
    return white, returns


def test_advantages_losses_and_gradients_are_the_formulas() -> None:
    model = make_model("llama")
    critic = made(CriticLayers.copied(model, absolute=False), model, Spec(mini_batches=1, clip=0.1))
    out = batch()
    torch.manual_seed(2)
    logps, ref = -torch.rand(4, 5), -torch.rand(4, 5)
    values = critic.values(out)
    found = critic_credit(
        critic.spec, completions(), REWARDS, values, out["completion_mask"], TokenKlPenalty(0.1, logps, ref), alone
    )
    slow = by_hand(model, critic)
    white, returns = reference([v.tolist() for v in slow], 0.1, logps, ref)
    for i, row in enumerate(white):
        assert found.advantages_BT[i, : len(row)].tolist() == pytest.approx(row, abs=1e-4)
        assert found.target.returns_BT[i, : len(row)].tolist() == pytest.approx(returns[i], abs=1e-5)
        assert not found.advantages_BT[i, len(row) :].any()
    assert not found.target.mask_BT[2].any()  # no verdict

    # the critic's first gradient: values have not moved, so that nothing is clipped
    got: dict[str, Tensor] = {}
    critic._step = lambda: got.update(  # type: ignore[method-assign]
        {str(i): p.grad.clone() for i, p in enumerate(critic.trained) if p.grad is not None}
    )
    critic.fit(out, found.target, range(4), 4, seed=0)
    double: Any = copy.deepcopy(model).double()
    head = copy.deepcopy(critic.head).double()
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for i, row in enumerate(returns):
        if row:
            ids = torch.tensor([PROMPTS[i] + ANSWERS[i]])
            states = double.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
            guess = head(states[len(PROMPTS[i]) - 1 : -1])[:, 0]
            total = total + 0.5 * (guess - torch.tensor(row, dtype=torch.float64)).square().sum()
            tokens += len(row)
    named = [*double.base_model.parameters(), *head.parameters()]
    want = torch.autograd.grad(total / tokens, named)
    off = math.sqrt(sum(float((got[str(i)].double() - w).square().sum()) for i, w in enumerate(want)))
    size = math.sqrt(sum(float(w.square().sum()) for w in want))
    assert off < 1e-5 * size


def test_two_ranks_make_the_advantages_of_one() -> None:
    values, out = torch.rand(4, 6), batch()
    whole = critic_credit(Spec(), completions(), REWARDS, values, out["completion_mask"], None, alone)
    said: list[Moments] = []
    halves = (range(2), range(2, 4))

    def half(rows: range, gathered: Any) -> CriticCredit:
        part = slice(rows.start, rows.stop)
        return critic_credit(
            Spec(), completions(rows), REWARDS[part], values[part], out["completion_mask"][part], None, gathered
        )

    for rows in halves:
        half(rows, lambda parts: said.extend(parts) or list(parts))  # type: ignore[func-returns-value]
    parts = [half(rows, lambda _: said) for rows in halves]
    joined = torch.cat([part.advantages_BT for part in parts])
    assert torch.allclose(joined, whole.advantages_BT, atol=1e-6)
    assert parts[0].metrics == pytest.approx(whole.metrics) == parts[1].metrics


def test_ranks_share_out_the_rows_of_one_mini_batch() -> None:
    model = make_model("llama")
    critic = made(CriticLayers.copied(model, absolute=False), model, Spec(mini_batches=3, epochs=2))
    whole = [rows.tolist() for rows in critic._mini_batches(range(10), 10, seed=4)]
    parts = [
        [[p + start for p in rows.tolist()] for rows in critic._mini_batches(range(start, start + 5), 10, seed=4)]
        for start in (0, 5)
    ]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole
    assert len(whole) == 6 and sorted(p for rows in whole[:3] for p in rows) == list(range(10))


def test_a_cut_answer_comes_to_its_reward_or_to_the_value_of_going_on() -> None:
    values, mask = torch.full((4, 6), 0.5), batch()["completion_mask"]
    by = {
        cut: critic_credit(Spec(cut=cut, **{"lambda": 1.0}), completions(cut=3), REWARDS, values, mask, None, alone)
        for cut in ("outcome", "value")
    }
    assert by["outcome"].target.returns_BT[3, :3].tolist() == pytest.approx([0.25] * 3)
    assert by["value"].target.returns_BT[3, :3].tolist() == pytest.approx([0.5] * 3)
    assert torch.equal(by["outcome"].target.returns_BT[:3], by["value"].target.returns_BT[:3])


def test_nothing_is_explained_where_all_returns_are_equal() -> None:
    mask = batch()["completion_mask"]
    found = critic_credit(Spec(**{"lambda": 1.0}), completions(), [0.0] * 4, torch.rand(4, 6), mask, None, alone)
    assert "critic/explained_variance" not in found.metrics
    lost = critic_credit(Spec(), completions(), [math.nan] * 4, torch.rand(4, 6), mask, None, alone)
    assert not lost.advantages_BT.any() and not lost.target.mask_BT.any()


def test_the_critic_learns_the_returns_and_leaves_the_policy_alone() -> None:
    model = make_model("llama")
    before = [p.detach().clone() for p in model.parameters()]
    critic = made(
        CriticLayers.copied(model, absolute=False), model, Spec(mini_batches=2, epochs=20, clip=10.0), lr=3e-3
    )
    out = batch()
    old = critic.values(out)
    found = critic_credit(Spec(**{"lambda": 1.0}), completions(), REWARDS, old, out["completion_mask"], None, alone)
    first = critic.fit(out, found.target, range(4), 4, seed=0)["critic/loss"]
    again = ValueTarget(found.target.returns_BT, critic.values(out)[:, :-1], found.target.mask_BT)
    assert critic.fit(out, again, range(4), 4, seed=1)["critic/loss"] < 0.3 * first
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert critic.mib > 3 * sum(p.numel() * 4 for p in CriticLayers.copied(model, absolute=False).trained) / 2**20


def test_an_adapter_is_the_critics_own_on_the_policys_base() -> None:
    model = attach_lora(make_model("llama"), Lora(r=4))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.1)
    trained = {n: p.detach().clone() for n, p in model.named_parameters()}
    critic = made(CriticLayers.adapter(model, absolute=False), model, Spec(mini_batches=1), lr=1e-2)
    assert sum(p.numel() for p in critic.backbone.trained) == sum(
        p.numel() for p in model.parameters() if p.requires_grad
    )
    out = batch()
    values = critic.values(out)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.5)  # the policy moves, the critic does not
    assert torch.equal(critic.values(out), values)
    found = critic_credit(Spec(), completions(), REWARDS, values, out["completion_mask"], None, alone)
    moved = {n: p.detach().clone() for n, p in model.named_parameters()}
    critic.fit(out, found.target, range(4), 4, seed=0)
    assert not torch.equal(critic.values(out), values)
    assert all(torch.equal(p, moved[n]) and p.grad is None for n, p in model.named_parameters())
    assert trained.keys() == moved.keys()


def test_a_head_on_the_policys_states_trains_nothing_else() -> None:
    model = make_model("llama")
    critic = made(CriticLayers.policy(model, absolute=False), model, Spec(mini_batches=1, share=True), lr=1e-2)
    out = batch()
    values = critic.values(out)
    found = critic_credit(Spec(), completions(), REWARDS, values, out["completion_mask"], None, alone)
    critic.fit(out, found.target, range(4), 4, seed=0)
    assert len(critic.trained) == 2 and not torch.equal(critic.values(out), values)
    assert all(p.grad is None for p in model.parameters())


def test_what_is_saved_goes_on_bit_for_bit(tmp_path: Path) -> None:
    model, out = make_model("llama"), batch()
    critic = made(CriticLayers.copied(model, absolute=False), model)
    mask = out["completion_mask"]

    def learn(one: Critic, seed: int) -> None:
        found = critic_credit(one.spec, completions(), REWARDS, one.values(out), mask, None, alone)
        one.fit(out, found.target, range(4), 4, seed)

    learn(critic, 0)
    critic.save(tmp_path / "critic")
    other = made(CriticLayers.copied(model, absolute=False), model)
    other.load(tmp_path / "critic")
    for one in (critic, other):
        learn(one, 1)
    assert torch.equal(critic.values(out), other.values(out))


def test_a_row_pulls_by_the_size_of_its_token_advantages() -> None:
    advantages_BT = torch.tensor([[1.5, -1.5, 0.0], [0.5, 0.5, 0.0]])
    mask_BT = torch.tensor([[1, 1, 0], [1, 1, 0]])
    worth = worth_of([Completion([1, 2], [-1.0] * 2, "stop")] * 2, advantages_BT, torch.zeros(2, 4), mask_BT)
    before = credit(recipe(2, train={"algorithm": "ppo"}).train, torch.tensor([[1.0, 0.0]]))
    made = credit_of(before, worth)
    assert made.A_PG.tolist() == [[0.0, 0.5]]
    assert made.pulls(torch.tensor([[2, 2]])).tolist() == [[3.0, 1.0]]


def learned(unit: float, offset: float = 0.0) -> tuple[Critic, list[tuple[CriticCredit, dict[str, float]]]]:
    """A fresh critic and what came of five batches whose rewards have this unit."""
    torch.manual_seed(5)
    model, out = make_model("llama"), batch()
    spec, numbers = Spec(mini_batches=2, epochs=3), Numerics(None, 2, lambda value: value)
    critic, steps = Critic(CriticLayers.copied(model, absolute=False), model, spec, 1e-2, numbers), []
    for step in range(5):
        rewards = [unit * (r * (1 + step) + offset) for r in REWARDS]
        values = critic.values(out)
        found = critic_credit(spec, completions(), rewards, values, out["completion_mask"], None, alone)
        critic.follow(found.returns)
        steps.append((found, critic.fit(out, found.target, range(4), 4, seed=step)))
    return critic, steps


@pytest.mark.parametrize("unit", [1e6, 1e-3])
def test_a_critic_learns_alike_in_every_unit_of_the_reward(unit: float) -> None:
    (_, plain), (_, scaled) = learned(1.0), learned(unit)
    for (one, said), (other, again) in zip(plain, scaled, strict=True):
        assert torch.allclose(one.advantages_BT, other.advantages_BT, atol=1e-5)
        for key in ("critic/loss", "critic/clip"):
            assert again[key] == pytest.approx(said[key], rel=1e-4), key
        for key in ("value/mean", "return/mean"):
            assert other.metrics[key] == pytest.approx(unit * one.metrics[key], rel=1e-4, abs=1e-9), key
    assert plain[0][1]["critic/loss"] > 0.1 and any(said["critic/clip"] > 0 for _, said in plain)
    # the first batch meets a critic that says nothing
    assert torch.allclose(plain[0][0].advantages_BT, scaled[0][0].advantages_BT, atol=1e-6)


@pytest.mark.parametrize("rewards", [[3e6, 1e6, 2e6], [1e-4, -3e-4, 0.0], [1e6, 1e6 + 1, 1e6 + 2]])
def test_no_value_moves_when_the_unit_does(rewards: list[float]) -> None:
    model, out = make_model("llama"), batch()
    critic = made(CriticLayers.copied(model, absolute=False), model)
    critic.follow(Moments.of([0.0, 0.5, 1.0]))
    before, spread = critic.values(out), Moments.of(rewards)
    critic.follow(spread)
    assert critic.unit.std != Moments.of([0.0, 0.5, 1.0]).std
    # in float32 of the new unit
    off = float((critic.values(out) - before).abs().max())
    assert off < 1e-6 * max(critic.unit.std, abs(critic.unit.mean), float(before.abs().max()))


def test_a_critic_of_before_there_was_a_unit_goes_on_from_its_values(tmp_path: Path) -> None:
    model, out = make_model("llama"), batch()
    critic = made(CriticLayers.copied(model, absolute=False), model)
    critic.save(tmp_path / "critic")
    held = torch.load(tmp_path / "critic" / "critic.pt")
    assert held.pop("unit") == {"mean": 0.0, "std": 1.0, "batches": 0}
    torch.save(held, tmp_path / "critic" / "critic.pt")
    other = made(CriticLayers.copied(model, absolute=False), model)
    other.follow(Moments.of([1.0, 5.0]))
    other.load(tmp_path / "critic")
    values = other.values(out)
    assert torch.equal(values, critic.values(out))
    other.follow(Moments.of([3.0, 7.0]))
    assert other.unit.mean == 5.0 and torch.allclose(other.values(out), values, atol=1e-5)


def test_the_unit_is_saved(tmp_path: Path) -> None:
    critic, _ = learned(1e6)
    critic.save(tmp_path / "critic")
    model = make_model("llama")
    other = made(CriticLayers.copied(model, absolute=False), model)
    other.load(tmp_path / "critic")
    assert other.unit == critic.unit and critic.unit.batches == 5
    assert torch.equal(other.values(batch()), critic.values(batch()))
