"""Converts the batch of a step to TRL's data format, and back.

How this works: TRL's data loader delivers empty rows (`EmptyRows`), since the loop chooses the rows itself. This rank's
part of the groups becomes `RankSamples`, for TRL's `_generate`. TRL pads them, and its advantages and its mask are
replaced by ours: `leave_out_cut` takes cut answers out of the loss mask, `put_credit` writes the advantages. B rows, T completion
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather
from numpy.typing import NDArray

from grpo_cli.algorithm.credit import Credit
from grpo_cli.algorithm.loss import loss_mask
from grpo_cli.data.rows import Row
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.log_probs import Batch
from grpo_cli.train.step import StepBatch

Prompt = list[dict[str, Any]] | str
"""A chat, or plain text; a completion takes the same shape."""

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
class EmptyRows:
    """A data set of a given number of empty rows. The loop chooses the rows, so TRL's loader only has to deliver
    batches of the right size; it reads a whole batch for each micro-batch."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, Prompt]:
        return {"prompt": "-"}

    def __getitems__(self, places: Sequence[int]) -> list[dict[str, Prompt]]:
        return [self[place] for place in places]


@dataclass(frozen=True)
class RankSamples:
    """This rank's part of a batch; a group may continue on the next rank."""

    completions: list[Completion]
    texts: list[str]
    prompt_ids: list[list[int]]
    prompts: list[Prompt]
    places: range

    @classmethod
    def of(cls, before: StepBatch, rows: Sequence[Row], places: range) -> RankSamples:
        """The samples at these indices of the batch, counted group by group."""
        # group by group, the order of `A_PG.flatten()`: an index means the same sample everywhere
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
        """The samples in the form that TRL's `_generate` returns, without tokenising, decoding or counting again.

        With vLLM, TRL weights the loss by the ratio of the model's probabilities to vLLM's.
        """
        is_chat = not isinstance(self.prompts[0], str)
        answers: list[Prompt] = [[{"role": "assistant", "content": text}] if is_chat else text for text in self.texts]
        ids = _arrays([c.token_ids for c in self.completions])
        logps = [c.logps for c in self.completions] if with_logps else None
        # TRL multiplies its loss by this mask, so that observations of an environment, and tokens that nobody drew, have no gradient
        masks = [c.mask for c in self.completions] if any(not c.is_drawn for c in self.completions) else None
        return _arrays(self.prompt_ids), ids, masks, answers, logps, {}, None, []


def _arrays(lists: Sequence[list[int]]) -> list[NDArray[np.int64]]:
    """The lists as arrays, which torch converts ten times faster; a list that occurs repeatedly is converted once."""
    # look up by identity: the samples of a group share one list of prompt ids
    made = {id(one): np.asarray(one, dtype=np.int64) for one in lists}
    return [made[id(one)] for one in lists]


def leave_out_cut(out: Batch, completions: Sequence[Completion], accelerator: Accelerator) -> None:
    """Remove truncated completions from the loss (DAPO's overlong filtering). TRL's own option checks only for end
    tokens, so it would remove answers that a stop text ended."""
    whole_B = torch.tensor([c.finish == "stop" for c in completions], device=accelerator.device)
    out["completion_mask"] = out["completion_mask"] * whole_B[:, None].int()
    # TRL divides the loss by a token count from before the mask changed: correct it
    out["num_items_in_batch"] = accelerator.gather(loss_mask(out).sum()).sum()


def put_credit(out: dict[str, Any], credit: Credit, places: range, *, prunes: bool) -> dict[str, Any]:
    """This rank's batch with its advantages, (B,) or (B, T), and with `places`, the indices of its samples in the whole
    batch.

    `prunes`: samples that are left out do not count in the normaliser either. Every rank must call this.
    """
    # a group may be split over ranks: places count through the whole batch
    own, mask = slice(places.start, places.stop), loss_mask(out)
    # TRL has computed its own advantages. Ours are float64 up to here; the loss multiplies them by float32
    out["advantages"] = credit.rows(own, mask.shape[1]).to(mask.device, torch.float32)
    if prunes:
        # TRL divides by the tokens of the whole batch, counted before anything was left out
        counted = mask.sum(dim=1) * credit.kept_PG.flatten()[own].to(mask.device)
        out["num_items_in_batch"] = gather(counted.sum()).sum()
    out["sample"] = torch.arange(places.start, places.stop, device=mask.device)
    return out


def reward(**_: object) -> list[float]:
    """Exists only as a name in TRL's log: `_calculate_rewards` returns the rewards.

    Raises:
        AssertionError: TRL called it.
    """
    raise AssertionError("TRL called the placeholder reward: its `_calculate_rewards` is no longer ours")
