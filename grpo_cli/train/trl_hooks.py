"""What TRL's hooks are handed: the batch in the shapes it wants, and where its calls for log-probs get them from.

TRL asks for log-probs in one method, whatever for. A `LogProbSource` answers; which one is said around each call of TRL's.
B rows, T completion tokens, S prompt and completion tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.loss import MicroBatchLogProbs
from grpo_cli.algorithm.spread import loss_mask
from grpo_cli.data.rows import Row
from grpo_cli.policy.modes import evaluating
from grpo_cli.policy.positions import positions_from_mask
from grpo_cli.rollout.engine import Completion
from grpo_cli.rollout.logprobs import score_shared
from grpo_cli.train.old_logprobs import padded
from grpo_cli.train.step import StepBatch

Batch = dict[str, Any]
"""Tensors and lists by TRL's names: `prompt_ids`, `completion_mask`, `advantages` …, a row of each for a sample."""

Prompt = list[dict[str, Any]] | str
"""A chat, or plain text; a completion takes the same shape."""


@dataclass(frozen=True)
class EmptyRows:
    """A data set of so many rows that say nothing. The rows are chosen in the loop: TRL's loader has only to deliver batches
    of the right size, and it reads a whole batch for each micro-batch."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, Prompt]:
        return {"prompt": "-"}

    def __getitems__(self, places: Sequence[int]) -> list[dict[str, Prompt]]:
        return [self[place] for place in places]


LogProbs = tuple[Tensor, Tensor | None, Tensor | None]
"""(B, T) log-probs, (B, T) entropies, auxiliary loss: what TRL's method returns."""


Generated = tuple[
    list[NDArray[np.int64]],
    list[NDArray[np.int64]],
    list[list[int]] | None,
    list[Prompt],
    list[list[float]] | None,
    dict[str, object],
    None,
    list[object],
]
"""What TRL's `_generate` returns: ids of prompts and of completions, tool masks, completions, their log-probs, extra fields,
images, tool calls."""


@dataclass(frozen=True)
class LogProbRequest:
    """A call of TRL for log-probs of the last `keep` tokens of (B, S) ids; `plain` is TRL's own answer to it."""

    model: nn.Module
    ids_BS: Tensor
    mask_BS: Tensor
    keep: int
    rows: int | None
    more: Mapping[str, object]
    plain: Callable[[], LogProbs]

    @property
    def wants_more(self) -> bool:
        """Whether it asks for something besides log-probs and entropies."""
        more = (value for name, value in self.more.items() if name != "compute_entropy")
        return any(value is not None and value is not False for value in more)


class LogProbSource(Protocol):
    """Where log-probs come from."""

    def __call__(self, request: LogProbRequest) -> LogProbs: ...


@dataclass(frozen=True)
class TrlLogProbs:
    """TRL's own forward pass; `absolute`: the model must be told where tokens stand behind the padding, TRL does not."""

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
    """Our forward pass, where each prompt goes through the model once; TRL's where more is asked than entropies."""

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
                score_shared(
                    self.model, ids, mask, request.keep, self.temperature, absolute=self.trl.absolute
                )
                for ids, mask in zip(
                    torch.split(request.ids_BS, rows), torch.split(request.mask_BS, rows), strict=True
                )
            ]
        return torch.cat([s.logps_BT for s in found]), torch.cat([s.entropies_BT for s in found]), None


@dataclass(frozen=True)
class RecordedLogProbs:
    """Another source, while TRL computes a loss: the micro-batch sees the log-probs, and its size is counted."""

    source: LogProbSource
    scored: MicroBatchLogProbs
    accelerator: Accelerator
    count: Callable[[Tensor], None]

    def __call__(self, request: LogProbRequest) -> LogProbs:
        found = self.source(request)
        scored = self.scored
        scored.update(found[0])
        tokens_B = scored.mask_BT.sum(dim=1)
        rows = tokens_B.new_full(
            (), len(tokens_B)
        )  # filled there: a copy from here would wait for the device
        size = torch.stack([tokens_B.sum(), rows, tokens_B.ne(0).sum().to(tokens_B)])
        if scored.objective.drop_dead and not scored.inputs["advantages"].any():
            size.zero_()  # a dead row that stayed for the sake of the graph
        self.count(self.accelerator.reduce(size, reduction="sum"))
        return found


