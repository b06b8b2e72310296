"""Converts the batch of a step to TRL's data format, and back.

How this works: TRL's data loader delivers empty rows (`EmptyRows`), since the loop chooses the rows itself. This rank's
part of the groups (`deal`) becomes `RankSamples`, for TRL's `_generate`. TRL pads them, and its advantages and its mask are
replaced by ours: `leave_out_cut` takes cut answers out of the loss mask, `put_credit` writes the advantages. B rows, T completion
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather
from numpy.typing import NDArray

from grpo_cli.algorithm.credit import Credit
from grpo_cli.algorithm.loss import PER_ROW, PER_TOKEN, Objective, loss_mask
from grpo_cli.data.images import RowImage
from grpo_cli.data.rows import Row
from grpo_cli.rollout.engine import Branch, Completion
from grpo_cli.train.log_probs import Batch
from grpo_cli.train.step import StepBatch
from grpo_cli.train.updates import dealt

if TYPE_CHECKING:
    from grpo_cli.train.loop import Loop

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
    """This rank's part of a batch; the samples of a group may be on several ranks. Of a harness's episode each row is a completion.

    `places` are the indices of its samples in the batch, counted group by group, in rising order, `of_rows` those of the samples
    that its rows belong to. `back` is the index of each sample of the batch among the samples gathered from all ranks, one rank
    after the other.
    """

    completions: list[Completion]
    texts: list[str]
    prompt_ids: list[list[int]]
    prompts: list[Prompt]
    places: list[int]
    of_rows: list[int]
    back: list[int]
    images: list[tuple[RowImage, ...]]

    @classmethod
    def of(
        cls,
        before: StepBatch,
        rows: Sequence[Row],
        deal: Sequence[list[int]],
        rank: int,
        whole: Callable[[int], int] = lambda n: n,
    ) -> RankSamples:
        """The samples of `rank`; `deal` has the indices of each rank, counted group by group; `whole` rounds up the number of rows."""
        # group by group, the order of `A_PG.flatten()`: an index means the same sample everywhere
        flat = [
            (completion, text, group.prompt_ids, rows[group.row])
            for group in before.groups
            for completion, text in zip(group.completions, group.texts, strict=True)
        ]
        order = [place for places in deal for place in places]
        found = [
            (one, text, ids if one.branch is None else one.branch.prompt_ids, row, place)
            for place, (completion, text, ids, row) in ((place, flat[place]) for place in deal[rank])
            for one in completion.rows
        ]
        # rows that count for nothing: the batch is cut into micro-batches of one size
        first, _, ids, row, place = found[0]
        empty = Completion(first.token_ids[:1], first.logps[:1], "stop", branch=Branch(ids[:1], ()))
        found += [(empty, "", ids[:1], row, place)] * (whole(len(found)) - len(found))
        return cls(
            [completion for completion, _, _, _, _ in found],
            [text for _, text, _, _, _ in found],
            [ids for _, _, ids, _, _ in found],
            [row.messages or row.prompt for _, _, _, row, _ in found],
            deal[rank],
            [place for _, _, _, _, place in found],
            sorted(range(len(order)), key=order.__getitem__),
            [row.images for _, _, _, row, _ in found],
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


def deal(prompts: Sequence[int], lengths: Sequence[int], alive: Sequence[bool], world: int) -> list[list[int]]:
    """The indices of the samples that each of `world` ranks trains on, in rising order: equally many, and about equally many tokens.

    Samples of a prompt stay together if possible, since the packed update computes a prompt once.

    Args:
        prompts: tokens of the prompt of each group.
        lengths: tokens of each completion, group by group.
        alive: whether the update computes the sample; a dropped one costs nothing.
        world: number of ranks, by which the number of samples is divisible.
    """
    size = len(lengths) // len(prompts)
    groups = [range(at, at + size) for at in range(0, len(lengths), size)]
    costs = [length if lives else 0 for length, lives in zip(lengths, alive, strict=True)]
    for prompt, rows in zip(prompts, groups, strict=True):
        first = next((row for row in rows if alive[row]), None)
        if first is not None:
            costs[first] += prompt
    return [sorted(places) for places in dealt(groups, costs, [len(lengths) // world] * world)]


def own_samples(before: StepBatch, loop: Loop, objective: Objective, parts: int) -> RankSamples:
    """This rank's samples; rows of a harness's episodes are as many as divide into `parts`. Every rank must call this."""
    groups, rows, ranks, world = before.groups, loop.rows, loop.ranks, loop.recipe.environment
    prompts = [len(group.prompt_ids) for group in groups]
    lengths = [len(completion.token_ids) for group in groups for completion in group.completions]
    alive = before.credit.alive_PG.flatten().tolist() if objective.drop_dead else [True] * len(lengths)
    if objective.loss in PER_TOKEN:
        # another loss in other micro-batches: the rows stay as they come
        prompts, lengths, alive = [0] * len(groups), [1] * len(lengths), [True] * len(lengths)
    # not by each: on another kind of processor the last bit of an advantage may be another, and a row be lost or come twice
    dealt_to = ranks.agreed(deal(prompts, lengths, alive, ranks.world))
    if world is None or not world.plays_itself:
        return RankSamples.of(before, rows, dealt_to, ranks.rank)
    # as many on every rank, for they gather
    return RankSamples.of(before, rows, dealt_to, ranks.rank, lambda n: -(-ranks.largest([n])[0] // parts) * parts)


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


def put_credit(
    out: dict[str, Any], credit: Credit, places: Sequence[int], *, prunes: bool, loss: str = ""
) -> dict[str, Any]:
    """This rank's batch, whose rows belong to the samples at `places` of the whole, with advantages, (B,) or (B, T), and those
    places. Rows of one episode share its advantage, by `episode_weights` of the `loss`.

    `prunes`: samples that are left out do not count in the normaliser either. Every rank must call this.
    """
    # a group may be split over ranks: places count through the whole batch
    own, mask = torch.tensor(places), loss_mask(out)
    A = credit.rows(own, mask.shape[1]).to(mask.device)
    if (weights_B := episode_weights(mask, own.to(mask.device), loss)) is not None:
        A = A * weights_B.view(-1, *[1] * (A.dim() - 1))
    # TRL has computed its own advantages. Ours are float64 up to here: the loss multiplies them by float32
    out["advantages"] = A.to(torch.float32)
    if prunes:
        # TRL divides by the tokens of the whole batch, counted before anything was left out
        counted = mask.sum(dim=1) * credit.kept_PG.flatten()[own].to(mask.device)
        out["num_items_in_batch"] = gather(counted.sum()).sum()
    out["sample"] = own.to(mask.device)
    return out


def episode_weights(mask_BT: torch.Tensor, places_B: torch.Tensor, loss: str) -> torch.Tensor | None:
    """(B,) float64 what makes a loss that averages B rows average their E episodes, each over all its tokens that count; None where
    nothing is to be changed.

    The loss of a row is proportional to its advantage. grpo and sapo divide a row's sum by its own tokens n and by B: times
    n B / (N E), with N tokens of the episode, that is a mean over episodes. dr_grpo and luspo divide by B alone.
    """
    rows, episodes = len(places_B), len(set(places_B.tolist()))
    if loss not in PER_ROW or rows == episodes:
        return None
    tokens_B, number_B = mask_BT.sum(dim=1).double(), places_B - places_B.min()
    if loss not in ("grpo", "sapo", "gmpo"):
        return torch.full_like(tokens_B, rows / episodes)
    whole = tokens_B.new_zeros(int(number_B.max()) + 1).index_add(0, number_B, tokens_B)
    return tokens_B / whole[number_B].clamp(min=1) * (rows / episodes)


def reward(**_: object) -> list[float]:
    """Exists only as a name in TRL's log: `_calculate_rewards` returns the rewards.

    Raises:
        AssertionError: TRL called it.
    """
    raise AssertionError("TRL called the placeholder reward: its `_calculate_rewards` is no longer ours")
