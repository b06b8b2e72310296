"""Where tokens stand behind left padding: which models must be told, and which cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from grpo_cli.errors import SetupError
from grpo_cli.policy.positions import needs_positions, positions_from_mask, positions_of
from grpo_cli.rollout.logprobs import can_share, score_shared
from tests.reference.families import FAMILIES, MORE, make_model

ABSOLUTE = {"gpt2", "gpt_neo", "gpt_bigcode", "biogpt"}
PROMPTS, ANSWERS = [[5, 9, 2, 40, 41], [7, 3]], [[4, 4, 1], [90, 8]]


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    """Two rows as training pads them: prompts to the left, answers to the right."""
    ids, mask = torch.zeros(2, 8, dtype=torch.long), torch.zeros(2, 8, dtype=torch.long)
    for row, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        begin = 5 - len(prompt)
        ids[row, begin : 5 + len(answer)] = torch.tensor(prompt + answer)
        mask[row, begin : 5 + len(answer)] = 1
    return ids, mask


def alone(model: Any, prompt: list[int], answer: list[int]) -> list[float]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    found: list[float] = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()
    return found


def test_positions_count_from_the_first_token_that_is_no_padding() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    assert positions_of(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2]]


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_a_padded_row_says_what_it_says_alone(family: str) -> None:
    model = make_model(family).eval()
    absolute = needs_positions(model)
    assert absolute == (family in ABSOLUTE)
    ids, mask = padded()
    with torch.no_grad():
        if absolute:
            with positions_from_mask(model):
                logits = model(input_ids=ids, attention_mask=mask).logits
        else:
            logits = model(input_ids=ids, attention_mask=mask).logits
        shared = score_shared(model, ids, mask, 3, 1.0, absolute=absolute) if can_share(model) else None
    for row, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        want = alone(model, prompt, answer)
        here = logits[row, 4 : 4 + len(answer)].log_softmax(-1)
        assert here.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist() == pytest.approx(want, abs=1e-4)
        if shared is not None:
            assert shared.logps_BT[row, : len(answer)].tolist() == pytest.approx(want, abs=1e-4)


def test_models_that_need_no_positions_are_given_none() -> None:
    model, (ids, mask) = make_model("llama").eval(), padded()
    seen: list[Any] = []
    model.register_forward_pre_hook(lambda _, a, named: seen.append(named.get("position_ids")), with_kwargs=True)
    assert not needs_positions(model)
    model(input_ids=ids, attention_mask=mask)
    assert seen[-1] is None


def test_a_model_whose_state_runs_over_the_padding_is_refused() -> None:
    torch.manual_seed(0)
    model = MambaForCausalLM(
        MambaConfig(vocab_size=67, hidden_size=32, state_size=8, num_hidden_layers=2, initializer_range=0.5)
    )
    base = model.forward

    def forward(input_ids: Any = None, attention_mask: Any = None, use_cache: Any = None) -> Any:
        return base(input_ids=input_ids, use_cache=use_cache)  # a model that heeds no mask

    model.forward = forward
    with pytest.raises(SetupError, match="behind padding"):
        needs_positions(model)
