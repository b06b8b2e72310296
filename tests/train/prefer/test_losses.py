"""Each loss on four pairs: our trainer, TRL's own on texts, and the formula in plain Python say the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import nn
from trl import DPOTrainer, KTOTrainer
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import Lora, Model, Prefer, Preference, Train
from grpo_cli.train.prefer.learn import Update, make_pair_trainer, trl_config
from grpo_cli.train.prefer.pairs import Example, LabelledExample, PairExample
from grpo_cli.train.prefer.trainers import UpdateLog
from grpo_cli.train.updates import NonFinite

PAIRS = [("2+3=", " 5", " 4"), ("17+5=", "22.", "21"), ("9-1=", "8", "the 7"), ("1+1=", " it is 2", "3")]
LABELS = [True, False, False, True]
LOSSES: list[Preference] = ["dpo", "ipo", "irpo", "kto", "orpo", "simpo"]
TRAIN = Train(steps=1, lr=1e-3)


def fresh(lora: bool = False) -> Policy:
    spec = Model(path="builtin:tiny", lora=Lora(r=4) if lora else None)
    return load_model(spec, device=torch.device("cpu"), seed=5)


def ids(policy: Policy, text: str, end: bool = True) -> list[int]:
    found = list(policy.tokenizer(text, add_special_tokens=False).input_ids)
    return [*found, int(policy.tokenizer.eos_token_id or 0)] if end else found


def examples(policy: Policy, loss: str) -> list[Example]:
    rows = [(ids(policy, p, end=False), ids(policy, c), ids(policy, r)) for p, c, r in PAIRS]
    if loss != "kto":
        return [PairExample(i, *row) for i, row in enumerate(rows)]
    return [LabelledExample(i, p, c if LABELS[i] else r, LABELS[i]) for i, (p, c, r) in enumerate(rows)]


def moved(policy: Policy) -> dict[str, torch.Tensor]:
    """The policy a step away from its reference, which it returns."""
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in policy.model.parameters():
            if p.requires_grad:
                p += 0.02 * torch.randn(p.shape, generator=draw)
    return before


@torch.no_grad()
def logps(model: nn.Module, prompt: list[int], answer: list[int]) -> list[float]:
    """Log-probs of all tokens but the first, in float64 from the logits."""
    whole = torch.tensor([prompt + answer])
    table = torch.log_softmax(model(input_ids=whole).logits.double(), dim=-1)[0]
    return [float(table[i - 1, token]) for i, token in enumerate(whole[0].tolist()) if i]


def formula(loss: str, policy: Policy, before: dict[str, torch.Tensor], beta: float, gamma: float = 0.5) -> float:
    """By the papers' definitions; NLL of IRPO and ORPO are means over all tokens of the batch, as TRL has them."""
    model = policy.model
    own = {name: p.detach().clone() for name, p in model.named_parameters()}

    def of(weights: dict[str, torch.Tensor], prompt: list[int], answer: list[int]) -> list[float]:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
            found = logps(model, prompt, answer)
            for name, p in model.named_parameters():
                p.copy_(own[name])
        return found

    def answer_of(weights: dict[str, torch.Tensor], prompt: list[int], answer: list[int]) -> list[float]:
        return of(weights, prompt, answer)[len(prompt) - 1 :]

    def soft(x: float) -> float:
        return -math.log1p(math.exp(-x))

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    def odds(m: float) -> float:
        return m - math.log1p(-math.exp(m))

    given: list[Any] = examples(policy, loss)
    if loss == "kto":
        shifted = [
            sum(answer_of(own, one.prompt_ids, given[i - 1].completion_ids))
            - sum(answer_of(before, one.prompt_ids, given[i - 1].completion_ids))
            for i, one in enumerate(given)
        ]
        z = max(0.0, sum(shifted) / len(shifted))
        parts = []
        for one in given:
            delta = sum(answer_of(own, one.prompt_ids, one.completion_ids)) - sum(
                answer_of(before, one.prompt_ids, one.completion_ids)
            )
            parts.append(1 - sigmoid(beta * (delta - z) if one.label else beta * (z - delta)))
        return sum(parts) / len(parts)
    parts, winners, whole = [], [], []
    for one in given:
        w, v = (answer_of(own, one.prompt_ids, one.chosen_ids), answer_of(own, one.prompt_ids, one.rejected_ids))
        winners += w
        whole += of(own, one.prompt_ids, one.chosen_ids)
        d_w = sum(w) - sum(answer_of(before, one.prompt_ids, one.chosen_ids))
        d_l = sum(v) - sum(answer_of(before, one.prompt_ids, one.rejected_ids))
        m_w, m_l = sum(w) / len(w), sum(v) / len(v)
        parts.append(
            {
                "dpo": -soft(beta * (d_w - d_l)),
                "irpo": -soft(beta * (d_w - d_l)),
                "ipo": (d_w / len(w) - d_l / len(v) - 1 / (2 * beta)) ** 2,
                "orpo": -beta * soft(odds(m_w) - odds(m_l)),
                "simpo": -soft(beta * (m_w - m_l) - gamma),
            }[loss]
        )
    nll = {"irpo": winners, "orpo": whole}.get(loss)
    return sum(parts) / len(parts) - (sum(nll) / len(nll) if nll else 0.0)


