"""The sources that answer TRL's requests for log-probs.

How this works. TRL computes all log-probs in one method, `_get_per_token_logps_and_entropies`, which `Trainer` turns
into a `LogProbRequest`. A `LogProbSource` answers it; `Trainer.log_probs_from` sets the source around each call of
TRL's: TRL's own pass, ours with shared prompts, the packed update (`packed/source.py`), or the numbers that came with
the samples. `score` calls the same method outside the loss. `check_agreement` tests before the first step that sampling
and training use the same distribution. B rows, T completion tokens, S prompt and completion tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.loss import MicroBatchLogProbs
from grpo_cli.data.images import RowImage
from grpo_cli.data.rows import Row
from grpo_cli.errors import SetupError
from grpo_cli.policy.modes import evaluating
from grpo_cli.policy.positions import positions_from_mask
from grpo_cli.rollout.engine import Completion, Engine, Request, SamplingSettings
from grpo_cli.rollout.logprobs import draws_dropout, score_shared
from grpo_cli.rollout.mixing import mixed_as_sampled

if TYPE_CHECKING:
    from grpo_cli.policy.policy import Policy


Batch = dict[str, Any]
"""Tensors and lists by TRL's names: `prompt_ids`, `completion_mask`, `advantages` …, a row of each for a sample."""

LogProbs = tuple[Tensor, Tensor | None, Tensor | None]
"""(B, T) log-probs, (B, T) entropies, auxiliary loss: what TRL's method returns."""


@dataclass(frozen=True)
class LogProbRequest:
    """TRL's request for log-probs of the last `keep` tokens of (B, S) ids; `plain` computes TRL's own answer."""

    model: nn.Module
    ids_BS: Tensor
    mask_BS: Tensor
    keep: int
    rows: int | None
    more: Mapping[str, object]
    plain: Callable[[], LogProbs]

    @property
    def wants_more(self) -> bool:
        """Whether the request needs more than log-probs and entropies."""
        more = (value for name, value in self.more.items() if name != "compute_entropy")
        return any(value is not None and value is not False for value in more)


LogProbSource = Callable[[LogProbRequest], LogProbs]
"""Where log-probs come from."""


@dataclass(frozen=True)
class TrlLogProbs:
    """TRL's own forward pass; `absolute`: the model needs position ids for left-padded rows, which TRL does not
    pass."""

    absolute: bool

    def __call__(self, request: LogProbRequest) -> LogProbs:
        with positions_from_mask(request.model) if self.absolute else nullcontext():
            return request.plain()


@dataclass(frozen=True)
class RolloutLogProbs:
    """What was just sampled, with the log-probs it was sampled with."""

    completions: Sequence[Completion]
    device: torch.device

    def __call__(self, request: LogProbRequest) -> LogProbs:
        return padded(self.completions, request.keep, self.device), None, None


@dataclass(frozen=True)
class SharedPromptLogProbs:
    """Our forward pass, which computes each prompt once; TRL's for requests that need more than entropies."""

    accelerator: Accelerator
    model: nn.Module
    temperature: float
    trl: TrlLogProbs

    def __call__(self, request: LogProbRequest) -> LogProbs:
        if request.wants_more:
            return self.trl(request)
        rows = request.rows or len(request.ids_BS)
        with self.accelerator.autocast():
            found = [
                score_shared(self.model, ids, mask, request.keep, self.temperature, absolute=self.trl.absolute)
                for ids, mask in zip(torch.split(request.ids_BS, rows), torch.split(request.mask_BS, rows), strict=True)
            ]
        return torch.cat([s.logps_BT for s in found]), torch.cat([s.entropies_BT for s in found]), None


@dataclass(frozen=True)
class RecordedLogProbs:
    """Wraps a source while TRL computes a loss: hands the log-probs to the micro-batch, and counts its tokens."""

    source: LogProbSource
    scored: MicroBatchLogProbs
    count: Callable[[Tensor], None]

    def __call__(self, request: LogProbRequest) -> LogProbs:
        found = self.source(request)
        scored = self.scored
        is_dead = scored.objective.drop_dead and not scored.inputs["advantages"].any()
        scored.update(found[0])
        tokens_B = scored.mask_BT.sum(dim=1)
        # filled on the device: a copy from the host would wait for the device
        rows = tokens_B.new_full((), len(tokens_B))
        size = torch.stack([tokens_B.sum(), rows, tokens_B.ne(0).sum().to(tokens_B)])
        if is_dead:
            size.zero_()  # a row without gradient that was kept so that the loss has a graph
        self.count(size)
        return found


class ScoringTrainer(Protocol):
    """The members of the trainer that scoring outside the loss uses; the names are TRL's except `whole`."""

    accelerator: Accelerator
    args: GRPOConfig
    temperature: float
    images: list[tuple[RowImage, ...]]
    """The images of each row of the batch that is scored; empty where the model reads text alone."""

    @property
    def whole(self) -> nn.Module: ...
    def _get_per_token_logps_and_entropies(
        self,
        model: nn.Module,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **more: object,
    ) -> LogProbs: ...


