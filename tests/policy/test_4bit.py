"""Weights in 4 bits on a CPU, where bitsandbytes is installed: what is loaded, generated from, trained and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_cli.policy import model as loading
from grpo_cli.policy.modes import causal_model, is_in_4bit
from grpo_cli.recipe.sections.inputs import Lora, Model
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.fused.patches import _random
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.train.packed.recompute import Keeping
from grpo_cli.train.packed.score import ScoreNumerics
from grpo_cli.train.packed.self_check import difference, unfit
from tests.train.packed.test_recompute import gradients

SIZES = {
    "vocab_size": 67,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.3)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def quantised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr(loading, "refuse_4bit", lambda *_, **__: None)
    spec = Model(path=str(folder), load_in_4bit=True, lora=Lora(r=4))
    made = loading._load_weights(spec, torch.float32, torch.device("cpu"))
    torch.manual_seed(1)
    made = loading.attach_lora(made, spec.lora)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return made


def test_four_bits_are_normal_ones_with_scales_that_are_quantised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Stop(Exception): ...

    def loaded(*_: object, **named: Any) -> None:
        asked.update(named)
        raise Stop

    monkeypatch.setattr(loading, "refuse_4bit", lambda *_, **__: None)
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", loaded)
    for kind in (torch.bfloat16, torch.float16):
        with pytest.raises(Stop):
            loading._load_weights(Model(path="./model", load_in_4bit=True, lora=Lora()), kind, torch.device("cpu"))
        said = asked["quantization_config"]
        assert said.bnb_4bit_quant_type == "nf4" and said.bnb_4bit_use_double_quant
        assert said.bnb_4bit_compute_dtype == kind


def test_the_base_is_held_once_and_adapters_are_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = quantised(folder, monkeypatch)
    layer = causal_model(made).model.layers[0].mlp.gate_proj
    state = layer.base_layer.weight.quant_state
    assert is_in_4bit(made) and state.quant_type == "nf4" and state.nested
    assert layer.base_layer.weight.numel() == 64 * 128 // 2
    assert {p.dtype for p in made.parameters() if p.requires_grad} == {torch.float32}


def test_packed_rows_score_as_each_row_alone_and_layers_may_be_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = quantised(folder, monkeypatch).train()
    assert unfit(made, ScoreNumerics()) is None
    for joined in (False, True):
        assert difference(made, ScoreNumerics(), [], joined=joined) is None
    wanted = gradients(made, Keeping(), torch.float32, 12)
    assert len(wanted) == 1 + 2 * 2 * 7 and all(grad.abs().sum() for grad in wanted)
    for how in ("selective", "full"):
        found = gradients(made, Keeping(how), torch.float32, 12)
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def test_the_engine_draws_what_the_trainer_scores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = quantised(folder, monkeypatch).eval()
    mlp = causal_model(made).model.layers[0].mlp
    x = _random(mlp, mlp.gate_proj, torch.float32)  # a stand-in is tried in the model's own numbers, not in its bytes
    assert x.shape[-1] == 64 and mlp(x).isfinite().all()
    (found,) = GraphEngine(made, {5}).generate([Request([1, 2, 3], 4)], SamplingSettings(6, seed=1))
    for one in found:
        with torch.no_grad():
            logps = made(input_ids=torch.tensor([[1, 2, 3, *one.token_ids]])).logits[0, 2:-1].log_softmax(-1)
        assert torch.allclose(
            logps.gather(1, torch.tensor(one.token_ids)[:, None])[:, 0], torch.tensor(one.logps), atol=1e-4
        )
