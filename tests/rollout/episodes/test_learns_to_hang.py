"""Whether a policy learns to hang where it expects to lose: what an episode that provoked a fault is paid, put through the very code that
pays it, for a policy of two numbers.

A state is drawn for each sample by luck: in one a try is right in nine of ten, in the other in one of ten. `spin` bursts a limit.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from grpo_cli.algorithm.advantage import group_advantages
from grpo_cli.environments.pool import Fault, World
from grpo_cli.rollout.episodes.running import LiveEpisode
from grpo_verifiers.kinds.environment import EnvironmentVerifier
from grpo_verifiers.verdict import floored
from grpo_verifiers.verifier import Sample

FAULT = Fault("timeout", "`step` of `World` took longer than `environment.timeout_s`", provoked=True)
KILLED = Fault("worker_died", "`step` of `World` ended its process")
RIGHT = torch.tensor([0.9, 0.1])
BATCHES, GROUPS, SIZE, RATE = 60, 16, 8, 1.0


@cache
def paid(results: tuple[str, ...], pays_faults: bool) -> tuple[float, ...]:
    """The rewards of a group whose episodes ended so; NaN is no verdict."""
    verifier = EnvironmentVerifier(EnvironmentVerifier.Options())
    scores = {"right": 1.0, "wrong": 0.0, "spin": FAULT, "killed": KILLED}
    samples = []
    for number, result in enumerate(results):
        live = LiveEpisode(number, 0, number, World((0, number), {}, 0), [1], "", "0")
        record = live.completion(scores[result], 0.1, pays_faults=pays_faults).episode
        assert record is not None
        samples.append(Sample("", None, played=record.played))
    verdicts = floored(verifier.judge(samples), verifier.low)
    return tuple(float("nan") if one.score is None else one.score for one in verdicts)


def share_of_spin(seed: int, pays_faults: bool, hangs_as: str = "spin") -> tuple[float, float]:
    """The share of `spin` in the lucky and in the lost state after training."""
    chance = torch.Generator().manual_seed(seed)
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]], requires_grad=True)  # try, spin
    for _ in range(BATCHES):
        states = torch.randint(2, (GROUPS, SIZE), generator=chance)
        chosen = logits.detach().softmax(-1)[states]
        spins = torch.rand((GROUPS, SIZE), generator=chance) < chosen[..., 1]
        right = torch.rand((GROUPS, SIZE), generator=chance) < RIGHT[states]
        ended = [
            tuple(hangs_as if spin else "right" if ok else "wrong" for spin, ok in zip(*group, strict=True))
            for group in zip(spins.tolist(), right.tolist(), strict=True)
        ]
        advantages = group_advantages(torch.tensor([paid(group, pays_faults) for group in ended]))
        logps = logits.log_softmax(-1)[states, spins.long()]
        loss = -(advantages * logps).mean()
        (gradient,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= 20 * RATE * gradient
    lucky, lost = logits.detach().softmax(-1)[:, 1].tolist()
    return lucky, lost


def test_a_fault_that_actions_provoke_is_paid_the_least_of_its_group() -> None:
    assert paid(("right", "wrong", "spin"), True) == (1.0, 0.0, 0.0)
    assert paid(("right", "right", "spin"), True) == (1.0, 1.0, 0.0)
    assert str(paid(("right", "wrong", "spin"), False)) == "(1.0, 0.0, nan)"


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_learns_to_hang_only_where_a_hang_has_no_verdict(seed: int) -> None:
    assert share_of_spin(seed, pays_faults=False)[1] > 0.5
    lucky, lost = share_of_spin(seed, pays_faults=True)
    assert max(lucky, lost) < 0.1


def test_a_worker_that_was_killed_from_outside_stays_neutral() -> None:
    # what no action provoked has no verdict whatever the recipe pays for faults
    assert str(paid(("right", "wrong", "killed"), True)) == "(1.0, 0.0, nan)"
