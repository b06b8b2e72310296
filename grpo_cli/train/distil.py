"""Learning from a teacher (`train.method: distil`): the policy behind a prompt that says more, or another model, over sampled tokens.

How this works. With x the prompt, c the hint, y the sampled tokens, p the policy and q the teacher's fixed distribution:

    p_t = p(. | x, y_<t),    q_t = q(. | x, c, y_<t)
    sampled   A_t = (1 - mix) A + mix (log q_t(y_t) - log p_t(y_t))        over y from p this is the gradient of KL(p || q)
    topk      loss += mix D(p_t, q_t) over the k likeliest tokens of p and one for all others, which is a lower bound

Both are of tokens: what a token does to later prefixes has no gradient. A step goes down this file:

1. `Hints` (`reward/hints.py`) finds what the teacher of each sample sees.
2. `DistilMethod` (`train/credit.py`) gives signal to a group that has a teacher.
3. `Distillation.taught` renders the teacher's prompts, scores this rank's samples behind them and puts the result on the tokens. The
   loss's mean is over tokens of rows that are trained on: groups with signal, and rows with a teacher.
4. `TopkLogProbs` scores whole distributions in the update, and `divergence` compares them.

The teacher's weights are the policy's own, a running average of them (`Reference`, saved with checkpoints), those of the start, or
another model's. P prompts, G samples, B rows, T completion tokens, K tokens compared at each place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from grpo_cli.algorithm.credit import Credit
from grpo_cli.algorithm.loss import MicroBatchLogProbs
from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.failures import numbers_only
from grpo_cli.policy.loading.inspection import of_other
from grpo_cli.policy.model import load_model
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.positions import positions_from_mask
from grpo_cli.policy.tokens import refuse_other_tokens
from grpo_cli.recipe.sections.recipe import Distil
from grpo_cli.reward.group import Group
from grpo_cli.reward.hints import Hint, Hints
from grpo_cli.rollout.scoring import DraftScorer
from grpo_cli.train.kl import Reference
from grpo_cli.train.log_probs import LogProbRequest, LogProbs

if TYPE_CHECKING:
    from grpo_cli.policy.contract import Tokenizer
    from grpo_cli.train.loop import Loop
    from grpo_cli.train.step import StepBatch
    from grpo_cli.train.trl_batch import RankSamples

FILE = "teacher.pt"
NOTHING = 1e-7
"""Probability below which all other tokens together are none."""


@dataclass(frozen=True)
class Scored:
    """What the teacher said of one sample: log q - log p of its tokens (sampled) or their divergence (`topk`), and with `topk` the
    compared tokens of each place with the teacher's log-probs of them, both [T, K]."""

    apart: list[float] = field(default_factory=list)
    ids_TK: Tensor | None = None
    logps_TK: Tensor | None = None