@torch.no_grad()
def score(trainer: ScoringTrainer, out: Batch, rows: int | None = None) -> Tensor:
    """[B, T] log-probs of the generated tokens under the weights the model has now, without a graph and without dropout.

    Args:
        trainer: whose model, autocast and micro-batch size.
        out: the batch, prompts and completions apart.
        rows: score only this many rows, the first ones.
    """
    keep = slice(rows)
    ids = torch.cat([out["prompt_ids"][keep], out["completion_ids"][keep]], dim=1)
    attention = torch.cat([out["prompt_mask"][keep], out["completion_mask"][keep]], dim=1)
    mixed = mixed_as_sampled(trainer.whole, out, keep)
    with evaluating(trainer.whole), trainer.accelerator.autocast(), mixed:  # no dropout, and no random numbers consumed
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.whole,
            ids,
            attention,
            out["completion_ids"].shape[1],
            batch_size=trainer.args.per_device_train_batch_size,
        )
    return logps


# Old log-probs for a batch that is trained on more than once. TRL would score every sample again, but the rollout has
# already returned log-probs, which equal those of the training pass to 1e-4 if both compute in the same dtype. They are
# not used under bf16, fp16 or tf32: there two implementations of the forward pass differ by a few thousandths of a nat
# a token, which the ratio would take for a change of the policy.


def are_exact(engine: Engine, model: nn.Module, args: GRPOConfig) -> bool:
    """Whether the engine's log-probs equal those of the forward pass of `model` when it trains with `args`."""
    return (
        engine.kind.exact_logps
        and not (args.bf16 or args.fp16 or args.tf32)
        and all(p.dtype == torch.float32 for p in model.parameters() if p.is_floating_point())
        and not draws_dropout(model)
    )


def padded(completions: Sequence[Completion], width: int, device: torch.device) -> Tensor:
    """[B, width] float32 log-probs of the sampled tokens, 0 behind a completion's end."""
    rows = [c.logps + [0.0] * (width - len(c.logps)) for c in completions]
    return torch.tensor(rows, device=device)


# Sampling and training must use the same distribution. This is tested on two prompts of different length before the
# first step: the engine packs and caches, training pads to the left and masks, and a difference would silently enter
# every ratio and every gradient.

EXACT, HALF = 1e-2, 0.3
"""Largest mean difference in nats a token: in float32 (usually it is 1e-6), and in fewer bits (usually 1e-3)."""

TOKENS = 4
LONGEST = 64
"""Length of the tested prompts in tokens, at most; it only matters that the two differ in length."""


def check_agreement(trainer: ScoringTrainer, engine: Engine, policy: Policy, row: Row, most: int) -> None:
    """Sample after a row's prompt and after the second half of it, and score both as training does.

    Args:
        trainer: scores, at its temperature, with the weights of `policy`.
        engine: samples, at most `most` tokens, with the same weights.

    Raises:
        SetupError: the log-probs differ.
    """
    prompt = policy.encode(row)
    longer = prompt[-LONGEST:] if len(prompt) > 1 else prompt * 2
    # different lengths, so that one prompt is padded: position ids behind padding are the most frequent fault
    prompts = [longer, longer[len(longer) // 2 :]]
    if (
        row.images
    ):  # a prompt that is cut has lost image tokens: whole, with another one of the same image and more text
        prompts, trainer.images = [prompt, prompt + prompt[-1:]], [row.images] * 2
    found = engine.generate(
        [Request(ids, 1, images=row.images) for ids in prompts],
        SamplingSettings(max_tokens=min(TOKENS, most), temperature=trainer.temperature, seed=0),
    )
    sampled = [completions[0] for completions in found]
    # as TRL pads a batch: prompts to the left, completions to the right
    before, after = max(map(len, prompts)), max(len(c.token_ids) for c in sampled)
    lead, tail = [before - len(p) for p in prompts], [after - len(c.token_ids) for c in sampled]
    rows = {
        "prompt_ids": [[0] * n + list(p) for n, p in zip(lead, prompts, strict=True)],
        "prompt_mask": [[0] * n + [1] * len(p) for n, p in zip(lead, prompts, strict=True)],
        "completion_ids": [c.token_ids + [0] * n for n, c in zip(tail, sampled, strict=True)],
        "completion_mask": [[1] * len(c.token_ids) + [0] * n for n, c in zip(tail, sampled, strict=True)],
    }
    batch = {name: torch.tensor(ids, device=policy.device) for name, ids in rows.items()}
    scored_BT = score(trainer, batch).float().cpu()
    apart = [(row[: len(c.logps)] - torch.tensor(c.logps)).abs() for row, c in zip(scored_BT, sampled, strict=True)]
    mean = float(torch.cat(apart).mean())
    exact = policy.autocast is None and next(policy.model.parameters()).dtype == torch.float32
    if not mean <= (EXACT if exact else HALF):  # a NaN is no agreement
        raise SetupError(
            f"training and sampling disagree on this model: the log-probs of the tokens that `{engine.kind.name}` sampled are"
            f" {mean:.2g} nats apart from those of the training pass",
            hint="set `sample.engine: transformers`; if that disagrees as well, the model cannot be trained on padded rows",
        )
