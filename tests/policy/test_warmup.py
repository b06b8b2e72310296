"""The supervised warm-up: what is padding, what is predicted, and in which numbers Muon computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from grpo_cli.policy import cpu_bf16, muon
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.muon import Muon, orthogonal, orthogonal_dtype
from grpo_cli.policy.warmup import IGNORED, Phase, WarmupText, collate, supervise
from tests.reference.families import make_model


def test_ends_of_turns_in_the_prompt_are_no_padding_where_pad_is_their_token() -> None:
    ids, mask, labels = collate([WarmupText([3, 0, 4], [5, 0]), WarmupText([0], [6])], pad_id=0)
    assert ids.tolist() == [[3, 0, 4, 5, 0], [0, 6, 0, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert labels.tolist() == [[IGNORED] * 3 + [5, 0], [IGNORED, 6, IGNORED, IGNORED, IGNORED]]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "qwen3_moe"])
def test_the_loss_is_the_mean_over_the_tokens_of_answers(family: str) -> None:
    model = make_model(family)
    rows = [WarmupText([3, 0, 4], [5, 0]), WarmupText([7], [6, 8, 9, 0])]
    parts = []
    for row in rows:
        whole = torch.tensor([row.prompt_ids + row.completion_ids])
        with torch.no_grad():
            logits = model(input_ids=whole).logits[0, len(row.prompt_ids) - 1 : -1].float()
        parts.append(F.cross_entropy(logits, torch.tensor(row.completion_ids), reduction="none"))
    losses: list[float] = []
    # both rows are drawn with this seed
    supervise(model, rows, Phase(1, 1e-9, None, 2), seed=4, pad_id=0, on_step=lambda _, loss: losses.append(loss))
    assert losses == [pytest.approx(float(torch.cat(parts).mean()), abs=1e-4)]


@pytest.mark.parametrize("shape", [(96, 96), (256, 96), (96, 256)])
def test_muon_steps_as_torchs_where_it_computes_in_the_same_numbers(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    start = torch.randn(shape)
    theirs, ours, full = (torch.nn.Parameter(start.clone()) for _ in range(3))
    torchs = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    mine, exact = Muon([ours], 0.01, dtype=torch.bfloat16), Muon([full], 0.01)
    for _ in range(3):
        gradient = torch.randn(shape)
        for parameter, optimizer in ((theirs, torchs), (ours, mine), (full, exact)):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(ours, theirs)
    assert 0 < float((full - theirs).detach().abs().max()) < 1e-3


def test_singular_values_are_moved_to_about_one() -> None:
    torch.manual_seed(0)
    for shape in ((32, 80), (80, 32)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape), torch.float32))
        assert values.min() > 0.6 and values.max() < 1.3


def test_small_matrices_of_a_cpu_are_float32_whatever_a_measurement_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for pays in (True, False):
        monkeypatch.setattr(muon, "cpu_bf16_pays", lambda pays=pays: pays)
        assert orthogonal_dtype(torch.zeros(256, 96)) == torch.float32
        assert orthogonal_dtype(torch.zeros(512, 600)) == (torch.bfloat16 if pays else torch.float32)


@pytest.mark.parametrize(("half_s", "pays"), [(0.1, True), (0.9, False), (30.0, False)])
def test_half_precision_is_taken_where_it_is_measured_to_be_faster(
    half_s: float, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_bf16, "_seconds", lambda dtype, tries: 1.0 if dtype == torch.float32 else half_s)
    monkeypatch.setattr(cpu_bf16, "_settled", [])
    assert cpu_bf16.cpu_bf16_pays() is pays
    monkeypatch.setattr(cpu_bf16, "_seconds", lambda dtype, tries: 1.0 if dtype == torch.bfloat16 else 9.0)
    assert cpu_bf16.cpu_bf16_pays() is pays  # one answer a process
    cpu_bf16.settle_cpu_bf16(not pays)
    assert cpu_bf16.cpu_bf16_pays() is not pays


def test_a_builtin_model_learns_a_demonstration() -> None:
    tokenizer = byte_tokenizer()
    losses: list[float] = []
    supervise(
        tiny_llama(tokenizer, 0),
        [WarmupText([1, 2, 3], [4, 5, 6, tokenizer.eos_token_id])],
        Phase(40, 3e-3, 0.015, 8),
        seed=0,
        pad_id=tokenizer.pad_token_id,
        on_step=lambda _, loss: losses.append(loss),
    )
    assert losses[-1] < 0.3 * losses[0]
