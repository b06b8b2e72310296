"""A model's `generation_config.json` goes into its checkpoints and never keeps them from being written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.policy.model import load_model
from grpo_cli.recipe.sections.recipe import Model
from tests.builders.chat_models import make_model

SAVED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sampling without do_sample": (
        {"temperature": 0.6, "top_p": 0.9},
        {"temperature": 0.6, "top_p": 0.9, "do_sample": True},
    ),
    "greedy with a temperature": (
        {"do_sample": False, "temperature": 0.6},
        {"temperature": 0.6, "do_sample": True},
    ),
    "sound": ({"repetition_penalty": 1.1, "top_k": 7, "do_sample": True}, {"repetition_penalty": 1.1, "top_k": 7}),
    "beams that are none": ({"num_beams": 1, "early_stopping": True, "length_penalty": 2.0}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", SAVED)
def test_a_model_with_any_sampling_defaults_can_be_saved_and_keeps_its_ends(case: str, tmp_path: Path) -> None:
    given, kept = SAVED[case]
    folder = make_model(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({**given, "eos_token_id": [3, 4]}))
    policy = load_model(Model(path=str(folder)), device=torch.device("cpu"), seed=0)
    assert {3, 4} <= policy.end_ids
    policy.model.save_pretrained(tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert written["eos_token_id"] == [3, 4]
    assert {key: written.get(key) for key in kept} == kept
