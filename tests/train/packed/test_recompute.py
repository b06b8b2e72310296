"""Passes that keep less between forward and backward against passes that keep everything, on a CPU."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from grpo_cli.policy.modes import causal_model
from grpo_cli.train.packed import recompute
from grpo_cli.train.packed.recompute import Keeping, repeatable_layers
from grpo_cli.train.packed.score import ScoreNumerics
from tests.builders.rollout_models import tiny
from tests.train.packed.test_packed import batch, packed


def gradients(model, keeping: Keeping, kind: torch.dtype, rows: int) -> list[torch.Tensor]:
    """Log-probs, and the gradient of each trained parameter, of one packed pass."""
    ids, mask, keep = batch(1)
    ids, mask = ids[:rows], mask[:rows]
    pull = torch.randn(len(ids), keep, dtype=kind, generator=torch.Generator().manual_seed(0))
    model.zero_grad()
    logps = packed(causal_model(model), ids, mask, keep, ScoreNumerics(keeping=keeping))[0]
    (logps * pull).sum().backward()
    return [logps.detach(), *(p.grad.clone() for p in model.parameters() if p.requires_grad)]


def adapted(model):
    """Adapters on every linear layer, none of them zero."""
    made = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    torch.manual_seed(0)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Gemma", "Mistral"])
@pytest.mark.parametrize("form", [lambda model: model, adapted], ids=["whole", "lora"])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("offload", [False, True])
def test_gradients_are_those_of_a_pass_that_keeps_everything(family, form, kind, rows, offload, monkeypatch):
    monkeypatch.setattr(recompute, "LEAST_COPIED", 0)
    model = form(tiny(family)).to(kind).train()
    wanted = gradients(model, Keeping(), kind, rows)
    assert all(grad.abs().sum() for grad in wanted)
    for how in ("no", "selective", "full"):
        found = gradients(model, Keeping(how, offload), kind, rows)
        # the same operations on the same numbers: nothing may differ by as much as a rounding
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)), how
    assert all("forward" not in vars(layer) for layer in repeatable_layers(causal_model(model)))


class Counted(TorchDispatchMode):
    """Counts operations of attention and matrix products that really run."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.products = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.attention += func in recompute._attention()
        self.products += func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return func(*args, **(kwargs or {}))


def test_selective_makes_everything_but_attention_again_and_full_all():
    model, (ids, mask, keep) = tiny().train(), batch(1)
    ids, mask = ids[:1], mask[:1]  # torch has an operation of its own for attention within one sequence
    found, kept = {}, {}
    for how in ("no", "selective", "full"):
        sizes: list[int] = []
        with saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            logps = packed(model, ids, mask, keep, ScoreNumerics(keeping=Keeping(how)))[0]
        with Counted() as counted:
            logps.sum().backward()
        found[how], kept[how] = (counted.attention, counted.products), sum(sizes)
    assert found["no"][0] == found["selective"][0] == 0 < found["full"][0]
    assert found["no"][1] < found["selective"][1] == found["full"][1]
    assert kept["selective"] == kept["full"] < kept["no"] / 3


def test_what_is_kept_goes_to_the_host_and_weights_do_not(monkeypatch):
    monkeypatch.setattr(recompute, "LEAST_COPIED", 0)
    model, (ids, mask, keep) = tiny().train(), batch(1)
    ids, mask = ids[:1], mask[:1]
    copies = []
    own = recompute.HostCopies.unpack
    monkeypatch.setattr(recompute.HostCopies, "unpack", lambda self, kept: copies.append(kept) or own(self, kept))
    logps = packed(model, ids, mask, keep, ScoreNumerics(keeping=Keeping("selective", offload=True)))[0]
    logps.sum().backward()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    moved = [kept.numbers for kept in copies if isinstance(kept, recompute.HostCopy)]
    # of each layer what goes into it and the attention of its sequences, and what the norm and the head read
    assert len(moved) > 2 * len(repeatable_layers(model))
    assert not {numbers.untyped_storage().data_ptr() for numbers in moved} & weights
    assert any(kept.untyped_storage().data_ptr() in weights for kept in copies if isinstance(kept, torch.Tensor))
