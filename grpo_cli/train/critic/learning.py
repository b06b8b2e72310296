"""The critic's part of a step: after the samples are judged and before the policy learns from them.

How this works. `CriticLearning.learn` takes the critic's values of the batch, `critic_credit` makes advantages of tokens from
rewards and values (GAE, `algorithm/gae.py`), then the critic learns the returns; the policy's loss finds the advantages in the
batch. `worth_of` and `credit_of` put the results into the step's `Credit`, for the records. In the first `warmup_steps`
steps the policy is not updated. B rows of this rank, T completion tokens, P prompts, G samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.credit import Credit
from grpo_cli.algorithm.gae import Moments, adaptive_decay, advantages, explained_variance, token_rewards, whitened
from grpo_cli.algorithm.loss import Objective, loss_mask, token_kl
from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.inspection import of_other
from grpo_cli.policy.model import load_model
from grpo_cli.policy.positions import needs_positions
from grpo_cli.policy.tokens import refuse_other_tokens
from grpo_cli.recipe.sections.recipe import CriticSpec as Spec
from grpo_cli.rollout.collect import step_seed
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.credit import Method
from grpo_cli.train.critic.critic import Critic, CriticLayers, Numerics, ValueTarget
from grpo_cli.train.kl import KlTrainer, sampled_logps

if TYPE_CHECKING:
    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.train.log_probs import Batch
    from grpo_cli.train.loop import Loop
    from grpo_cli.train.step import StepBatch
    from grpo_cli.train.trl_batch import RankSamples
from grpo_cli.train.trl_config import autocast_of


@dataclass(frozen=True)
class TokenKlPenalty:
    """The KL that each token pays: (B, T) log-probs of the policy that sampled and of the reference, and its weight."""

    beta: float
    logps_BT: Tensor
    ref_BT: Tensor


@dataclass(frozen=True)
class CriticCredit:
    """Results for a batch: (B, T) whitened advantages, the critic's targets, metrics, and the moments of the returns of
    all ranks."""

    advantages_BT: Tensor
    target: ValueTarget
    metrics: dict[str, float]
    returns: Moments


@dataclass
class _Row:
    paid: list[float]
    values: list[float]
    mask: list[int]
    gains: list[float]
    returns: list[float]


def critic_credit(
    spec: Spec,
    completions: Sequence[Completion],
    rewards: Sequence[float],
    values_BT1: Tensor,
    mask_BT: Tensor,
    pull: TokenKlPenalty | None,
    gathered: Callable[[Sequence[Moments]], list[Moments]],
) -> CriticCredit:
    """Advantages and returns of this rank's rows, whitened over the tokens of all ranks.

    Args:
        spec: lambda, gamma.
        completions: the rows, which may be episodes of several turns.
        rewards: one a row; nothing is learned from a row with NaN (no verdict).
        values_BT1: (B, T + 1) as `Critic.values` gives them.
        mask_BT: 1 on the tokens that the model generated and that count.
        pull: the KL penalty, if there is one.
        gathered: turns this rank's moments into those of all ranks, in the same order on each.
    """
    device, known = mask_BT.device, torch.tensor([not math.isnan(r) for r in rewards], device=mask_BT.device)
    # a sample without a verdict gets no advantage, and the critic does not learn from it
    counted_BT = mask_BT * known[:, None].to(mask_BT)
    masks, kept = counted_BT.tolist(), values_BT1.tolist()
    logps, ref = ([], []) if pull is None else (pull.logps_BT.tolist(), pull.ref_BT.tolist())
    rows = [
        _row(
            spec,
            completion,
            reward,
            kept[i],
            [int(m) for m in masks[i]],
            (pull.beta, logps[i], ref[i]) if pull is not None else (0.0, [], []),
        )
        for i, (completion, reward) in enumerate(zip(completions, rewards, strict=True))
    ]
    # tokens that do not count are in none of the moments
    gains, returns, guesses = (
        [x for row in rows for x, m in zip(getattr(row, name), row.mask, strict=True) if m]
        for name in ("gains", "returns", "values")
    )
    errors = [r - v for r, v in zip(returns, guesses, strict=True)]
    # one exchange between ranks for all four; they come back four a rank, one rank after the other
    every = gathered([Moments.of(part) for part in (gains, returns, guesses, errors)])
    whole, whole_returns, whole_guesses, whole_errors = (Moments.joined(every[k::4]) for k in range(4))
    shown = {
        "adv/mean": whole.mean,
        "adv/std": whole.std,
        "value/mean": whole_guesses.mean,
        "return/mean": whole_returns.mean,
    }
    explained = explained_variance(whole_returns, whole_errors)
    shown |= {} if explained is None else {"critic/explained_variance": explained}
    # over the tokens of all ranks, as usual in PPO: scaled by rank, advantages would have different units
    white = [whitened(row.gains, row.mask, whole) for row in rows]
    target = ValueTarget(
        torch.tensor([row.returns for row in rows], dtype=torch.float64, device=device),
        values_BT1[:, :-1].double(),
        counted_BT,
    )
    return CriticCredit(torch.tensor(white, dtype=torch.float32, device=device), target, shown, whole_returns)


def _row(
    spec: Spec,
    completion: Completion,
    reward: float,
    values: Sequence[float],
    mask: list[int],
    kl: tuple[float, list[float], list[float]],
) -> _Row:
    # each list has an entry for every completion token, including the environment's
    beta, logps, ref = kl
    turns = completion.episode.turns if completion.episode is not None else ()
    steps = [(turn.end, turn.reward) for turn in turns]
    # bootstrap with the value instead of the outcome, never with both: the values would diverge
    goes_on = spec.cut == "value" and completion.finish == "length"
    # a truncated episode keeps its step rewards; the value after its last token replaces the final reward
    outcome = 0.0 if math.isnan(reward) else sum(r for _, r in steps) if goes_on else reward
    paid = token_rewards(outcome, mask, beta=beta, logps=logps, ref=ref, steps=steps)
    after = values[len(completion.token_ids)] if goes_on else 0.0
    own, tokens = list(values[:-1]), sum(mask)
    is_adaptive = spec.decay == "adaptive"
    decay = adaptive_decay(tokens) if isinstance(spec.decay, str) else spec.decay
    gains = advantages(paid, own, mask, gamma=spec.gamma, decay=decay, after=after)
    # VAPO: the critic learns returns with lambda 1, which do not contain its own errors
    ahead = advantages(paid, own, mask, gamma=spec.gamma, decay=1.0, after=after) if is_adaptive else gains
    returns = [a + v if m else 0.0 for a, v, m in zip(ahead, own, mask, strict=True)]
    return _Row(paid, own, mask, gains, returns)


@dataclass(frozen=True)
class SampleWorth:
    """One sample's numbers for the records: its mean advantage, the sum of |advantage| over its tokens, the advantages
    of its tokens if it has turns, and the value before each turn."""

    advantage: float
    pull: float
    of_tokens: list[float]
    values: list[float]


def worth_of(
    completions: Sequence[Completion], advantages_BT: Tensor, values_BT1: Tensor, mask_BT: Tensor
) -> list[SampleWorth]:
    """The worth of this rank's samples, from (B, T) advantages, which are 0 where `mask_BT` is 0, and (B, T + 1)
    values."""
    means = (advantages_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)).tolist()
    pulls = advantages_BT.abs().sum(dim=1).tolist()
    found = []
    for at, completion in enumerate(completions):
        turns = completion.episode.turns if completion.episode is not None else ()
        # the value before a turn judges the complete state without that turn
        starts = [turn.start for turn in turns] or [0]
        tokens = advantages_BT[at, : len(completion.token_ids)].tolist() if turns else []
        found.append(SampleWorth(means[at], pulls[at], tokens, values_BT1[at, starts].tolist()))
    return found


def credit_of(before: Credit, worth: Sequence[SampleWorth]) -> Credit:
    """The credit of a whole batch with the critic's results, gathered from all ranks."""
    # `worth` is in the order of the batch, so it can be split into groups again
    P, G = before.A_PG.shape
    rows, pull = (torch.tensor(x).view(P, G) for x in zip(*((w.advantage, w.pull) for w in worth), strict=True))
    width, A_PGT = max(len(one.of_tokens) for one in worth), None
    if width:
        padded = [one.of_tokens + [0.0] * (width - len(one.of_tokens)) for one in worth]
        A_PGT = torch.tensor(padded).view(P, G, width)
    values = [[one.values for one in worth[g * G : (g + 1) * G]] for g in range(P)]
    return replace(before, A_PG=rows, A_PGT=A_PGT, values=values, pull_PG=pull)


