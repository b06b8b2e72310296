"""Banned tokens: gone from samples, and from every log-prob alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.ban import ban, lifted
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.logprobs import score_shared
from grpo_cli.rollout.make import make_engine, policy_engine
from grpo_cli.train.kl import Reference
from tests.builders.rollout_models import plain_logps, prompts, tiny

TOKENIZER = byte_tokenizer()
BANNED = ["e", "7", " "]


def ids(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False).input_ids)


def policy(**changes: Any) -> Policy:
    model = tiny(vocab_size=len(TOKENIZER), **changes)
    return Policy.of(model, TOKENIZER)


def renormalised(model: Any, prompt: list[int], completion: list[int], banned: list[int], t: float) -> torch.Tensor:
    """Log-probs by their definition: the model's, less the mass of what is banned."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1].double()
    probs = (logits / t).softmax(-1)
    left = 1 - probs[:, banned].sum(-1)
    return (probs.gather(-1, torch.tensor(completion)[:, None])[:, 0] / left).log()


@pytest.mark.parametrize("engine", ["graph", "transformers"])
@pytest.mark.parametrize("family", ["Llama", "Llama-untied-mha", "Qwen2", "Qwen3", "SmolLM3", "Mistral", "Granite"])
def test_samples_follow_the_distribution_without_the_banned_tokens(family: str, engine: str) -> None:
    model = tiny(family)
    banned = list(range(0, 67, 2))
    asked = [Request(p, 6) for p in prompts(3)]
    plain = tiny(family)
    ban(model, banned)
    made = make_engine(engine, model, end_ids=set(), pad_id=0)
    found = made.generate(asked, SamplingSettings(8, temperature=0.7, seed=2))
    for request, samples in zip(asked, found, strict=True):
        for sample in samples:
            assert not set(sample.token_ids) & set(banned)
            expected = renormalised(plain, request.prompt_ids, sample.token_ids, banned, 0.7)
            assert torch.tensor(sample.logps).double() == pytest.approx(expected, abs=1e-4)


def test_greedy_never_takes_a_banned_token() -> None:
    before = policy()
    prompt = ids("1+1=")
    free = policy_engine("graph", before, print).generate([Request(prompt)], SamplingSettings(6, temperature=0))
    first = free[0][0].token_ids[0]
    ban(before.model, [first])
    found = policy_engine("graph", before, print).generate([Request(prompt)], SamplingSettings(6, temperature=0))
    assert first not in found[0][0].token_ids


def test_the_training_pass_and_its_gradient_agree() -> None:
    made = policy()
    banned = [ids(text)[0] for text in BANNED]
    plain = tiny(vocab_size=len(TOKENIZER))
    ban(made.model, banned)
    prompt, completion = ids("1+1="), ids("abcd")
    row = torch.tensor([prompt + completion])
    found = score_shared(made.model, row, torch.ones_like(row), len(completion), 0.7)
    assert found.logps_BT[0].detach().double().numpy() == pytest.approx(
        renormalised(plain, prompt, completion, banned, 0.7).numpy(), abs=1e-4
    )
    assert bool(found.entropies_BT.isfinite().all())
    found.logps_BT.sum().backward()
    gradient = made.model.get_output_embeddings().weight.grad
    assert bool(gradient.isfinite().all())
    assert set(dict(made.model.named_parameters())) == set(dict(plain.named_parameters()))


def test_no_checkpoint_holds_a_ban(tmp_path: Path) -> None:
    made = policy(tie_word_embeddings=False)
    before = dict(made.model.state_dict())
    ban(made.model, [3, 4])
    assert set(made.model.state_dict()) == set(before)
    made.model.save_pretrained(tmp_path)
    again = type(made.model).from_pretrained(tmp_path)
    assert again.get_output_embeddings().bias is None
    made.model.load_state_dict(before)


def test_a_reference_is_without_them_too() -> None:
    made = policy()
    reference = Reference(made.model)
    ban(made.model, [5])
    with torch.no_grad():
        for p in made.model.parameters():
            p.add_(0.01)
        with reference.swapped_in():
            logits = made.model(input_ids=torch.tensor([[1, 2]])).logits
    assert float(logits.softmax(-1)[..., 5].max()) == 0


def test_demonstrations_may_say_what_is_banned() -> None:
    made = policy()
    prompt, answer = ids("1+1="), ids("e7")
    before = plain_logps(made.model, prompt, answer)
    ban(made.model, answer)
    with lifted(made.model):
        assert torch.equal(plain_logps(made.model, prompt, answer), before)
    assert bool((plain_logps(made.model, prompt, answer) < -1e4).all())


def test_a_model_under_an_adapter_takes_a_ban() -> None:
    from grpo_cli.policy.model import attach_lora
    from grpo_cli.recipe.sections.inputs import Lora

    model = attach_lora(tiny_llama(TOKENIZER, 0), Lora(r=2))
    made = Policy.of(model, TOKENIZER).without(["e"], can_stop=False)
    found = policy_engine("graph", made, print).generate([Request(ids("1+1="), 64)], SamplingSettings(12, seed=1))
    assert made.banned == {ids("e")[0]}
    assert not any(ids("e")[0] in sample.token_ids for sample in found[0])
    assert "bias" not in " ".join(model.state_dict())


def test_a_text_of_several_tokens_is_refused_with_its_tokens() -> None:
    with pytest.raises(RecipeError, match=r"`no` is 2 tokens .*`n`, `o`") as caught:
        policy().without(["e", "no"], can_stop=False)
    assert "sample.ban" in caught.value.render()


def test_something_must_be_left_to_end_a_sample() -> None:
    tokenizer = byte_tokenizer()
    end = tokenizer.eos_token
    made = Policy.of(tiny_llama(tokenizer, 0), tokenizer)
    with pytest.raises(RecipeError, match="every token away that ends"):
        made.without([end], can_stop=False)
    assert made.without([end], can_stop=True).banned == {tokenizer.eos_token_id}


def test_a_head_with_a_bias_or_a_cap_is_refused() -> None:
    capped = tiny()
    capped.config.final_logit_softcapping = 30.0
    with pytest.raises(SetupError, match="plain product"):
        ban(capped, [1])
    biased = tiny()
    biased.get_output_embeddings().bias = torch.nn.Parameter(torch.zeros(67))
    with pytest.raises(SetupError, match="plain product"):
        ban(biased, [1])
