"""Stand-ins in the update: taken only where values and gradients stay, and gone afterwards."""

from __future__ import annotations

import pytest
import torch
from rollout_models import FAMILIES, tiny

from grpo_cli.train import fused
from grpo_cli.train.rollout.swaps import swapped


def gradients(model, swaps, autocast):
    model.zero_grad()
    ids = torch.randint(0, 60, (3, 20), generator=torch.Generator().manual_seed(1))
    with swapped(swaps), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model(input_ids=ids, labels=ids).loss.backward()
    return torch.cat([p.grad.float().flatten() for p in model.parameters()])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
def test_gradients_stay_those_of_the_models_own_code(family, autocast):
    model = tiny(family, initializer_range=0.05)
    swaps = fused.update_swaps(model, torch.bfloat16 if autocast else None)
    assert autocast == any(swap.owner is model.base_model.layers[0].mlp for swap in swaps)
    own = gradients(model, [], autocast)
    ours = gradients(model, swaps, autocast)
    assert (ours - own).norm() <= (2e-2 if autocast else 1e-6) * own.norm()
    assert all("forward" not in vars(module) for module in model.modules())


@pytest.mark.parametrize("checkpointed", [False, True])
def test_adapters_get_the_gradients_of_the_models_own_code(checkpointed):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    adapters = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    model = get_peft_model(tiny(initializer_range=0.05), adapters).train()
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    swaps = fused.update_swaps(model, torch.bfloat16)
    assert any(type(swap.owner).__name__ == "LlamaMLP" for swap in swaps)
    found = []
    for used in ([], swaps):
        model.zero_grad()
        ids = torch.arange(24).view(2, 12)
        with swapped(used), torch.autocast("cpu", torch.bfloat16):
            model(input_ids=ids, labels=ids).loss.backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]))
    assert found[0].abs().max() > 0
    assert (found[1] - found[0]).norm() <= 2e-2 * found[0].norm()


def test_norms_of_the_plain_form_are_taken_and_gemmas_are_not():
    def taken(family):
        return [s for s in fused.update_swaps(tiny(family), None) if "RMSNorm" in type(s.owner).__name__]

    assert (len(taken("Llama")), len(taken("Qwen3")), len(taken("Gemma"))) == (5, 9, 0)


def test_a_norm_of_another_type_than_its_input_runs_its_own_code():
    model = tiny()
    norm = model.base_model.norm
    swap = next(s for s in fused.update_swaps(model, None) if s.owner is norm)
    x = torch.randn(2, 3, 32, dtype=torch.bfloat16)
    assert torch.equal(swap.stand_in(x), norm(x))


@pytest.mark.parametrize(
    "wrong",
    [lambda x, w: x * w * 1.01, lambda x, w: (x * w).detach() + 0 * x, lambda x, w: (x * w).double()],
    ids=["value", "gradient", "type"],
)
def test_what_differs_is_refused(wrong):
    def right(x, w):
        return x * w

    x, w = torch.randn(4, 5), torch.randn(4, 5)
    assert fused.same_with_gradients(right, lambda x, w: w * x, x, w)
    assert not fused.same_with_gradients(right, wrong, x, w)


def test_stand_ins_that_change_the_logits_are_all_left_out(monkeypatch):
    def halved(own, kind):
        return lambda *args, **named: own(*[a / 2 for a in args], **named)

    monkeypatch.setattr(fused, "_cast_first", halved)
    assert fused.update_swaps(tiny(initializer_range=0.05), torch.bfloat16) == []
