"""How many processes, on which machines, and what torchrun is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from grpo_cli.distributed import launch
from grpo_cli.distributed.launch import Nodes, choose_world
from grpo_cli.distributed.network import check_port_free
from grpo_cli.errors import SetupError
from grpo_cli.recipe.sections.recipe import Launch

TWO = Launch(nodes=2, rendezvous="node17:29500")


def test_one_machine_needs_no_rendezvous() -> None:
    assert Nodes.of(Launch(), {}) == Nodes()
    assert Nodes().torchrun(4) == ["--standalone", "--nproc-per-node=4"]


def test_slurm_numbers_the_machines_unless_the_recipe_does() -> None:
    assert Nodes.of(TWO, {"SLURM_NODEID": "1"}).rank == 1
    assert Nodes.of(TWO.model_copy(update={"node_rank": 0}), {"SLURM_NODEID": "1"}).rank == 0


@pytest.mark.parametrize("environ", [{}, {"SLURM_NODEID": "2"}])
def test_a_machine_without_a_number_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="which of the 2 machines is this"):
        Nodes.of(TWO, environ)


def test_torchrun_meets_at_machine_zero() -> None:
    assert Nodes.of(TWO, {"SLURM_NODEID": "1"}).torchrun(8) == [
        "--nnodes=2",
        "--node-rank=1",
        "--master-addr=node17",
        "--master-port=29500",
        "--nproc-per-node=8",
    ]


@pytest.mark.parametrize(("driver", "count"), [(True, 2), (False, 0)])
def test_a_variable_that_names_gpus_makes_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, driver: bool, count: int
) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(launch, "DRIVERS", (tmp_path / ("nvidiactl" if driver else "none"),))
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert launch.gpu_count() == count


def test_auto_takes_the_gpus_that_a_batch_divides_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "gpu_count", lambda: 8)
    assert choose_world("auto", 1, 64) == 8
    assert choose_world("auto", 1, 60) == 6
    with pytest.raises(SetupError, match="do not divide over 7"):
        choose_world(7, 1, 64)
    with pytest.raises(SetupError, match="there are 8 here"):
        choose_world(9, 1, 72)


def test_a_port_that_something_listens_at_is_refused_before_torchrun_starts() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=f"machine 0 cannot listen at port {port}") as refused:
            launch.launch(1, ["train", "r.yaml"], Nodes(2, 0, f"127.0.0.1:{port}"))
        assert refused.value.code == 4
        assert f"sport = :{port}" in refused.value.hint
    check_port_free(f"127.0.0.1:{port}")