class Distillation:
    """The teacher of a run."""

    def __init__(
        self,
        loop: Loop,
        spec: Distil,
        hints: Hints,
        model: nn.Module,
        teacher: nn.Module | None,
        autocast: torch.dtype | None,
    ) -> None:
        """`teacher` is another model, None for the policy `model` itself."""
        self.loop, self.spec, self.hints, self.model = loop, spec, hints, model
        self.student = DraftScorer(model, autocast)
        self.teacher = self.student if teacher is None else DraftScorer(teacher, autocast)
        own_weights = teacher is None and spec.weights != "live"
        self.weights = Reference(model) if own_weights else None
        config: Any = causal_model(teacher or model).config
        self.context: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)

    @classmethod
    def where_asked(
        cls, loop: Loop, model: nn.Module, tokenizer: Tokenizer, autocast: torch.dtype | None
    ) -> Distillation | None:
        """One, if the recipe has a teacher.

        Raises:
            SetupError: the teacher is a model that cannot be loaded, or reads other tokens.
        """
        recipe = loop.recipe
        if recipe.train.method != "distil":
            return None
        assert recipe.distil is not None and loop.hints is not None
        named, other = recipe.distil.model(recipe.model), None
        if named is not None:
            device = next(model.parameters()).device
            try:
                loaded = load_model(named, device=device, seed=recipe.train.seed, training=False)
            except SetupError as err:
                raise of_other("distil.teacher", named.path, err) from err
            own: Any = causal_model(model).config
            said, known = f"`distil.teacher: {named.path}`", int(own.get_text_config().vocab_size)
            vocabularies = tokenizer.get_vocab(), loaded.tokenizer.get_vocab()
            refuse_other_tokens(said, *vocabularies, known, loaded.vocabulary)
            other = loaded.model.eval().requires_grad_(False)
        return cls(loop, recipe.distil, loop.hints, model, other, autocast)

    def taught(self, before: StepBatch, out: dict[str, Any], samples: RankSamples) -> StepBatch:
        """The batch with the teacher's part of its credit; `out` gains what `topk` compares, of this rank's rows."""
        groups, size = before.groups, len(before.groups[0].texts)
        own_signal = before.credit.signal_P.tolist()
        hints = self.hints.of(groups, own_signal)
        flat, too_long = [hint for row in hints for hint in row], 0
        asked: list[tuple[int, list[list[int]]]] = []  # place among this rank's samples, the teacher's prompts
        for at, place in enumerate(samples.places):
            if (hint := flat[place]) is None:
                continue
            group = groups[place // size]
            texts = [hint.text] if hint.wrong is None else [hint.text, hint.wrong]
            prompts = [self._prompt(group, text) for text in texts]
            longest = max(map(len, prompts)) + len(samples.completions[at].token_ids)
            if self.context is not None and longest > self.context:
                too_long += 1
                continue
            asked.append((at, prompts))
        scored = [Scored()] * len(samples.completions)
        for (at, _), one in zip(asked, self._scored(asked, samples), strict=True):
            scored[at] = one
        ranks, topk = self.loop.ranks, self.spec.loss == "topk"
        apart = ranks.gathered([one.apart for one in scored])
        apart = [apart[at] for at in samples.back]
        if topk:
            put_topk(out, scored, self.spec.mix)
        width = max(len(c.token_ids) for group in groups for c in group.completions)
        made = mixed(before.credit, apart, self.spec, width, topk=topk)
        metrics = distil_metrics(apart, flat, sum(ranks.gathered([too_long])), topk=topk)
        return replace(before, credit=replace(made, metrics={**made.metrics, **metrics}))

    def _prompt(self, group: Group, hint: str) -> list[int]:
        row = self.hints.rows[group.row]
        found = self.hints.row(row, hint)
        return group.prompt_ids if found == row else self.loop.collect.encode(found)

    @torch.no_grad()
    def _scored(self, asked: Sequence[tuple[int, list[list[int]]]], samples: RankSamples) -> list[Scored]:
        """What the teacher says of these samples of this rank."""
        temperature = self.loop.recipe.sample.temperature
        ids = [samples.completions[at].token_ids for at, _ in asked]
        plain = [samples.prompt_ids[at] for at, _ in asked]
        told = [prompts[0] for _, prompts in asked]
        if not asked:
            return []
        if self.spec.loss == "topk":
            return self._compared(plain, told, ids, temperature)
        if self.weights is None and self.teacher is self.student:
            # one call: what is equal is scored once, and differs by nothing
            both = self.student([*plain, *told], [*ids, *ids], temperature)
            own, theirs = both[: len(ids)], both[len(ids) :]
        else:
            own = self.student(plain, ids, temperature)
            with self._weights():
                theirs = self.teacher(told, ids, temperature)
        if self.spec.contrast:
            with self._weights():
                own = self.teacher([prompts[1] for _, prompts in asked], ids, temperature)
        return [Scored([q - p for p, q in zip(*pair, strict=True)]) for pair in zip(own, theirs, strict=True)]

    def _compared(
        self, plain: list[list[int]], told: list[list[int]], ids: list[list[int]], temperature: float
    ) -> list[Scored]:
        found = [Scored()] * len(ids)
        own: dict[int, tuple[Tensor, Tensor]] = {}
        for at, logps_TV in self.student.distributions(plain, ids, temperature):
            top = logps_TV.topk(min(self.spec.k, logps_TV.shape[1]), dim=-1)
            own[at] = top.values, top.indices
        with self._weights():
            for at, logps_TV in self.teacher.distributions(told, ids, temperature):
                p_TK, ids_TK = own[at]
                q_TK = logps_TV.gather(1, ids_TK)
                apart_T = divergence(p_TK, q_TK, self.spec.direction, whole=ids_TK.shape[1] == logps_TV.shape[1])
                found[at] = Scored(apart_T.tolist(), ids_TK, q_TK)
        return found

    def _weights(self) -> Any:
        return nullcontext() if self.weights is None else self.weights.swapped_in()

    @torch.no_grad()
    def follow(self) -> None:
        """Move the running average after an update of a batch."""
        if self.weights is not None and self.spec.weights == "ema":
            for mean, now in zip(self.weights.frozen, self.weights.trained, strict=True):
                mean.lerp_(now.detach().to(mean), self.spec.rate)

    def save(self, checkpoint: Path) -> None:
        """Into a checkpoint that is being written."""
        if self.weights is not None and self.spec.weights == "ema":
            torch.save([f.cpu() for f in self.weights.frozen], checkpoint / FILE)

    def load(self, checkpoint: Path) -> None:
        """Back from a checkpoint.

        Raises:
            FileNotFoundError: the checkpoint is one of a run without a running average.
        """
        if self.weights is not None and self.spec.weights == "ema":
            with numbers_only(checkpoint / FILE):
                held = torch.load(checkpoint / FILE, map_location="cpu", weights_only=True)
            for mean, value in zip(self.weights.frozen, held, strict=True):
                mean.copy_(value)


def mixed(made: Credit, apart: Sequence[Sequence[float]], spec: Distil, width: int, *, topk: bool) -> Credit:
    """The credit of a batch, whose samples have at most `width` tokens, with the teacher's part: what it said of each sample, nothing where
    it has none.

    With `when: dead` groups that teach by their rewards keep all of their own advantages, since they have no teacher. Rows of dead groups
    without a teacher leave the loss's mean (`kept_PG`).
    """
    A_PG = made.A_PG.double()
    P, G = A_PG.shape
    taught_PG = torch.tensor([bool(row) for row in apart]).view(P, G)
    share = 1.0 if spec.when == "dead" else 1.0 - spec.mix
    active_PG = taught_PG | (made.signal_P[:, None] & (share > 0))
    signal_P = active_PG.any(dim=1)
    if topk:
        return replace(made, A_PG=share * A_PG, kept_PG=active_PG, signal_P=signal_P)
    part_PGT = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in apart], dtype=torch.float64).view(
        P, G, width
    )
    if not taught_PG.any():
        return replace(made, A_PG=share * A_PG, kept_PG=active_PG, signal_P=signal_P)
    lengths_PG = torch.tensor([max(len(row), 1) for row in apart]).view(P, G)
    A_PGT = (share * A_PG)[..., None] * torch.ones(width, dtype=torch.float64) + spec.mix * part_PGT
    mean_PG = torch.where(taught_PG, share * A_PG + spec.mix * part_PGT.sum(dim=-1) / lengths_PG, share * A_PG)
    return replace(made, A_PG=mean_PG, A_PGT=A_PGT, kept_PG=active_PG, signal_P=signal_P)


