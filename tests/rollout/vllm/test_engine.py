"""The path through vLLM, without vLLM: what TRL is asked, what comes back, and what is said where it is missing."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer

from grpo_cli.errors import DataError, SetupError
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.arithmetic import Batching
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.vllm import engine as vllm_engine
from grpo_cli.rollout.vllm import server
from grpo_cli.rollout.vllm.engine import VllmEngine, openable, starting
from grpo_cli.rollout.vllm.server import check_vllm
from grpo_cli.train.trl_config import vllm_fields
from tests.builders.loss_bench import recipe


def test_samples_come_back_by_request_with_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def single_turn(trainer: Any, prompts: Any, images: Any, fields: Any, n: int) -> Any:
        asked.append((prompts, n))
        return [[5, 1], [6, 7], [8, 1], [1]], [[-0.1, -0.2], [-0.3, -0.4], [-0.5, -0.6], [-0.7]]

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", single_turn)
    engine = VllmEngine({1}, 8, 10)
    engine.attach(SimpleNamespace())
    seen: list[tuple[int, int]] = []
    first, second = engine.generate(
        [Request([2], 2), Request([3, 4], 2)], SamplingSettings(2), on_finish=lambda r, s, c: seen.append((r, s))
    )
    assert asked == [([[2], [2], [3, 4], [3, 4]], 2)]
    assert [c.finish for c in (*first, *second)] == ["stop", "length", "stop", "stop"]
    assert second[1].token_ids == [1]
    assert second[1].logps == [-0.7]
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_bad_prompts_are_named_before_vllm_sees_them() -> None:
    engine = VllmEngine({1}, 8, 10)
    engine.attach(SimpleNamespace())
    asked = [Request([2], 2), Request([], 2), Request([2] * 7, 2), Request([10], 2)]
    with pytest.raises(DataError) as caught:
        engine.generate(asked, SamplingSettings(2))
    assert [m.place for m in caught.value.mistakes] == ["prompt 1", "prompt 2", "prompt 3"]
    assert engine.generate([], SamplingSettings(2)) == []


def test_an_engine_takes_context_and_ends_from_the_model() -> None:
    tokenizer = byte_tokenizer()
    engine = VllmEngine.of(Policy.of(tiny_llama(tokenizer, 0), tokenizer))
    assert (engine.end_ids, engine.context, engine.vocabulary) == ({tokenizer.eos_token_id}, 512, 266)


def test_without_the_package_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_installed", lambda name: False)
    with pytest.raises(SetupError, match="needs the package `vllm`, which is not installed"):
        check_vllm("colocate", 1, "cpu")


def test_a_server_feeds_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_installed", lambda name: True)
    check_vllm("server", 1, "cuda")
    with pytest.raises(SetupError, match="cannot feed 2 processes"):
        check_vllm("server", 2, "cuda")


def test_weights_reach_a_server_from_cuda_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_installed", lambda name: True)
    check_vllm("colocate", 1, "cpu")
    with pytest.raises(SetupError, match="over NCCL, which needs a CUDA device"):
        check_vllm("server", 1, "cpu")


def test_vllm_opens_a_model_made_on_the_spot_from_a_copy() -> None:
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, 0)
    with openable(model, tokenizer):
        folder = Path(model.name_or_path)
        read = AutoModelForCausalLM.from_pretrained(folder)
        assert AutoTokenizer.from_pretrained(folder)("1+1").input_ids == tokenizer("1+1").input_ids
    assert all(torch.equal(a, b) for a, b in zip(read.parameters(), model.parameters(), strict=True))
    assert model.name_or_path == ""
    assert not folder.exists()


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        (ImportError("FlashInfer is not available, please install it\nand more"), "VLLM_USE_FLASHINFER_SAMPLER=0"),
        (ValueError("Free memory on device is less than desired GPU memory utilization"), "gpu_memory_utilization"),
        (
            RuntimeError("The server socket has failed to listen. port: 29500, message: address already in use"),
            "MASTER_PORT",
        ),
        (RuntimeError("Engine core initialization failed."), "sample.engine: auto"),
    ],
)
def test_a_vllm_that_does_not_start_says_why_in_one_sentence(said: Exception, helps: str) -> None:
    model = tiny_llama(byte_tokenizer(), 0)
    model.name_or_path = "some/model"
    with pytest.raises(SetupError) as caught, starting(model, None):
        raise said
    assert str(caught.value).startswith(f"vLLM did not start: {str(said).splitlines()[0]}")
    assert "and more" not in str(caught.value)
    assert helps in caught.value.hint


@pytest.mark.parametrize(("here", "left"), [(None, "0"), (SimpleNamespace(), None)])
def test_vllm_samples_by_itself_where_flashinfer_is_missing(
    monkeypatch: pytest.MonkeyPatch, here: Any, left: str | None
) -> None:
    name = "VLLM_USE_FLASHINFER_SAMPLER"
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: here)
    vllm_engine.without_flashinfer()
    assert os.environ.get(name) == left
    monkeypatch.setenv(name, "1")
    vllm_engine.without_flashinfer()
    assert os.environ[name] == "1"


def test_runs_that_start_together_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "MASTER_PORT"
    ports = set()
    with socket.socket() as first:
        for _ in range(2):
            monkeypatch.delenv(name, raising=False)
            vllm_engine.take_port()
            if not ports:
                first.bind(("", int(os.environ[name])))
            ports.add(os.environ[name])
    assert len(ports) == 2
    monkeypatch.setenv(name, "4711")
    vllm_engine.take_port()
    assert os.environ[name] == "4711"
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv(name)
    vllm_engine.take_port()
    assert name not in os.environ


def test_a_model_with_a_name_is_opened_by_it() -> None:
    model = tiny_llama(byte_tokenizer(), 0)
    model.name_or_path = "some/model"
    with openable(model, None):
        assert model.name_or_path == "some/model"


def test_the_recipes_settings_reach_trl(tmp_path: Path) -> None:
    from grpo_cli.train.trl_config import grpo_config

    made = recipe()
    sample = made.sample.model_copy(
        update={"engine": "vllm", "vllm": {"gpu_memory_utilization": 0.2, "server_base_url": "http://h/"}}
    )
    made = made.model_copy(update={"sample": sample})
    assert vllm_fields(made)["vllm_gpu_memory_utilization"] == 0.2
    assert vllm_fields(made)["vllm_server_base_url"] == "http://h"
    args = grpo_config(made, tmp_path, Batching(4, 1), torch.device("cpu"), None)
    assert args.use_vllm
    assert args.vllm_mode == "colocate"
    assert args.top_p == 1.0
