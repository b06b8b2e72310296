"""Stand-ins in the update: taken only where values and gradients stay, and gone afterwards."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.fused import update as fused
from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.transformers_engine import TransformersEngine
from tests.builders.rollout_models import FAMILIES, tiny


def gradients(model, patches, autocast):
    model.zero_grad()
    ids = torch.randint(0, 60, (3, 20), generator=torch.Generator().manual_seed(1))
    with patched(patches), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model(input_ids=ids, labels=ids).loss.backward()
    return torch.cat([p.grad.float().flatten() for p in model.parameters()])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
def test_gradients_stay_those_of_the_models_own_code(family, autocast):
    model = tiny(family, initializer_range=0.05)
    patches = fused.update_patches(model, torch.bfloat16 if autocast else None)
    assert (autocast and family != "GptOss") == any(patch.owner is model.base_model.layers[0].mlp for patch in patches)
    own = gradients(model, [], autocast)
    ours = gradients(model, patches, autocast)
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
    patches = fused.update_patches(model, torch.bfloat16)
    assert any(type(patch.owner).__name__ == "LlamaMLP" for patch in patches)
    found = []
    for used in ([], patches):
        model.zero_grad()
        ids = torch.arange(24).view(2, 12)
        with patched(used), torch.autocast("cpu", torch.bfloat16):
            model(input_ids=ids, labels=ids).loss.backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]))
    assert found[0].abs().max() > 0
    assert (found[1] - found[0]).norm() <= 2e-2 * found[0].norm()


def test_norms_of_the_plain_form_are_taken_and_gemmas_are_not():
    def taken(family):
        return [s for s in fused.update_patches(tiny(family), None) if "RMSNorm" in type(s.owner).__name__]

    assert (len(taken("Llama")), len(taken("Qwen3")), len(taken("Gemma"))) == (5, 9, 0)


def test_a_norm_of_another_type_than_its_input_runs_its_own_code():
    model = tiny()
    norm = model.base_model.norm
    patch = next(s for s in fused.update_patches(model, None) if s.owner is norm)
    x = torch.randn(2, 3, 32, dtype=torch.bfloat16)
    assert torch.equal(patch.replacement(x), norm(x))


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
    assert fused.update_patches(tiny(initializer_range=0.05), torch.bfloat16) == []


def test_a_model_under_adapters_still_generates_outside_of_autocast():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny(initializer_range=0.05), LoraConfig(r=4, target_modules="all-linear"))
    patches = fused.update_patches(model, torch.bfloat16)
    assert any(type(patch.owner).__name__ == "LlamaMLP" for patch in patches)
    engine, asked = TransformersEngine(model, {1}), ([Request([3, 4, 5], 2)], SamplingSettings(4, seed=0))
    own = engine.generate(*asked)
    with patched(patches):
        assert engine.generate(*asked) == own


def test_no_gradient_is_left_on_the_model():
    model = tiny()
    fused.update_patches(model, None)
    assert all(p.grad is None for p in model.parameters())


def test_the_rotary_embedding_of_another_model_of_the_family_stays_its_own(monkeypatch):
    def turned(q, k, cos, sin, kind, *, back=False):
        if back:
            sin = -sin.roll(sin.shape[-1] // 2, -1)
        return tuple(x.to(kind) for x in apply_rotary_pos_emb(q, k, cos, sin))

    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    monkeypatch.setattr(fused, "turn", turned)
    policy, judge = tiny(), tiny(seed=1)
    patches = fused.update_patches(policy, torch.bfloat16)
    assert any(patch.name == "apply_rotary_pos_emb" for patch in patches)
    ids = torch.arange(12)[None]
    own = judge(input_ids=ids).logits
    with patched(patches):
        assert torch.equal(judge(input_ids=ids).logits, own)
        with torch.autocast("cpu", torch.bfloat16):
            assert fused_kinds(policy, ids) == {torch.bfloat16}


def fused_kinds(model, ids):
    """Types of the queries that attention gets."""
    from grpo_cli.rollout.fused.patches import rotary_home

    home, name, replacement = rotary_home(model)
    kinds = set()

    def seen(*args, **named):
        found = replacement(*args, **named)
        kinds.add(found[0].dtype)
        return found

    setattr(home, name, seen)
    try:
        model(input_ids=ids)
    finally:
        setattr(home, name, replacement)
    return kinds
