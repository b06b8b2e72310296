"""What a strategy needs of the machine, found out before any process starts."""

from __future__ import annotations

import pytest

from grpo_cli.distributed.sharded import trainer_fields
from grpo_cli.errors import SetupError
from grpo_cli.recipe.sections.course import check_processes


@pytest.mark.parametrize("strategy", ["fsdp2", "zero2", "zero3"])
def test_one_process_has_nothing_to_share(strategy: str) -> None:
    with pytest.raises(SetupError, match="and there is one"):
        check_processes(strategy, 1)
    check_processes(strategy, 2)


@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_whole_weights_go_with_one_process(strategy: str) -> None:
    check_processes(strategy, 1)
    check_processes("ddp", 1)


def test_only_zero_3_gathers_weights_to_save_them() -> None:
    stages = {name: trainer_fields(name)["deepspeed"]["zero_optimization"] for name in ("zero2", "zero3")}
    assert [stages[name]["stage"] for name in stages] == [2, 3]
    assert stages["zero3"]["stage3_gather_16bit_weights_on_model_save"]
    assert "stage3_gather_16bit_weights_on_model_save" not in stages["zero2"]