def put_topk(out: dict[str, Any], scored: Sequence[Scored], mix: float) -> None:
    """Into this rank's batch: `teacher_ids` and `teacher_logps` (B, T, K), and `teacher` (B,), the weight of the comparison."""
    B, T = out["completion_ids"].shape
    device = out["completion_ids"].device
    known = [one.ids_TK for one in scored if one.ids_TK is not None]
    K = known[0].shape[1] if known else 1
    ids, logps = torch.zeros(B, T, K, dtype=torch.long, device=device), torch.zeros(B, T, K, device=device)
    weight = torch.zeros(B, device=device)
    for at, one in enumerate(scored):
        if one.ids_TK is not None and one.logps_TK is not None:
            ids[at, : len(one.ids_TK)], logps[at, : len(one.ids_TK)], weight[at] = one.ids_TK, one.logps_TK, mix
    out |= {"teacher_ids": ids, "teacher_logps": logps, "teacher": weight}


def divergence(p_TK: Tensor, q_TK: Tensor, direction: str, *, whole: bool = False) -> Tensor:
    """(…,) divergence of the policy's and the teacher's log-probs of K tokens, with the gradient of `p_TK`; `whole`: no token is left out,
    else all others together are one more."""
    if not whole:
        rest = [(-torch.expm1(x.logsumexp(dim=-1, keepdim=True).clamp(max=-NOTHING))).log() for x in (p_TK, q_TK)]
        p_TK, q_TK = torch.cat([p_TK, rest[0]], dim=-1), torch.cat([q_TK, rest[1]], dim=-1)
    if direction == "reverse":
        return (p_TK.exp() * (p_TK - q_TK)).sum(dim=-1)
    if direction == "forward":
        return (q_TK.exp() * (q_TK - p_TK)).sum(dim=-1)
    mean_TK = torch.logaddexp(p_TK, q_TK) - math.log(2)
    return 0.5 * (q_TK.exp() * (q_TK - mean_TK) + p_TK.exp() * (p_TK - mean_TK)).sum(dim=-1)