FOLDER = "critic"
"""In a checkpoint."""


WARMUP = 20
"""Default number of warm-up steps, for runs of at least ten times as many steps."""


class CriticTrainer(KlTrainer, Protocol):
    """The members of the trainer that this module uses in addition to those of `KlTrainer`."""

    takes_logps: bool


class CriticLearning:
    """A run's critic, and what it does in each step."""

    def __init__(self, critic: Critic, loop: Loop, objective: Objective) -> None:
        self.critic, self.loop, self.objective = critic, loop, objective

    @classmethod
    def of(
        cls,
        loop: Loop,
        objective: Objective,
        model: nn.Module,
        whole: nn.Module,
        tokenizer: Tokenizer,
        accelerator: Accelerator,
        args: GRPOConfig,
        *,
        absolute: bool,
    ) -> CriticLearning | None:
        """The critic of the recipe; None if it has none. Call it while the policy's weights are not sharded; `whole`
        scores later, when they are.

        Raises:
            SetupError: the model that it is to start from cannot be loaded, or reads other tokens than the policy.
        """
        train = loop.recipe.train
        if train.critic is None:
            return None

        def summed(value: Tensor) -> Tensor:
            return accelerator.reduce(value, "sum") if accelerator.num_processes > 1 else value

        numbers = Numerics(autocast_of(args), args.per_device_train_batch_size, summed)
        layers, like = _layers(loop, train.critic, model, whole, tokenizer, absolute)
        critic = Critic(layers, like, train.critic, train.critic.lr or 10 * train.lr, numbers)
        return cls(critic, loop, objective)

    @property
    def warms(self) -> bool:
        """Whether the current step leaves the policy unchanged."""
        # by default at most a tenth of the run: otherwise a short run would consist of warm-up only
        asked, steps = self.critic.spec.warmup_steps, self.loop.recipe.train.steps
        return self.loop.steps_done < (min(WARMUP, steps // 10) if asked is None else asked)

    def learn(
        self, trainer: CriticTrainer, before: StepBatch, out: Batch, samples: RankSamples
    ) -> tuple[StepBatch, Tensor]:
        """The step with the critic's credit for its samples, and (B, T) advantages of this rank's tokens.

        Raises:
            TrainingError: the critic's gradient is not finite.
        """
        ranks, places = self.loop.ranks, samples.places
        assert isinstance(self.loop.method, Method)
        rewards = [r for group in self.loop.method.by_turn(before.groups) for r in group.rewards]
        own, mask_BT = [rewards[place] for place in places], loss_mask(out)

        with self.loop.clock.phase("critic"):
            # compute the values first: policy and critic both learn from the critic before its update
            values = self.critic.values(out)
            pull, beta = None, self.objective.token_beta
            if beta:
                logps = sampled_logps(trainer, out, samples.completions, are_exact=trainer.takes_logps)
                ref = out["ref_per_token_logps"]
                trainer._metrics["train"]["kl"].append(token_kl(logps, ref, mask_BT, trainer.accelerator))
                pull = TokenKlPenalty(beta, logps, ref)
            found = critic_credit(self.critic.spec, samples.completions, own, values, mask_BT, pull, ranks.gathered)
            self.critic.follow(found.returns)
            # the seed depends on the step, so that a resumed run splits its rows in the same way
            seed = step_seed(self.loop.recipe.train.seed, before.step + 1)
            learned = self.critic.fit(out, found.target, places, len(rewards), seed)
        if self.objective.imitates:
            # (B, T) weights with which the token mean of the whole batch is one over the tokens of right answers:
            # weight_t = n / n_right on these, since the mean is over all n tokens
            right = [j.is_right for group in before.groups for j in group.judgements]
            right_B = torch.tensor([right[place] for place in places], device=mask_BT.device)
            right_BT: Tensor = mask_BT * right_B[:, None].to(mask_BT)
            every, good = self.critic.numbers.summed(torch.stack([mask_BT.sum(), right_BT.sum()]).float()).tolist()
            out["imitation"] = right_BT.float() * (every / max(good, 1.0))
        gathered = ranks.gathered(worth_of(samples.completions, found.advantages_BT, values, mask_BT))
        worth = [gathered[at] for at in samples.back]
        shown = {**found.metrics, **learned, "critic/mib": self.critic.mib}
        shown["critic/warmup"] = float(self.warms)
        before = replace(before, credit=credit_of(before.credit, worth), measured={**before.measured, **shown})
        return before, found.advantages_BT

    def save(self, checkpoint: Path) -> None:
        """Into a checkpoint that is being written."""
        self.critic.save(checkpoint / FOLDER)

    def load(self, checkpoint: Path) -> None:
        """Back from a checkpoint."""
        self.critic.load(checkpoint / FOLDER)


def _layers(
    loop: Loop, spec: Spec, model: nn.Module, whole: nn.Module, tokenizer: Tokenizer, absolute: bool
) -> tuple[CriticLayers, nn.Module]:
    """The critic's network, and the model whose sizes it has."""
    if spec.share:
        return CriticLayers.policy(whole, absolute=absolute), whole
    named = spec.model(loop.recipe.model)
    if named is None:
        if hasattr(model, "peft_config"):
            return CriticLayers.adapter(whole, absolute=absolute), model
        return CriticLayers.copied(model, absolute=absolute), model
    device, said = next(model.parameters()).device, f"`train.critic.from: {spec.source}`"
    try:
        loaded = load_model(named, device=device, seed=loop.recipe.train.seed)
    except SetupError as err:
        raise of_other("train.critic.from", spec.source, err) from err
    known = int(model.config.get_text_config().vocab_size)  # type: ignore[operator, union-attr]
    refuse_other_tokens(said, tokenizer.get_vocab(), loaded.tokenizer.get_vocab(), known, loaded.vocabulary)
    return CriticLayers.copied(loaded.model, absolute=needs_positions(loaded.model)), loaded.model