def ours(loss: Preference, policy: Policy, before: dict[str, torch.Tensor], folder: Path) -> float:
    """The loss of the first update of our trainer, whose reference is `before`."""
    own = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    config = trl_config(Prefer(loss=loss), TRAIN, folder, Update(4, 1, 1), on_cpu=True, autocast=None, counts=(2, 2))
    with torch.no_grad():
        for name, p in policy.model.named_parameters():
            p.copy_(before[name])
    heard = UpdateLog(lambda done, total: None)
    trainer = make_pair_trainer(loss, policy.model, config, examples(policy, loss), policy.tokenizer, heard)
    with torch.no_grad():
        for name, p in policy.model.named_parameters():
            p.copy_(own[name])
    trainer.guard, trainer.at = NonFinite(True, print), 1
    trainer.train()
    return heard.updates[0]["loss"]


def plain_trl(loss: Preference, policy: Policy, reference: nn.Module, folder: Path) -> float:
    """TRL alone, from texts and with a reference model of its own."""
    config: Any = trl_config(
        Prefer(loss=loss), TRAIN, folder, Update(4, 1, 1), on_cpu=True, autocast=None, counts=(2, 2)
    )
    kind: Any = {"kto": KTOTrainer, "orpo": ORPOTrainer, "simpo": CPOTrainer}.get(loss, DPOTrainer)
    if loss == "kto":
        rows = [
            {"prompt": p, "completion": c if label else r, "label": label}
            for (p, c, r), label in zip(PAIRS, LABELS, strict=True)
        ]
    else:
        rows = [{"prompt": p, "chosen": c, "rejected": r} for p, c, r in PAIRS]
    more = {} if loss in ("orpo", "simpo") else {"ref_model": reference}
    config.precompute_ref_log_probs = False
    heard = UpdateLog(lambda done, total: None)
    trainer = kind(
        model=policy.model, args=config, train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer, callbacks=[heard], **more,
    )  # fmt: skip
    trainer.train()
    return heard.updates[0]["loss"]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_the_formula_and_that_of_trl_alone(loss: Preference, tmp_path: Path) -> None:
    policy = fresh()
    before = moved(policy)
    said = formula(loss, policy, before, beta={"simpo": 2.0}.get(loss, 0.1))
    assert ours(loss, policy, before, tmp_path / "ours") == pytest.approx(said, abs=1e-5)
    policy = fresh()
    moved(policy)
    assert plain_trl(loss, policy, fresh().model, tmp_path / "trl") == pytest.approx(said, abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_with_adapters_the_reference_is_the_model_with_them_off(loss: Preference, tmp_path: Path) -> None:
    policy = fresh(lora=True)
    before = moved(policy)
    names = set(policy.model.state_dict())
    with policy.model.disable_adapter():  # type: ignore[operator]
        off = [logps(policy.model, e, ids(policy, c)) for e, c in ((ids(policy, p, False), c) for p, c, _ in PAIRS)]
    said = formula(loss, policy, before, beta={"simpo": 2.0}.get(loss, 0.1))
    assert ours(loss, policy, before, tmp_path) == pytest.approx(said, abs=1e-5)
    assert set(policy.model.state_dict()) == names  # TRL's copy of the adapter is gone
    assert list(policy.model.peft_config) == ["default"]  # type: ignore[arg-type]
    trained = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    assert trained and all("lora" in name for name in trained)
    with policy.model.disable_adapter():  # type: ignore[operator]
        again = [logps(policy.model, e, ids(policy, c)) for e, c in ((ids(policy, p, False), c) for p, c, _ in PAIRS)]
    assert again == off  # and the base was not touched
