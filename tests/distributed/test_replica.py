"""The whole copy of the policy that generates where ranks hold shards."""

from __future__ import annotations

import torch

from grpo_cli.distributed.replica import Replica
from tests.builders.rollout_models import tiny


def test_a_replica_follows_the_policy_in_place_and_only_after_an_update() -> None:
    policy = tiny()
    replica = Replica(policy, None)
    places = [p.data_ptr() for p in replica.model.parameters()]
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 1.0
    replica.follow(policy, 0)
    assert not any(torch.equal(a, b) for a, b in pairs(policy, replica))
    replica.follow(policy, 1)
    assert all(torch.equal(a, b) for a, b in pairs(policy, replica))
    assert places == [p.data_ptr() for p in replica.model.parameters()]


def test_a_replica_in_half_precision_keeps_ties_and_takes_half_the_memory() -> None:
    policy = tiny(tie_word_embeddings=True)
    replica = Replica(policy, torch.bfloat16)
    assert {p.dtype for p in replica.model.parameters()} == {torch.bfloat16}
    assert replica.model.get_input_embeddings().weight is replica.model.get_output_embeddings().weight
    assert replica.megabytes == sum(p.numel() * 2 for p in policy.parameters()) / 2**20
    assert all(torch.equal(a.bfloat16(), b) for a, b in pairs(policy, replica))


def pairs(policy: torch.nn.Module, replica: Replica) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(policy.parameters(), replica.model.parameters(), strict=True))
