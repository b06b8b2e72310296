"""The packed update on a CUDA device: its kernels, its graphs, and a run that uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.fused.update import FusedRmsNorm, FusedSiluMul, same_with_gradients, update_patches
from grpo_cli.train import trainer as seam
from grpo_cli.train.packed import graphs as graphs_module
from grpo_cli.train.packed import recompute
from grpo_cli.train.packed.attention import shared
from grpo_cli.train.packed.graphs import Graphs
from grpo_cli.train.packed.layout import TokenCopies, plan, shape_for
from grpo_cli.train.packed.recompute import Keeping
from grpo_cli.train.packed.score import ScoreNumerics, score, selected_logps
from grpo_cli.train.packed.self_check import alone, difference, replay_difference, unfit
from tests.builders.rollout_models import tiny
from tests.loop.test_batches import trained, warm_model
from tests.loop.test_packed_update import turned
from tests.train.packed.test_packed import batch

pytestmark = pytest.mark.gpu
__all__ = ["warm_model"]
CUDA = torch.device("cuda")


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double().to(a.device)).norm() / b.double().norm().clamp(min=1e-9))


def small(family: str = "Llama", **changes: Any) -> Any:
    sizes = {"hidden_size": 64, "initializer_range": 0.05, **changes}
    return tiny(family, **sizes).to(CUDA, torch.bfloat16).train()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "width"), [(3, 20), (3, 64), (2, 128), (12, 128)])
def test_copies_and_their_sums_are_those_of_the_reference(heads: int, width: int, kind: torch.dtype) -> None:
    x = torch.randn(heads, 40, width).to(kind).transpose(0, 1)  # heads first in memory, as queries and keys come
    places = torch.randint(40, (100,))
    order = torch.argsort(places, stable=True)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(places, minlength=40).cumsum(0)])
    pull = torch.randn(100, heads, width).to(kind)
    found = []
    for device in ("cpu", "cuda"):
        leaf = x.to(device).detach().requires_grad_()
        out = shared(leaf, TokenCopies(*(t.to(device) for t in (places, order, starts))))
        found.append((out, torch.autograd.grad(out, leaf, pull.to(device))[0]))
    assert torch.equal(found[1][0].cpu(), found[0][0])
    assert apart(found[1][1], found[0][1]) < (1e-6 if kind == torch.float32 else 4e-3)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [None, 1024])
def test_the_head_gives_exact_log_probs_and_gradients(kind: torch.dtype, width: int | None) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 64, generator=generator).to(kind) for n in (300, 5000))
    labels, counts = torch.randint(5000, (300,), generator=generator), torch.arange(300) % 3 != 1
    pulls = torch.randn(2, 300, generator=generator)
    leaves = [x.double().requires_grad_() for x in (hidden, weight)]
    logits = leaves[0] @ leaves[1].t()
    # logits are of the head's type, as its own product makes them: what that rounding does to them is not an error
    logits = logits + (logits.detach().to(kind).double() - logits.detach())
    log_p = (logits / 0.7).log_softmax(-1)
    values = log_p.gather(1, labels[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(dim=1)
    theirs = [torch.where(counts, x, 0.0) for x in values]
    theirs += torch.autograd.grad(sum((o * p).sum() for o, p in zip(theirs, pulls, strict=True)), leaves)
    leaves = [x.to(CUDA).requires_grad_() for x in (hidden, weight)]
    ours = [*selected_logps(*leaves, labels.to(CUDA), counts.to(CUDA), temperature=0.7, width=width)]
    ours += torch.autograd.grad(sum((o * p.to(CUDA)).sum() for o, p in zip(ours, pulls, strict=True)), leaves)
    bounds = [1e-5] * 4 if kind == torch.float32 else [2e-3, 2e-3, 2e-2, 2e-2]
    for found, wanted, close in zip(ours, theirs, bounds, strict=True):
        assert apart(found, wanted) < close


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [48, 576, 1536, 8960])
def test_norm_and_gate_have_the_gradients_of_plain_code(kind: torch.dtype, width: int) -> None:
    weight = torch.nn.Parameter(torch.randn(width, device=CUDA, dtype=kind))

    def norm(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(kind)

    x, y = torch.randn(2, 5000, width, device=CUDA).to(kind)
    assert same_with_gradients(norm, lambda x: FusedRmsNorm.of(x, weight, 1e-6), x, also=[weight])
    assert same_with_gradients(lambda a, b: torch.nn.functional.silu(a) * b, FusedSiluMul.apply, x, y)


@pytest.mark.parametrize("family", ["Llama", "Llama-untied-mha", "Qwen2", "Qwen3", "Mistral"])
@pytest.mark.parametrize("kind", ["bf16", "autocast", "adapters"])
def test_a_model_proves_itself(family: str, kind: str) -> None:
    model = small(family, **({"head_dim": 16} if family == "Qwen3" else {}))
    if kind == "adapters":
        torch.manual_seed(3)
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)).train()
    if kind == "autocast":
        model = model.float()
    numbers = ScoreNumerics(None if kind == "bf16" else torch.bfloat16, temperature=0.9)
    patches = update_patches(model, numbers.autocast)
    assert any("MLP" in type(patch.owner).__name__ for patch in patches)
    assert unfit(model, numbers) is None
    assert difference(model, numbers, patches) is None
    assert replay_difference(model, numbers, patches) is None
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("how", ["no", "selective", "full"])
@pytest.mark.parametrize("width", [64, 128])
def test_layers_made_again_and_rows_alone_prove_themselves(
    joined: bool, how: Any, width: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(recompute, "LEAST_COPIED", 0)
    model = small("Qwen3", head_dim=width)
    numbers = ScoreNumerics(torch.bfloat16, keeping=Keeping(how))
    patches = update_patches(model, torch.bfloat16)
    assert difference(model, numbers, patches, joined=joined) is None
    assert replay_difference(model, numbers, patches, joined=joined) is None
    on_host = ScoreNumerics(torch.bfloat16, keeping=Keeping(how, offload=True))
    assert difference(model, on_host, patches, joined=joined) is None


@pytest.mark.parametrize("fused", [False, True])
def test_an_autocast_over_float32_weights_reaches_the_attention(fused: bool) -> None:
    model, numbers = small().float(), ScoreNumerics(torch.bfloat16)
    ids, mask, keep = (x.to(CUDA) if torch.is_tensor(x) else x for x in batch(4))
    laid = plan(ids, mask, keep)
    assert laid is not None
    shape = shape_for(laid.need)
    with patched(update_patches(model, torch.bfloat16) if fused else []):
        ours = laid.places(shape.targets, CUDA).put(score(model, laid.fill(shape, CUDA), numbers)[0])
    counts = mask[:, -keep:].bool()
    assert (ours - alone(model, ids, mask, keep, numbers))[counts].abs().max() < 0.05


def test_float32_and_dropout_stay_with_padding() -> None:
    assert "float32" in str(unfit(small().float(), ScoreNumerics()))
    assert "dropout" in str(unfit(small(attention_dropout=0.1), ScoreNumerics()))


def test_replays_follow_new_rows_new_weights_and_gradients_that_were_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs_module, "MOST", 2)
    model, numbers = small(), ScoreNumerics()
    graphs, shapes = Graphs(model, numbers), set()
    patches = update_patches(model, None)
    with patched(patches):
        for seed in range(6):
            ids, mask, keep = batch(seed, groups=2 + 20 * (seed % 3))
            ids, mask = ids.to(CUDA), mask.to(CUDA)
            total: list[torch.Tensor] = []
            for form in ("replay", "eager"):
                for p in model.parameters():
                    p.grad = None
                for scale in (1.0, 0.5):  # two micro-batches of one optimizer step
                    laid = plan(ids, mask, keep)
                    assert laid is not None
                    if form == "replay":
                        logps, _, shape = graphs.score(laid)
                        shapes.add(shape)
                    else:
                        shape = shape_for(laid.need)
                        logps, _ = score(model, laid.fill(shape, CUDA), numbers)
                    placed = laid.places(shape.targets, CUDA).put(logps)
                    (placed * torch.linspace(-1, 1, keep, device=CUDA) * scale).sum().backward()
                found = [placed.detach(), *(p.grad.clone() for p in model.parameters())]
                if form == "replay":
                    total = found
            for ours, theirs in zip(total, found, strict=True):
                assert apart(ours, theirs) < 2e-2
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(torch.randn_like(p) * 0.01)
    assert 1 <= len(graphs.held) <= 2 < len(shapes)


def test_log_probs_are_those_of_each_row_alone() -> None:
    model, numbers = small("Qwen2"), ScoreNumerics(temperature=0.8)
    ids, mask, keep = (x.to(CUDA) if torch.is_tensor(x) else x for x in batch(4))
    laid = plan(ids, mask, keep)
    assert laid is not None
    shape = shape_for(laid.need)
    ours = laid.places(shape.targets, CUDA).put(score(model, laid.fill(shape, CUDA), numbers)[0])
    theirs = alone(model, ids, mask, keep, numbers)
    counts = mask[:, -keep:].bool()
    assert (ours - theirs)[counts].abs().max() < 0.05 and not ours[~counts].any()


@pytest.mark.parametrize("method", [{"loss": "dapo", "inner_epochs": 2}, {"kl": {"beta": 0.1}}])
def test_a_run_is_the_run_with_padding(method: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, measured = trained(tmp_path, "packed", steps=3, **method)
    assert ours.packed is not None and ours.packed.graphs is not None and ours.packed.graphs.held
    monkeypatch.setattr(seam, "packed_source", lambda *_, **__: None)
    usual, padded = trained(tmp_path, "padded", steps=3, **method)
    assert usual.packed is None
    assert measured[0]["reward/total/mean"] == padded[0]["reward/total/mean"]  # the same samples
    assert measured[0]["loss"] == pytest.approx(padded[0]["loss"], abs=2e-2)
    assert measured[0]["grad_norm"] == pytest.approx(padded[0]["grad_norm"], rel=0.1)
    assert measured[0]["entropy"] == pytest.approx(padded[0]["entropy"], rel=2e-2)
    assert all(torch.isfinite(p).all() for p in ours.model.parameters())


def test_token_advantages_and_masks_with_holes_teach_as_with_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned(monkeypatch)
    ours, measured = trained(tmp_path, "packed", steps=2, loss="dapo")
    assert ours.packed is not None
    monkeypatch.setattr(seam, "packed_source", lambda *_, **__: None)
    usual, padded = trained(tmp_path, "padded", steps=2, loss="dapo")
    assert usual.packed is None
    assert abs(padded[0]["loss"]) > 1e-4  # later tokens weigh more: the loss of a centred group is not 0
    assert measured[0]["loss"] == pytest.approx(padded[0]["loss"], abs=2e-2)
    assert measured[0]["grad_norm"] == pytest.approx(padded[0]["grad_norm"], rel=0.1)
    assert measured[0]["entropy"] == pytest.approx(padded[0]["entropy"], rel=2e-2)
