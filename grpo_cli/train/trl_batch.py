"""The batch of a step in the shapes that TRL wants, and back.

How this works: TRL's data loader delivers empty rows (`EmptyRows`), since the loop chooses the rows itself. For TRL's
`_generate` this rank's stretch of the groups becomes `RankSamples`. TRL pads them, and its advantages and its mask are
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
    """A data set of so many rows without content. The rows are chosen in the loop: TRL's loader has only to deliver batches
    of the right size, and it reads a whole batch for each micro-batch."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, Prompt]:
        return {"prompt": "-"}

    def __getitems__(self, places: Sequence[int]) -> list[dict[str, Prompt]]:
        return [self[place] for place in places]


@dataclass(frozen=True)
class RankSamples:
    """This rank's stretch of a batch; a group may go on on the next rank."""

    completions: list[Completion]
    texts: list[str]
    prompt_ids: list[list[int]]
    prompts: list[Prompt]
    places: range

    @classmethod
    def of(cls, before: StepBatch, rows: Sequence[Row], places: range) -> RankSamples:
        """The samples at these places of the batch, counted group by group."""
        # group by group, as `A_PG.flatten()` counts: a place means the same sample everywhere
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
        answers: list[Prompt] = [[{"role": "assistant", "content": text}] if is_chat else text for text in self.texts]
        ids = _arrays([c.token_ids for c in self.completions])
        logps = [c.logps for c in self.completions] if with_logps else None
        # TRL multiplies its loss by this mask, so that observations of an environment have no gradient
        has_turns = any(c.episode is not None for c in self.completions)
        masks = [c.mask for c in self.completions] if has_turns else None
        return _arrays(self.prompt_ids), ids, masks, answers, logps, {}, None, []


def _arrays(lists: Sequence[list[int]]) -> list[NDArray[np.int64]]:
    """As arrays, of which torch makes a tensor in a tenth of the time; a list that comes again is read once."""
    # by identity: the samples of a group share one list of prompt ids
    made = {id(one): np.asarray(one, dtype=np.int64) for one in lists}
    return [made[id(one)] for one in lists]


def leave_out_cut(out: Batch, completions: Sequence[Completion], accelerator: Accelerator) -> None:
    """Take cut completions out of the loss (DAPO's overlong filtering). TRL's own switch looks at end tokens only, and would take
    an answer that a stop word ended for cut."""
    whole_B = torch.tensor([c.finish == "stop" for c in completions], device=accelerator.device)
    out["completion_mask"] = out["completion_mask"] * whole_B[:, None].int()
    # TRL has counted before the mask changed, and divides the loss by it
    out["num_items_in_batch"] = accelerator.gather(loss_mask(out).sum()).sum()


def put_credit(out: dict[str, Any], credit: Credit, places: range, *, prunes: bool) -> dict[str, Any]:
    """This rank's batch, whose samples stand at `places` of the whole, with advantages, (B,) or (B, T), and those places.

    `prunes`: samples that are left out do not count in the normaliser either; every rank has to call.
    """
    # a group may be split over ranks: places count through the whole batch
    own, mask = slice(places.start, places.stop), loss_mask(out)
    # TRL has made its own of the rewards. Ours are float64 up to here: the loss multiplies them by float32
    out["advantages"] = credit.rows(own, mask.shape[1]).to(mask.device, torch.float32)
    if prunes:
        # TRL divides by the tokens of the whole batch, counted before anything was left out
        counted = mask.sum(dim=1) * credit.kept_PG.flatten()[own].to(mask.device)
        out["num_items_in_batch"] = gather(counted.sum()).sum()
    out["sample"] = torch.arange(places.start, places.stop, device=mask.device)
    return out


def reward(**_: object) -> list[float]:
    """Named for TRL's log only: verdicts come from `_calculate_rewards`.

    Raises:
        AssertionError: TRL called it.
    """
    raise AssertionError("TRL called the placeholder reward: its `_calculate_rewards` is no longer ours")
