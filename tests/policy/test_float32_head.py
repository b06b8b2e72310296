"""`model.head: float32`: the last product and its logits in float32, in the sampler and in the update."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grpo_cli.errors import SetupError
from grpo_cli.policy.model import head_in_float32, load_model
from grpo_cli.policy.modes import causal_model, numerics
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import policy_engine
from tests.reference.case import Case
from tests.reference.compare import compare
from tests.reference.drive import recipe_of, run_here, write_world


def test_logits_keep_what_bfloat16_rounds_away() -> None:
    logits = {}
    for head in ("auto", "float32"):
        policy = load_model(Model(path="builtin:tiny", dtype="bfloat16", head=head), device=torch.device("cpu"), seed=0)
        model = causal_model(policy.model)
        with torch.no_grad(), numerics(policy.model, policy.autocast):
            states = model.base_model(input_ids=torch.tensor([[5, 6, 7]])).last_hidden_state * 40
            logits[head] = model.get_output_embeddings()(states)
        weight = model.get_output_embeddings().weight
    exact = states.double() @ weight.double().t()
    assert logits["float32"].dtype == torch.float32
    assert (logits["float32"] - exact).abs().max() < 1e-4 < 0.01 < (logits["auto"] - exact).abs().max()
    # between 16 and 32 bfloat16 has steps of .125: a ratio of up to exp(1/16) out of nothing
    step = torch.tensor([20.0]).bfloat16()
    assert torch.nextafter(step, step * 2) - step == 0.125 and torch.tensor(2**-4).exp() == pytest.approx(
        1.064494, abs=1e-6
    )


def test_sampler_and_update_agree_and_the_gradient_is_the_references(tmp_path: Path) -> None:
    write_world(tmp_path)
    changes = {"model": {"path": "builtin:tiny", "head": "float32"}, "train": {"inner_epochs": 2}}
    recipe = recipe_of(tmp_path, "head", changes)
    errors = compare([run_here(recipe, tmp_path)], Case.of(recipe))
    assert errors.gradient < 2e-6
    policy = load_model(recipe.model, device=torch.device("cpu"), seed=0)
    plain = load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0)
    drawn = [
        policy_engine("auto", one, lambda _: None).generate(
            [Request([4, 5, 6], 2)], SamplingSettings(max_tokens=6, temperature=1.0, seed=1)
        )
        for one in (policy, plain)
    ]
    assert drawn[0] == drawn[1]  # float32 weights have a float32 head already


def test_a_head_that_is_no_linear_layer_is_refused() -> None:
    class Other:
        def get_output_embeddings(self) -> torch.nn.Module:
            return torch.nn.Identity()

    with pytest.raises(SetupError, match="no plain output head"):
        head_in_float32(Other())