def distil_metrics(
    apart: Sequence[Sequence[float]], hints: Sequence[Hint | None], too_long: int, *, topk: bool
) -> dict[str, float]:
    """Share of the samples that a teacher was asked about, how far it is from the policy in nats a token, over whole answers and over
    their first and last quarter, and the shares of its prompts that had a gold taken out or did not fit."""
    sign = 1.0 if topk else -1.0
    taught = [[sign * x for x in row] for row in apart if row]
    known = [hint for hint in hints if hint is not None]
    found = {
        "distil/rows": len(taught) / len(apart),
        "distil/leak": sum(hint.leaked for hint in known) / max(len(known), 1),
        "distil/too_long": too_long / max(len(known), 1),
    }
    quarters = [(row[: (len(row) + 3) // 4], row[len(row) - (len(row) + 3) // 4 :]) for row in taught]
    parts = (("", taught), ("/first", [a for a, _ in quarters]), ("/last", [b for _, b in quarters]))
    for name, rows in parts if taught else ():
        found[f"distil/kl{name}"] = math.fsum(x for row in rows for x in row) / sum(map(len, rows))
    return found


@dataclass
class TopkLogProbs:
    """A source that makes the whole distribution of each token, and keeps its part that the teacher is compared with."""

    scored: MicroBatchLogProbs
    temperature: float
    absolute: bool
    logps_BTK: Tensor | None = None
    whole: bool = False

    def __call__(self, request: LogProbRequest) -> LogProbs:
        keep, base = request.keep, causal_model(request.model)
        head: Any = base.get_output_embeddings()
        # logits of the states that predict a completion's token alone
        handle = head.register_forward_pre_hook(lambda _, states: (states[0][:, -keep - 1 : -1], *states[1:]))
        try:
            with positions_from_mask(request.model) if self.absolute else nullcontext():
                logits = request.model(input_ids=request.ids_BS, attention_mask=request.mask_BS, use_cache=False).logits
        finally:
            handle.remove()
        logps_BTV = (logits.float() / self.temperature).log_softmax(dim=-1)
        ids_BTK = self.scored.inputs["teacher_ids"]
        self.logps_BTK, self.whole = logps_BTV.gather(2, ids_BTK), ids_BTK.shape[2] == logps_BTV.shape[2]
        with torch.no_grad():
            entropies = -(logps_BTV.exp() * logps_BTV).sum(dim=-1)
        return logps_BTV.gather(2, request.ids_BS[:, -keep:, None])[..., 0], entropies, None

    def term(self, direction: str) -> Tensor:
        """(B, T) weighted divergence from the teacher, 0 on rows without one."""
        assert self.logps_BTK is not None
        apart_BT = divergence(self.logps_BTK, self.scored.inputs["teacher_logps"], direction, whole=self.whole)
        weight_B1 = self.scored.inputs["teacher"][:, None]
        # a product with the mask would keep a NaN of padding
        return torch.where((weight_B1 > 0) & self.scored.mask_BT.bool(), weight_B1 * apart_BT, 0.0)
