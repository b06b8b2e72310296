"""DeepSpeed's ZeRO on two gloo ranks of a CPU (`make test-deepspeed`): the run of two plain ranks, and exact resume.

DeepSpeed compiles an operator for CPU ranks at its first start, which needs a C++ compiler and takes a minute or more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loop.test_ranks import TWO
from tests.loop.test_resume import train
from tests.loop.test_sharded import compare_with_plain_ranks, refuse_a_step

# Of what a plain rank holds, of which the weights are a third. ZeRO shares out the moments and weights of its own that
# it trains, as large as the model's where that is in float32 too; ZeRO-3 also shares out the model's.
HELD = {"zero2": 1 / 3 + 1 / 2, "zero3": 2 / 3}


@pytest.mark.parametrize("strategy", HELD)
def test_zero_trains_as_plain_ranks_do_and_resumes_exactly_on_as_many(tmp_path: Path, strategy: str) -> None:
    state = [f"global_step4/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2)]
    said = compare_with_plain_ranks(tmp_path, strategy, held=HELD[strategy], state=state)
    assert ("a whole copy of the weights" in said) == (strategy == "zero3")
    more = ("--set", "monitor.kl.every=2", "--set", "sample.micro_batch=4", "--set", f"launch.strategy={strategy}")
    again = ("--resume", str(tmp_path / "broken"), "--resume-anyway", "--set", "launch.cpu_ranks=4")
    refused = train(tmp_path / "small.yaml", tmp_path / "shards", *TWO, *more, *again)
    out, _ = refused.communicate(timeout=240)
    assert refused.returncode == 4, out
    assert f"`launch.strategy: {strategy}` reads step-000004 on the 2 processes that wrote it, not on 4" in out


@pytest.mark.parametrize("strategy", HELD)
def test_a_refused_step_leaves_the_weights_alone(tmp_path: Path, strategy: str) -> None:
    refuse_a_step(tmp_path, strategy)
