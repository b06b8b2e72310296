"""The fused update on a CUDA device against the model's own code."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model

from grpo_cli.policy.model import exclude_cudnn_attention
from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.fused.update import update_patches
from tests.builders.rollout_models import FAMILIES, tiny

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["float32", "bf16-weights", "autocast", "adapters"])
def test_gradients_stay_those_of_the_models_own_code(family, kind):
    assert torch.cuda.is_available(), "these tests need a CUDA device"
    torch.backends.cuda.matmul.allow_tf32 = False
    model = tiny(family, initializer_range=0.05).to("cuda").train()
    if kind == "bf16-weights":
        model = model.to(torch.bfloat16)
    if kind == "adapters":
        torch.manual_seed(3)
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    autocast = torch.bfloat16 if kind in ("autocast", "adapters") else None
    patches = update_patches(model, autocast)
    # Gemma's norms scale by 1 + weight, GPT-OSS's before they round; it turns halves that it splits by itself
    assert any(patch.name == "apply_rotary_pos_emb" for patch in patches) == (family != "GptOss")
    if family != "GptOss":
        fused = any("RMSNorm" in type(patch.owner).__name__ for patch in patches)
        assert fused == (family not in ("Gemma", "Gemma2", "Gemma3"))
    ids = torch.randint(0, 60, (3, 20), generator=torch.Generator().manual_seed(1)).to("cuda")
    found = []
    for used in ([], patches):
        model.zero_grad()
        with patched(used), torch.autocast("cuda", torch.bfloat16, enabled=autocast is not None):
            model(input_ids=ids, labels=ids).loss.backward()
        found.append(torch.cat([p.grad.float().flatten() for p in model.parameters() if p.requires_grad]))
    assert (found[1] - found[0]).norm() <= (1e-5 if kind == "float32" else 3e-2) * found[0].norm()


@pytest.mark.parametrize("width", [64, 128, 319, 320, 384])
@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_a_padded_batch_is_finite(width, head, dtype):
    assert torch.cuda.is_available(), "these tests need a CUDA device"
    exclude_cudnn_attention()
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (
        torch.randn(8, 12, width, head, device="cuda", dtype=dtype, generator=generator).requires_grad_()
        for _ in range(3)
    )
    # the first columns of row i are padding, so that their positions attend to nothing
    lead_B1 = torch.arange(8, device="cuda")[:, None]
    tokens_BS = torch.arange(width, device="cuda") >= lead_B1
    causal_SS = torch.ones(width, width, dtype=torch.bool, device="cuda").tril()
    mask = causal_SS & tokens_BS[:, None, None, :]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    weights = torch.randn(out.shape, device="cuda", dtype=dtype, generator=generator)
    (out * weights * tokens_BS[:, None, :, None]).sum().backward()
    assert all(one.grad.isfinite().all() for one in (q, k, v))
