"""One batch of a real PPO run beside the formulas of verl and OpenRLHF, token by token in float64.

Values, advantages, both losses and both gradients. OpenRLHF divides the variance of the advantages by n where verl and we
divide by n - 1: its advantages are ours times a constant. (Where an environment spoke, it also takes the value there for 0,
where verl and we step over it: `library_gae`.) verl's second bound on ratios above 3 is not reached here.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from grpo_cli.errors import SetupError
from grpo_cli.policy.model import byte_tokenizer, load_model
from grpo_cli.policy.tokens import refuse_other_tokens
from grpo_cli.recipe.sections.recipe import Model
from tests.reference.case import Case
from tests.reference.compare import apart, named, of_rows
from tests.reference.critic import Unit, Values, library_gae, value_loss, whitened
from tests.reference.drive import Seen, recipe_of, run_here, write_world
from tests.reference.families import write_checkpoint
from tests.reference.formulas import Answer, token_losses
from tests.reference.policy import Plain

NEAR = 1e-6


def after_the_first(seen: Seen, case: Case) -> Unit:
    """The unit of a critic that has learned from one batch, in which it said 0 and the policy was the reference."""
    unit, said = Unit(), seen.said[0]
    logps = Plain(seen.config).take(seen.updates[0].weights).logps(said)
    rewards = [math.nan if r["reward"] is None else float(r["reward"]) for r in seen.records[0]]
    nothing = [[0.0] * (len(one.answer) + 1) for one in said]
    unit.take(of_rows(said, nothing, logps, logps, rewards, case)[1])
    return unit


@pytest.mark.parametrize(("library", "decay"), [("verl", 0.95), ("openrlhf", 0.95), ("openrlhf", 1.0)])
def test_a_batch_is_what_the_libraries_make_of_it(tmp_path: Path, library: str, decay: float) -> None:
    write_world(tmp_path)
    train: dict[str, Any] = {
        "algorithm": "ppo",
        "inner_epochs": 2,  # in the second the ratios are not 1
        "mini_batches": 1,
        "kl": {"beta": 0.1, "estimator": "k1_token"},
        "critic": {"mini_batches": 1, "epochs": 2, "clip": 0.05, "lr": 0.01, "lambda": decay},
    }
    path = str(write_checkpoint("llama", tmp_path))
    recipe = recipe_of(tmp_path, "ppo", {"train": train, "model": {"path": path}})
    seen, case = run_here(recipe, tmp_path), Case.of(recipe)
    batch = 1  # the policy has left the reference, and the critic says something
    said, run, records = seen.said[batch], seen.valued[batch], seen.records[batch]
    critic, policy = Values(seen.config), Plain(seen.config)
    steps = [update for update in seen.updates if update.batch == batch]
    unit = after_the_first(seen, case)
    with torch.no_grad():
        values = unit.values([critic.take(run.weights).of(one).tolist() for one in said])
    for row, got in zip(values, run.values, strict=True):
        assert got == pytest.approx(row, abs=NEAR)
    assert max(abs(v) for row in values for v in row) > 0.01

    old = policy.take(steps[0].weights).logps(said)
    ref = policy.take(seen.updates[0].weights).logps(said)
    rewards = [math.nan if r["reward"] is None else float(r["reward"]) for r in records]
    gains = []
    for reward, own, now, then in zip(rewards, values, old, ref, strict=True):
        pays = [-0.1 * (a - b) for a, b in zip(now, then, strict=True)]
        pays[-1] += reward
        width = 12  # columns of padding behind the row, as the libraries have them
        mask = [1] * len(pays) + [0] * (width - len(pays))
        rest = [0.0] * (width - len(pays))
        found = library_gae([*pays, *rest], [*own[:-1], *rest], mask, library, 1.0, decay)
        gains.append([] if math.isnan(reward) else found[: len(pays)])
    white = iter(whitened([row for row in gains if row], library))
    tokens = sum(len(row) for row in gains)
    advantages = [next(white) if row else [0.0] * len(one.own) for row, one in zip(gains, said, strict=True)]
    scale = math.sqrt(tokens / (tokens - 1)) if library == "openrlhf" else 1.0
    for place, row in enumerate(advantages):
        # float32 log-probs of the KL, divided by a deviation below 1
        assert [scale * a for a in run.advantages[place]] == pytest.approx(row, abs=4 * NEAR)

    returns = [[a + v for a, v in zip(row, own, strict=False)] for row, own in zip(gains, values, strict=True)]
    assert len(run.updates) == 2
    # the libraries' loss, of values in place of deviations, differs by the unit alone
    unit.take(returns)
    then, wanted = unit.of(values), unit.of(returns)
    for update in run.updates:
        loss = value_loss(critic.take(update.weights), said, range(len(said)), then, wanted, 0.05)
        assert loss is not None
        assert apart(named(update.gradients), named(critic.gradient(loss))) < 2 * NEAR

    shown = []
    for step in steps:
        policy.take(step.weights)
        answers = [
            Answer(list(policy.tokens(one)[0]), o, r, [a / scale for a in row])
            for one, o, r, row in zip(said, old, ref, advantages, strict=True)
        ]
        terms = [term for answer in answers for term in token_losses(answer, case.method)]
        loss = torch.stack(terms).mean()
        assert apart(step.gradients, policy.gradient(loss)) < 2 * NEAR
        shown.append(float(loss.detach()))
    assert seen.metrics[batch]["loss"] == pytest.approx(sum(shown) / 2, abs=NEAR)
    assert of_rows(said, values, old, ref, rewards, case)[1] == [pytest.approx(row) for row in returns]


def test_a_critic_from_elsewhere_reads_with_its_own_layers(tmp_path: Path) -> None:
    write_world(tmp_path)
    policy, other = (str(write_checkpoint(family, tmp_path)) for family in ("llama", "gpt2"))
    train = {"algorithm": "ppo", "critic": {"from": other, "lr": 0.01}}
    recipe = recipe_of(tmp_path, "other", {"train": train, "model": {"path": policy}})
    seen = run_here(recipe, tmp_path)
    critic = Values(AutoConfig.from_pretrained(other))
    assert not any(v for row in seen.valued[0].values for v in row)  # its head is new
    unit = after_the_first(seen, Case.of(recipe))
    with torch.no_grad():
        for one, got in zip(seen.said[1], seen.valued[1].values, strict=True):
            (want,) = unit.values([critic.take(seen.valued[1].weights).of(one).tolist()])
            assert got == pytest.approx(want, abs=NEAR) and any(want)


def test_a_critic_that_reads_other_tokens_than_the_policy_writes_is_refused(tmp_path: Path) -> None:
    policy = load_model(Model(path=str(write_checkpoint("llama", tmp_path))), device=torch.device("cpu"), seed=0)
    own, there = byte_tokenizer(), policy.tokenizer.get_vocab()
    refuse_other_tokens("it", own.get_vocab(), there, policy.vocabulary, policy.vocabulary)
    with pytest.raises(SetupError, match=r"^it knows 266 tokens, the policy 300$"):
        refuse_other_tokens("it", own.get_vocab(), there, 300, policy.vocabulary)
    own.add_tokens(["<|new|>"])
    with pytest.raises(SetupError, match=r"1 of 267 tokens, such as `<\|new\|>`, have another number there") as told:
        refuse_other_tokens("it", own.get_vocab(), there, policy.vocabulary, policy.vocabulary)
    assert told.value.hint == "name a model with the policy's own tokenizer"