class ScoringTrainer(Protocol):
    """What scores samples outside the loss; the names are TRL's but for the last."""

    accelerator: Accelerator
    args: GRPOConfig

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
        rows: only the first so many.
    """
    keep = slice(rows)
    ids = torch.cat([out["prompt_ids"][keep], out["completion_ids"][keep]], dim=1)
    attention = torch.cat([out["prompt_mask"][keep], out["completion_mask"][keep]], dim=1)
    with evaluating(trainer.whole), trainer.accelerator.autocast():  # no dropout, and no chance used up
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.whole,
            ids,
            attention,
            out["completion_ids"].shape[1],
            batch_size=trainer.args.per_device_train_batch_size,
        )
    return logps


def leave_out_cut(out: Batch, completions: Sequence[Completion], accelerator: Accelerator) -> None:
    """Take cut completions out of the loss (DAPO's overlong filtering). TRL's own switch knows end tokens only, and would take
    one that a stop word ended for cut."""
    whole_B = torch.tensor([c.finish == "stop" for c in completions], device=accelerator.device)
    out["completion_mask"] = out["completion_mask"] * whole_B[:, None].int()
    # TRL has counted before the mask changed, and divides the loss by it
    out["num_items_in_batch"] = accelerator.gather(loss_mask(out).sum()).sum()


@dataclass(frozen=True)
class RankSamples:
    """This rank's stretch of a batch; a group may go on on the next rank."""

    completions: list[Completion]
    texts: list[str]
    prompt_ids: list[list[int]]
    prompts: list[Prompt]
    places: range

    @property
    def has_turns(self) -> bool:
        """Whether the environment's tokens stand between the model's own in any of them."""
        return any(c.episode is not None for c in self.completions)

    @classmethod
    def of(cls, before: StepBatch, rows: Sequence[Row], places: range) -> RankSamples:
        """The samples at these places of the batch, counted group by group."""
        flat = [
            (completion, text, group.prompt_ids, rows[group.row])
            for group in before.groups
            for completion, text in zip(group.completions, group.texts, strict=True)
        ][places.start : places.stop]
        return cls(
            [completion for completion, _, _, _ in flat],
            [text for _, text, _, _ in flat],
            [ids for _, _, ids, _ in flat],
            [row.messages or row.prompt for _, _, _, row in flat],
            places,
        )

    def generated(self, with_logps: bool) -> Generated:
        """As TRL's `_generate` would return them: no second tokenising, decoding or counting.

        With vLLM TRL weighs the loss by how far its log-probs are from the model's own.
        """
        is_chat = not isinstance(self.prompts[0], str)
        said: list[Prompt] = [
            [{"role": "assistant", "content": text}] if is_chat else text for text in self.texts
        ]
        ids = _arrays([c.token_ids for c in self.completions])
        logps = [c.logps for c in self.completions] if with_logps else None
        masks = [c.mask for c in self.completions] if self.has_turns else None
        return _arrays(self.prompt_ids), ids, masks, said, logps, {}, None, []


def _arrays(lists: Sequence[list[int]]) -> list[NDArray[np.int64]]:
    """As arrays, of which torch makes a tensor in a tenth of the time; a list that comes again is read once."""
    # by identity: the samples of a group share one list of prompt ids
    made = {id(one): np.asarray(one, dtype=np.int64) for one in lists}
    return [made[id(one)] for one in lists]


class HasLogProbSource(Protocol):
    """What asks a source."""

    source: LogProbSource


@contextmanager
def swapped_source(trainer: HasLogProbSource, source: LogProbSource) -> Iterator[None]:
    """While inside, TRL's calls for log-probs are answered by `source`."""
    before, trainer.source = trainer.source, source
    try:
        yield
    finally:
        trainer.source = before


def reward(**_: object) -> list[float]:
    """Named for TRL's log only: verdicts come from `_calculate_rewards`.

    Raises:
        AssertionError: TRL called it.
    """
    raise AssertionError("TRL called the placeholder reward: its `_calculate_rewards` is no longer ours")
