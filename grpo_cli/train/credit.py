"""Gives credit to judged groups: turns groups into the tensors that `algorithm/credit.py` works on.

How this works. `Method.credit` takes the groups of a step, all of one size, and returns their `Credit`:

1. `paid` puts the rewards into a (P, G) tensor and gates them: a group with equal outcomes is paid only the outcomes.
2. `credit` of `algorithm/credit.py` makes one advantage a sample.
3. With `train.credit`, `turn_parts` compares the turns of episodes of the same row (`algorithm/turn_credit.py`), and
   `token_credit` puts the result on the tokens of those turns.
4. `shaping_metrics` measures how much of the batch is learned from rewards other than the outcome.

An episode is compared only with the other episodes of its row. Rewards that do not belong to a step (a final score, a
verifier, shaping) are paid at the last turn, so that the turns add up to the episode's reward. Under a placebo the
steps are paid nothing. P prompts, G samples, K parts of a reward, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor

from grpo_cli.algorithm.advantage import gate, inverted, token_baseline, told_apart
from grpo_cli.algorithm.credit import Credit, TokenCredit, credit
from grpo_cli.algorithm.loss import Span, spread
from grpo_cli.algorithm.turn_credit import Steps, cut_values, cut_weights, gains, gigpo, milestones, reached, subgoals
from grpo_cli.errors import TrainingError
from grpo_cli.recipe.sections.recipe import Recipe, Train, TurnCredit
from grpo_cli.reward.group import Group
from grpo_cli.reward.hints import Hints
from grpo_cli.rollout.engine import Completion, Turn
from grpo_cli.rollout.scoring import DraftScorer
from grpo_verifiers.verdict import Outcome


@dataclass(frozen=True)
class Paid:
    """A batch behind the gate.

    `rewards_PG` (P, G) float64 are the rewards to learn from, NaN without a verdict. `alive_P` (P,) bool is True for
    groups whose outcomes differ; `gated_P` (P,) bool is True for groups whose outcomes are equal, which are paid only
    the outcome.
    """

    rewards_PG: Tensor
    alive_P: Tensor
    gated_P: Tensor


def paid(train: Train, groups: Sequence[Group]) -> Paid:
    """The rewards of these groups, all of one size, by a recipe's `train` section.

    The gate applies to the samples that are compared with each other: each group, or with a critic the whole batch. A
    group whose rewards cannot be separated into outcome and shaping has no gate.
    """
    # float64 until the loss: here it is decided whether the advantages of a group are exactly 0
    rewards_PG = _tensor([group.rewards for group in groups])
    P, G = rewards_PG.shape
    shape = (1, P * G) if train.baseline == "critic" else (P, G)
    compared = _outcomes(groups).reshape(shape), rewards_PG.reshape(shape)
    behind, alive = gate(*compared, ddof=train.std_ddof, floor=train.floor)
    alive_P = alive.expand(P)
    # `alive_by: reward` has no gate: any difference in reward makes a group alive
    has_gate_P = torch.tensor([bool(group.outcomes) and train.alive_by != "reward" for group in groups])
    rewards_PG = torch.where(has_gate_P[:, None], behind.reshape(P, G), rewards_PG)
    return Paid(rewards_PG, alive_P, has_gate_P & ~alive_P)


def shaping_metrics(train: Train, groups: Sequence[Group], alive_P: Tensor, A_PG: Tensor) -> dict[str, float]:
    """Metrics of rewards other than the outcome; `A_PG` (P, G) are the samples' advantages, `alive_P` is as in `Paid`.

    Empty with a critic, which has no groups, and if rewards cannot be separated into outcome and shaping.
    """
    if train.baseline == "critic" or not all(group.outcomes for group in groups):
        return {}
    # |advantage| times tokens: what a group adds to a loss that averages over tokens
    tokens_PG = _tensor([[c.sampled_tokens for c in group.completions] for group in groups])
    pull_P = (A_PG.abs().double() * tokens_PG).sum(dim=1)
    apart_P = told_apart(_outcomes(groups), ddof=train.std_ddof)
    found = {"group/near_tie": float((apart_P & ~alive_P).double().mean())}
    if whole := float(pull_P.sum()):
        found["shape/alone"] = float(pull_P[~alive_P].sum()) / whole
    # for each right sample with a reward: does a wrong sample of its group get as much?
    lost = list[bool]()
    for group in groups:
        lost += inverted(group.rewards, _is_right(group))
    if lost and train.control is None:  # the rewards of a placebo do not depend on the outcome
        found["group/inverted"] = sum(lost) / len(lost)
    return found


def split_metrics(train: Train, groups: Sequence[Group], A_PG: Tensor, step: int) -> dict[str, float]:
    """The metrics of `reward_combine: split`: the weight of each part, and the share of right samples that are worth no more than a
    wrong one of their group; `A_PG` (P, G)."""
    found = {f"split/{name}/weight": part.at(step) for name, part in train.split.items()}
    lost = list[bool]()
    for group, own in zip(groups, A_PG.tolist(), strict=True):
        lost += inverted(own, _is_right(group))
    return found | ({"split/inverted": sum(lost) / len(lost)} if lost else {})


def _is_right(group: Group) -> list[bool | None]:
    """Whether each sample is right; None without a verdict or a reward."""
    judged = zip(group.judgements, group.rewards, strict=True)
    return [None if j.outcome is Outcome.ERROR or math.isnan(reward) else j.is_right for j, reward in judged]


def _outcomes(groups: Sequence[Group]) -> Tensor:
    return _tensor([group.outcomes or group.rewards for group in groups])


def _tensor(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# Credit for turns (`train.credit`): from groups of episodes to a number on each token.

DISCOUNT = {"gigpo": 0.95, "milestones": 0.9, "planner": 1.0}
"""The default of `gamma`."""


@dataclass(frozen=True)
class TurnParts:
    """The credit of each turn of a batch, by group and episode, with its metrics."""

    parts: list[list[list[float]]]
    metrics: dict[str, float]


def turn_parts(train: Train, spec: TurnCredit, groups: Sequence[Group]) -> TurnParts:
    """The credit that `train.credit` adds to the turns of these groups."""
    episodes = [_episodes(group, train.control is not None) for group in groups]
    find = {"gigpo": _gigpo, "milestones": _milestones, "planner": _planner}[spec.method]
    found = find(train, spec, groups, episodes)
    weighed = [[[spec.weight * part for part in row] for row in group] for group in found.parts]
    return TurnParts(weighed, found.metrics)


def token_credit(train: Train, groups: Sequence[Group], found: TurnParts) -> TokenCredit:
    """The credit of the turns, spread over their tokens."""
    spec = train.credit
    assert spec is not None
    flat = [completion for group in groups for completion in group.completions]
    parts = [row for group in found.parts for row in group]
    width = max((len(c.token_ids) for c in flat), default=0)

    def on(rows: Sequence[Sequence[Span]]) -> Tensor:
        return spread(rows, width).view(len(groups), -1, width)

    model = on([[(turn.start, turn.end, 1.0) for turn in turns(c)] for c in flat])
    if spec.method != "planner":
        values = [
            [(turn.start, turn.end, part) for turn, part in zip(turns(c), row, strict=True)]
            for c, row in zip(flat, parts, strict=True)
        ]
        counts = torch.tensor([[len(turns(c)) for c in group.completions] for group in groups], dtype=torch.float64)
        # `over: steps`: an episode counts in the mean of its group once for each of its turns
        return TokenCredit(model, model, on(values), counts if spec.over == "steps" else None)
    plans = on([[(turn.start, turn.start + turn.planned, 1.0) for turn in turns(c)] for c in flat])
    acts = [
        [(turn.start + turn.planned, turn.end, part) for turn, part in zip(turns(c), row, strict=True)]
        for c, row in zip(flat, parts, strict=True)
    ]
    # plan tokens get the sample's advantage; the tokens between plans get the credit of their subgoal
    return TokenCredit(model, plans, on(acts))


def cut_credit(spec: TurnCredit, groups: Sequence[Group], A_PG: Tensor) -> TokenCredit:
    """What the segments of each answer make of its own advantage in `A_PG` (P, G): weights, or advantages in its place. An answer whose
    segments have no values keeps its own on all of its tokens."""
    width = max((len(c.token_ids) for group in groups for c in group.completions), default=0)
    weights, parts = list[list[Span]](), list[list[Span]]()
    for group, advantages in zip(groups, A_PG.tolist(), strict=True):
        cut = [turns(c) for c in group.completions]
        has_values = [all(turn.value is not None for turn in own) for own in cut]
        gained = [
            gains([turn.value or 0.0 for turn in own], j.is_right) if ok else []
            for own, ok, j in zip(cut, has_values, group.judgements, strict=True)
        ]
        tokens = [[turn.tokens for turn in own] if ok else [] for own, ok in zip(cut, has_values, strict=True)]
        # a sample without a verdict is in no mean
        known = [[] if math.isnan(reward) else row for row, reward in zip(gained, group.rewards, strict=True)]
        instead = cut_values(known, [n if row else [] for n, row in zip(tokens, known, strict=True)], advantages)
        for own, row, n, advantage, value in zip(cut, gained, tokens, advantages, instead, strict=True):
            if spec.use == "value" and row:
                weights.append([])
                parts.append([(turn.start, turn.end, a) for turn, a in zip(own, value, strict=False)])
                continue
            sizes = cut_weights(row, n, advantage) if row else [1.0] * len(own)
            weights.append([(turn.start, turn.end, size) for turn, size in zip(own, sizes, strict=True)])
            parts.append([])

    def on(rows: Sequence[Sequence[Span]]) -> Tensor:
        return spread(rows, width).view(len(groups), -1, width)

    model = [[(0, len(c.token_ids), 1.0)] for group in groups for c in group.completions]
    return TokenCredit(on(model), on(weights), on(parts))


def turns(completion: Completion) -> Sequence[Turn]:
    """The turns of a completion. Outside an episode these are its marked parts, or a single turn."""
    if completion.episode is not None:
        return completion.episode.turns
    return completion.marks or (Turn(0, len(completion.token_ids)),)


def _episodes(group: Group, is_placebo: bool) -> list[Steps]:
    found = []
    for completion, reward in zip(group.completions, group.rewards, strict=True):
        own, known = turns(completion), not math.isnan(reward)
        # a placebo draws outcomes at random; step rewards of the environment would reveal the true outcomes
        paid = [0.0 if is_placebo else turn.reward for turn in own]
        if known and paid:
            # so that the turns add up to the reward of the episode
            paid[-1] += reward - math.fsum(paid)
        found.append(Steps(paid, [turn.state for turn in own], [turn.milestone for turn in own], known))
    return found


Episodes = Sequence[Sequence[Steps]]


def _gigpo(train: Train, spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> TurnParts:
    call = partial(
        gigpo,
        gamma=spec.gamma or DISCOUNT["gigpo"],
        norm=train.turn_norm,
        similarity=spec.similarity,
        floor=train.floor,
    )
    found = [call(group) for group in episodes]
    shared, anchors = sum(one.shared for one in found), sum(one.groups for one in found)
    seen = sum(one.turns for one in found)
    metrics = {"credit/anchor_share": shared / seen} if seen else {}
    if anchors:
        metrics["credit/anchor_size"] = shared / anchors
    return TurnParts([one.parts for one in found], metrics)


def _milestones(train: Train, spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> TurnParts:
    call = partial(
        milestones, gamma=spec.gamma or DISCOUNT["milestones"], reward=spec.reward, order=spec.order, floor=train.floor
    )
    # the share of judged episodes that reach each milestone, and the share of these that are not right
    ends, right = [], []
    for group, own in zip(groups, episodes, strict=True):
        for steps, judged in zip(own, group.judgements, strict=True):
            if steps.known:
                ends.append(len(reached(steps, spec.order)))
                right.append(judged.is_right)
    most = max(1, len(spec.order), *ends) if ends else 0
    metrics = {f"credit/milestone_{k}/reached": fmean(float(n >= k) for n in ends) for k in range(1, most + 1)}
    won = [is_right for n, is_right in zip(ends, right, strict=True) if n]
    if won:
        metrics["credit/milestone_without_success"] = fmean(float(not is_right) for is_right in won)
    return TurnParts([call(group) for group in episodes], metrics)


def _planner(train: Train, spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> TurnParts:
    parts, counts = [], list[float]()
    for group, own in zip(groups, episodes, strict=True):
        starts = []
        for completion, steps in zip(group.completions, own, strict=True):
            # a subgoal begins at each plan; if there is only one plan, also after each milestone
            begins = [number for number, turn in enumerate(turns(completion)) if turn.planned]
            if len(begins) < 2:
                ends = (end + 1 for end in reached(steps) if end + 1 < len(steps))
                begins = sorted({*begins, *ends} or {0})
            starts.append(begins)
        parts.append(subgoals(own, starts, norm=train.turn_norm, floor=train.floor))
        counts += [float(len(begins)) for begins in starts]
    return TurnParts(parts, {"credit/subgoals": fmean(counts)} if counts else {})


def energies(
    scorer: DraftScorer, said: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
) -> list[list[float]]:
    """Of each prompt and completion, the squared length of the gradient on the logits of each token: 1 - 2 p + sum of p^2."""
    found: list[list[float]] = [[] for _ in said]
    prompts, completions = [prompt for prompt, _ in said], [ids for _, ids in said]
    for place, logps_TV in scorer.distributions(prompts, completions, temperature):
        ids = torch.tensor(completions[place], device=logps_TV.device)[:, None]
        # (1 - p)^2 and the squares of the others: with p near 1 the three terms cancel in float32
        missed_T = torch.expm1(logps_TV.gather(1, ids)[:, 0]).double().square()
        others_T = logps_TV.scatter(1, ids, -math.inf).exp().square().sum(dim=-1)
        found[place] = (missed_T + others_T).tolist()
    return found


def with_token_baseline(
    train: Train, groups: Sequence[Group], made: Credit, energy: Sequence[Sequence[float]]
) -> Credit:
    """The credit with an advantage of each token (`baseline: token`), by the `energy` of each token of each sample."""
    width = max((len(c.token_ids) for group in groups for c in group.completions), default=0)
    padded = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in energy], dtype=torch.float64)
    lengths = torch.tensor([len(c.token_ids) for group in groups for c in group.completions])
    shape = (len(groups), -1, width)
    mask_PGT = (torch.arange(width) < lengths[:, None]).view(shape)
    A_PGT = token_baseline(paid(train, groups).rewards_PG, padded.view(shape), mask_PGT, floor=train.floor)
    return replace(made, A_PGT=A_PGT, A_PG=A_PGT.sum(dim=-1) / mask_PGT.sum(dim=-1).clamp(min=1))


class CreditMethod(Protocol):
    """The interface of a method that a step uses."""

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit: ...
    def has_signal(self, group: Group) -> bool: ...


@dataclass(frozen=True)
class Method:
    """The `train` section, and the weights of the verifiers whose scores are parts of the reward."""

    train: Train
    weights: dict[str, float] = field(default_factory=dict)
    fine: float = 0.0
    """The amount that an invalid action takes off an episode's reward."""
    step: int = 0
    """The step that is under way, counted from 0: the weights of `train.split` follow it."""

    @classmethod
    def of(cls, recipe: Recipe, step: int = 0) -> Method:
        """The method of a recipe."""
        weights = {name: spec.weight for name, spec in recipe.verify.items() if spec.weight}
        fine = sum(weights.get(name, 0.0) * fine for name, fine in recipe.fines.items())
        return cls(recipe.train, weights, fine, step)

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit:
        """The credit of each sample of these groups, all of one size; `penalty_PG` is subtracted from the rewards.

        Raises:
            TrainingError: a reward below 0, which `scale: mean` cannot divide by.
        """
        pay = paid(self.train, groups)
        rewards_PG = pay.rewards_PG
        if self.train.scale == "mean" and bool((rewards_PG < 0).any()):
            raise TrainingError(
                f"`train.scale: mean` divides by the mean reward of a group, and one reward is {float(rewards_PG.nan_to_num(0).min()):g}",
                hint="pay no less than 0, or say another `scale`",
            )
        lengths_PG = None
        if self.train.baseline == "length":
            lengths_PG = _tensor([[c.sampled_tokens for c in group.completions] for group in groups])
        parts_PGK = weights_K = None
        if self.train.reward_combine == "normalise_then_sum":
            # in the order of the weights below
            parts_PGK = torch.tensor([group.parts(self.weights) for group in groups], dtype=torch.float64)
            parts_PGK = torch.where(pay.gated_P[:, None, None], 0.0 * parts_PGK, parts_PGK)  # NaN stays
            # shaping is the last part
            weights_K = torch.tensor([*self.weights.values(), 1.0], dtype=torch.float64)
        elif self.train.reward_combine == "split":
            rest = list(self.train.split.values())[1:]
            parts_PGK = torch.stack([_tensor([g.means(part.verifiers) for g in groups]) for part in rest], dim=-1)
            # paid for agreeing with itself, a group that is all wrong would learn to be sure of what is wrong
            parts_PGK = torch.where(pay.gated_P[:, None, None], 0.0 * parts_PGK, parts_PGK)
            weights_K = _tensor([[part.at(self.step) for part in self.train.split.values()]])[0]
        own = credit(self.train, rewards_PG, parts_PGK, weights_K, lengths_PG=lengths_PG)
        metrics = shaping_metrics(self.train, groups, pay.alive_P, own.A_PG)
        if self.train.reward_combine == "split":
            metrics |= split_metrics(self.train, groups, own.A_PG, self.step)
        if self.train.credit is None:
            if penalty_PG is not None:
                own = credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG, lengths_PG=lengths_PG)
            return replace(own, metrics=metrics)
        if self.train.credit.method == "rredcot":
            finer = cut_credit(self.train.credit, groups, own.A_PG)
            return replace(credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG, finer), metrics=metrics)
        found = turn_parts(self.train, self.train.credit, self.by_turn(groups))
        finer = token_credit(self.train, groups, found)
        made = credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG, finer)
        metrics |= found.metrics
        assert made.A_PGT is not None
        # the mean size of the turns' credit relative to the samples' advantages, over the model's tokens
        part_PGT = finer.part_PGT * made.kept_PG[..., None]
        if share_of := float((made.A_PGT - part_PGT).abs().sum()):
            metrics["credit/step_share"] = float(part_PGT.abs().sum()) / share_of
        return replace(made, metrics=metrics)

    def by_turn(self, groups: Sequence[Group]) -> list[Group]:
        """These groups with the rewards to spread over turns or tokens. A gated group gets its outcome alone, minus
        `fine` for each invalid action, which the turn with that action pays."""
        return [
            replace(g, rewards=[t - self.fine * c.invalid for t, c in zip(g.outcomes, g.completions, strict=True)])
            if is_gated
            else g
            for g, is_gated in zip(groups, paid(self.train, groups).gated_P.tolist(), strict=True)
        ]

    def has_signal(self, group: Group) -> bool:
        """Whether some advantage of the group is not 0; this does not depend on the rest of the batch."""
        return bool(self.credit([group]).signal_P[0])


@dataclass(frozen=True)
class DistilMethod:
    """`train.method: distil`, which gives credit to groups as `Method` does; a group with a teacher has signal."""

    own: Method
    hints: Hints

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit:
        """The credit of each sample before its teacher is asked."""
        return self.own.credit(groups, penalty_PG)

    def has_signal(self, group: Group) -> bool:
        """Whether the group teaches by its rewards, or has a teacher."""
        signal = self.own.has_signal(group)
        return signal or any(hint is not None for hint in self.hints.of([group], [signal])[0])
