"""The critic's part of a step: after the samples are judged and before the policy learns from them.

Values of the batch first, then advantages of tokens from them, then the critic's own updates; the policy's loss finds the
advantages in the batch. In the first `warmup_steps` steps the policy is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.kl import token_kl
from grpo_cli.algorithm.loss import Objective
from grpo_cli.algorithm.spread import loss_mask
from grpo_cli.errors import SetupError
from grpo_cli.policy.model import load_model
from grpo_cli.policy.positions import needs_positions
from grpo_cli.policy.tokens import refuse_other_tokens
from grpo_cli.rollout.collect import step_seed
from grpo_cli.train.credit.method import Method
from grpo_cli.train.critic.backbone import AdapterBackbone, CriticBackbone, LayersBackbone, PolicyBackbone
from grpo_cli.train.critic.credit import TokenKlPenalty, credit_of, critic_credit, worth_of
from grpo_cli.train.critic.critic import Critic, Numerics
from grpo_cli.train.kl_penalty import KlTrainer, sampled_logps

if TYPE_CHECKING:
    from grpo_cli.algorithm.gae import Moments
    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.recipe.sections.recipe import CriticSpec as Spec
    from grpo_cli.rollout.engine import Completion
    from grpo_cli.train.loop import Loop
    from grpo_cli.train.step import StepBatch
    from grpo_cli.train.trl_hooks import Batch, RankSamples

FOLDER = "critic"
"""In a checkpoint."""


WARMUP = 20
"""Steps of warm-up where the recipe leaves them open, and the run is ten times as long."""


class CriticTrainer(KlTrainer, Protocol):
    """What this needs of the trainer beside what the KL does."""

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
        """The critic that the recipe asks for, beside a policy whose weights are whole still; `whole` is what scores while
        they are not. None where it asks for none.

        Raises:
            SetupError: the model that it is to start from cannot be loaded, or reads other tokens than the policy.
        """
        train = loop.recipe.train
        if train.critic is None:
            return None
        autocast = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None

        def summed(value: Tensor) -> Tensor:
            return accelerator.reduce(value, "sum") if accelerator.num_processes > 1 else value

        numbers = Numerics(autocast, args.per_device_train_batch_size, summed)
        layers, like = _layers(loop, train.critic, model, whole, tokenizer, absolute)
        critic = Critic(layers, like, train.critic, train.critic.lr or 10 * train.lr, numbers)
        return cls(critic, loop, objective)

    @property
    def warms(self) -> bool:
        """Whether the policy is left as it is in the step that is under way."""
        asked, steps = self.critic.spec.warmup_steps, self.loop.recipe.train.steps
        return self.loop.steps_done < (min(WARMUP, steps // 10) if asked is None else asked)

    def learn(
        self, trainer: CriticTrainer, before: StepBatch, out: Batch, samples: RankSamples
    ) -> tuple[StepBatch, Tensor]:
        """The step with what its samples are worth by the critic, and (B, T) advantages of this rank's tokens.

        Raises:
            TrainingError: the critic's gradient is not finite.
        """
        ranks, places = self.loop.ranks, samples.places
        assert isinstance(self.loop.method, Method)
        rewards = [r for group in self.loop.method.by_turn(before.groups) for r in group.rewards]
        own, mask_BT = rewards[places.start : places.stop], loss_mask(out)

        def gathered(parts: Sequence[Moments]) -> list[Moments]:
            return ranks.gathered(parts)

        with self.loop.clock.phase("critic"):
            # values first: all that is learned of this batch is learned from the critic as it was
            values = self.critic.values(out)
            pull = self._pull(trainer, out, samples.completions, mask_BT)
            found = critic_credit(self.critic.spec, samples.completions, own, values, mask_BT, pull, gathered)
            self.critic.follow(found.returns)
            # of the step: a run that is resumed deals its rows out alike
            seed = step_seed(self.loop.recipe.train.seed, before.step + 1)
            learned = self.critic.fit(out, found.target, places, len(rewards), seed)
        if self.objective.imitates:
            out["imitation"] = self._imitation(before, places, mask_BT)
        worth = ranks.gathered(worth_of(samples.completions, found.advantages_BT, values, mask_BT))
        shown = {**found.metrics, **learned, "critic/mib": self.critic.mib}
        shown["critic/warmup"] = float(self.warms)
        before = replace(
            before,
            credit=credit_of(before.credit, worth),
            measured={**before.measured, **shown},
        )
        return before, found.advantages_BT

    def _pull(
        self, trainer: CriticTrainer, out: Batch, sampled: list[Completion], mask_BT: Tensor
    ) -> TokenKlPenalty | None:
        beta = self.objective.token_beta
        if not beta:
            return None
        logps, ref = (
            sampled_logps(trainer, out, sampled, are_exact=trainer.takes_logps),
            out["ref_per_token_logps"],
        )
        trainer._metrics["train"]["kl"].append(token_kl(logps, ref, mask_BT, trainer.accelerator))
        return TokenKlPenalty(beta, logps, ref)

    def _imitation(self, before: StepBatch, places: range, mask_BT: Tensor) -> Tensor:
        """(B, T) weights with which the token mean of the whole batch is one over the tokens of right answers."""
        right = [j.is_right for group in before.groups for j in group.judgements][places.start : places.stop]
        right_BT: Tensor = mask_BT * torch.tensor(right, device=mask_BT.device)[:, None].to(mask_BT)
        every, good = self.critic.numbers.summed(
            torch.stack([mask_BT.sum(), right_BT.sum()]).float()
        ).tolist()
        weights_BT: Tensor = right_BT.float() * (every / max(good, 1.0))
        return weights_BT

    def save(self, checkpoint: Path) -> None:
        """Into a checkpoint that is being written."""
        self.critic.save(checkpoint / FOLDER)

    def load(self, checkpoint: Path) -> None:
        """Back from a checkpoint."""
        self.critic.load(checkpoint / FOLDER)


def _layers(
    loop: Loop, spec: Spec, model: nn.Module, whole: nn.Module, tokenizer: Tokenizer, absolute: bool
) -> tuple[CriticBackbone, nn.Module]:
    """What the critic reads with, and the model whose sizes it has."""
    if spec.share:
        return PolicyBackbone(whole, absolute=absolute), whole
    named = spec.model(loop.recipe.model)
    if named is None:
        layers = AdapterBackbone(whole, absolute=absolute) if hasattr(model, "peft_config") else None
        return layers or LayersBackbone.copied(model, absolute=absolute), model
    device, said = next(model.parameters()).device, f"`train.critic.from: {spec.source}`"
    try:
        loaded = load_model(named, device=device, seed=loop.recipe.train.seed)
    except SetupError as err:
        raise SetupError(f"{said}: {err}", hint=err.hint) from err
    known = int(model.config.get_text_config().vocab_size)  # type: ignore[operator, union-attr]
    refuse_other_tokens(said, tokenizer.get_vocab(), loaded.tokenizer.get_vocab(), known, loaded.vocabulary)
    return LayersBackbone.copied(loaded.model, absolute=needs_positions(loaded.model)), loaded.model
