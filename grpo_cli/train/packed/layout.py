"""Padded rows to one long row.

    [prompt 0][prompt 1]..[completion 0][completion 1]..[padding up to the shape]

A prompt stands there once, whatever its number of completions. The last token of a completion predicts nothing and is
left out; its first one is predicted by its prompt's last token. Keys of a prompt are copied beside those of each of its
completions (`TokenCopies`), whose gradients are summed in a fixed order. Padding is more sequences of its own. A completion
that is alone with its prompt follows it without a break: both are one sequence, without copies, and padding is its end.

B rows of S = P + T tokens, N targets: the completions' tokens, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

STEP = 32
"""Sizes of shapes grow by a 32nd: at most 3 % of a captured pass is padding."""

Ints = np.ndarray[Any, np.dtype[np.int64]]


def rounded(size: int, step: int = STEP, multiple: int = 128) -> int:
    """The smallest of a geometric series of sizes, all of them multiples of `multiple`, that holds `size`."""
    at = multiple
    while at < size:
        at = max(at + multiple, (at + at // step) // multiple * multiple)
    return at


@dataclass(frozen=True)
class PackedShape:
    """All that fixes the sizes of tensors, and so what a captured graph can run."""

    tokens: int
    keys: int
    targets: int
    sequences: int
    longest: int

    @property
    def is_one(self) -> bool:
        """Whether all of it is one sequence, which attends to all that stands before."""
        return self.sequences == 1

    def holds(self, other: PackedShape) -> bool:
        """Whether rows that need `other` fit."""
        padding = self.tokens - other.tokens
        if self.is_one:
            return other.is_one and padding >= 0 and self.targets >= other.targets
        slots = -(-padding // self.longest)
        return (
            padding >= 0
            and self.keys >= other.keys + padding
            and self.targets >= other.targets
            and self.longest >= other.longest
            and self.sequences >= other.sequences + slots
        )

    @property
    def parts(self) -> tuple[int, ...]:
        """Sizes of the fields of `Packed` in its one tensor."""
        tokens, keys, targets, sequences = self.tokens, self.keys, self.targets, self.sequences
        ends = sequences + 1
        return (tokens, tokens, keys, keys, tokens + 1, ends, ends, targets, targets, tokens + 1, targets, targets)


@dataclass(frozen=True)
class TokenCopies:
    """Which token each place takes (places,), and for each token the places that took it: `order[starts[i]:starts[i+1]]`."""

    places: Tensor
    order: Tensor
    starts: Tensor


@dataclass(frozen=True)
class Packed:
    """A packed micro-batch; all of it is int64 and lies in the one tensor `flat`, so that it is copied in one go."""

    shape: PackedShape
    flat: Tensor

    @property
    def views(self) -> PackedFields:
        """The parts by name."""
        ids, positions, *rest = self.flat.split_with_sizes(self.shape.parts)
        keys, states = TokenCopies(*rest[:3]), TokenCopies(*rest[5:8])
        return PackedFields(ids, positions, keys, rest[3].int(), rest[4].int(), states, rest[8], rest[9].bool())


@dataclass(frozen=True)
class PackedFields:
    """What a pass reads."""

    ids: Tensor  # (tokens,)
    positions: Tensor  # (tokens,) in its own text
    keys: TokenCopies  # which token's key stands where
    cu_q: Tensor  # (sequences + 1,) int32, where sequences begin
    cu_k: Tensor  # (sequences + 1,) int32, where their keys begin
    states: TokenCopies  # which token's state predicts which target
    labels: Tensor  # (targets,)
    counts: Tensor  # (targets,) bool, not padding


@dataclass(frozen=True)
class PackingPlan:
    """Rows laid out, on the host, before a shape is chosen for them."""

    need: PackedShape
    rows: int
    width: int
    ids: Ints
    positions: Ints
    keys: Ints
    q_sizes: Ints
    k_sizes: Ints
    states: Ints
    labels: Ints
    at: Ints
    """(N,) where a target stands in the (B x T) of the batch."""
    pairs: float
    """Query-key pairs of all rows, each with its own prompt: what a plain pass computes."""

    def fill(self, shape: PackedShape, device: torch.device) -> Packed:
        """Padded up to a shape that holds it."""
        padding = shape.tokens - len(self.ids)
        sizes = [shape.longest] * (padding // shape.longest)
        sizes += [padding % shape.longest] if padding % shape.longest else []
        q_sizes, k_sizes = [*self.q_sizes, *sizes], [*self.k_sizes, *sizes]
        if shape.is_one:
            q_sizes = k_sizes = [shape.tokens]
        own = np.arange(len(self.ids), shape.tokens)
        places = np.concatenate([np.arange(size) for size in [*sizes, 0]])
        keys = np.concatenate([self.keys, own])
        parts = [
            _filled(self.ids, shape.tokens),
            np.concatenate([self.positions, places]),
            _filled(keys, shape.keys),
            *_inverse(self.keys, shape.tokens, shape.keys),
            _ends(q_sizes, shape.sequences),
            _ends(k_sizes, shape.sequences),
            _filled(self.states, shape.targets),
            *_inverse(self.states, shape.tokens, shape.targets),
            _filled(self.labels, shape.targets),
            _filled(np.ones_like(self.labels), shape.targets),
        ]
        return Packed(shape, _sent(np.concatenate(parts), device))

    def places(self, targets: int, device: torch.device) -> TargetPlaces:
        """How the targets of a filled shape stand in the rows of the batch."""
        of = np.full(self.rows * self.width, targets)
        of[self.at] = np.arange(len(self.at))
        at = np.full(targets, len(of))
        at[: len(self.at)] = self.at
        both = _sent(np.concatenate([of, at]), device)
        return TargetPlaces(both[: len(of)], both[len(of) :], self.rows, self.width)


@dataclass(frozen=True)
class TargetPlaces:
    """(B x T) `of`: the target that stands there, `targets` for none; (targets,) `at`: the way back."""

    of: Tensor
    at: Tensor
    rows: int
    width: int

    def put(self, values_N: Tensor) -> Tensor:
        """(targets,) to (B, T), 0 where none stands; differentiable."""
        placed: Tensor = _Put.apply(values_N, self)  # type: ignore[no-untyped-call]
        return placed


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, places: TargetPlaces) -> Tensor:
        ctx.places = places
        return _taken(values, places.of).view(places.rows, places.width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _taken(grads[0].reshape(-1), ctx.places.at), None


def _taken(values: Tensor, at: Tensor) -> Tensor:
    return torch.cat([values, values.new_zeros(1)]).index_select(0, at)


def plan(ids_BS: Tensor, mask_BS: Tensor, keep: int, *, joins: bool = True) -> PackingPlan | None:
    """Rows laid out: prompts left-padded, the last `keep` tokens a completion padded at its end; on the host.

    None where a mask has holes, which no layout can hold. `joins`: a row alone is laid as one sequence.
    """
    ids, mask = ids_BS.cpu().numpy(), mask_BS.cpu().numpy().astype(bool)
    rows, whole = ids.shape
    lead = whole - keep
    lengths, leads = mask[:, lead:].sum(1), mask[:, :lead].sum(1)
    # a prompt's padding must be on its left and a completion's on its right, with no hole in either
    ends_late = (mask[:, :lead] != (np.arange(lead) >= lead - leads[:, None])).any()
    if ends_late or (mask[:, lead:] != (np.arange(keep) < lengths[:, None])).any() or not leads.all():
        return None
    known: dict[bytes, int] = {}
    prompt_of = np.array([known.setdefault(ids[r, lead - leads[r] : lead].tobytes(), len(known)) for r in range(rows)])
    first = np.array([int(np.argmax(prompt_of == p)) for p in range(len(known))])
    # the last token of a completion predicts nothing and is not fed
    fed = np.maximum(lengths - 1, 0)
    sizes = np.concatenate([leads[first], fed])
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    begun, own = starts[: len(known)], starts[len(known) :]
    before = leads[first][prompt_of]  # tokens of each row's prompt
    source = np.concatenate([first * whole + lead - leads[first], np.arange(rows) * whole + lead])
    # keys: prompts their own, a completion its prompt's and its own; states: the prompt's last, then its own
    after = fed > 0
    key_starts = np.concatenate([begun, np.stack([begun[prompt_of], own], 1).ravel()])
    key_sizes = np.concatenate([leads[first], np.stack([before * after, fed], 1).ravel()])
    state_starts = np.stack([begun[prompt_of] + before - 1, own], 1).ravel()
    state_sizes = np.stack([(lengths > 0).astype(np.int64), fed], 1).ravel()
    k_sizes = np.concatenate([leads[first], (before + fed) * after])
    q_sizes = sizes
    if joins and rows == 1:  # its prompt stands before it already
        q_sizes = k_sizes = key_sizes = sizes.sum(keepdims=True)
        key_starts = np.zeros(1, np.int64)
    targets = _ranges(np.arange(rows) * whole + lead, lengths)
    totals = leads + lengths
    need = PackedShape(int(sizes.sum()), int(k_sizes.sum()), len(targets), len(q_sizes), int(k_sizes.max()))
    return PackingPlan(
        need=need,
        rows=rows,
        width=keep,
        ids=ids.ravel()[_ranges(source, sizes)],
        positions=_ranges(np.concatenate([np.zeros_like(begun), before]), sizes),
        keys=_ranges(key_starts, key_sizes),
        q_sizes=q_sizes,
        k_sizes=k_sizes,
        states=_ranges(state_starts, state_sizes),
        labels=ids.ravel()[targets],
        at=_ranges(np.arange(rows) * keep, lengths),
        pairs=float((totals * (totals + 1) / 2).sum()),
    )


def shape_for(need: PackedShape, step: int = STEP) -> PackedShape:
    """A shape of the series that holds what is needed; its tokens grow by one part of `step`."""
    tokens, longest = rounded(need.tokens, step), rounded(need.longest, 4)
    slots = -(-tokens // longest)  # smaller rows run in it as well, with more padding than these
    keys = rounded(need.keys + tokens - need.tokens, 8)
    targets = rounded(need.targets, step)
    if need.is_one:
        return PackedShape(tokens, tokens, targets, 1, tokens)
    return PackedShape(tokens, keys, targets, rounded(need.sequences + slots, 4, 16), longest)


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """starts[0], starts[0] + 1, … `sizes[0]` of them, then from starts[1]."""
    ends = np.cumsum(sizes)
    found: Ints = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    return found


def _filled(values: Ints, size: int) -> Ints:
    return np.concatenate([values, np.zeros(size - len(values), np.int64)])


def _ends(sizes: Sequence[int], sequences: int) -> Ints:
    """Where sequences begin and the last one ends; what is left is empty ones."""
    ends = list(accumulate(sizes, initial=0))
    return np.array(ends + ends[-1:] * (sequences + 1 - len(ends)))


def _inverse(places: Ints, tokens: int, size: int) -> tuple[Ints, Ints]:
    """`order` and `starts` of `TokenCopies`; places of padding are in nobody's list: they have no gradient."""
    # stable: copies of a token in the order of their places, so the sum of their gradients has one order
    order = np.argsort(places, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=tokens))])
    return _filled(order, size), starts


def _sent(values: Ints, device: torch.device) -> Tensor:
    found = torch.from_numpy(np.ascontiguousarray(values))
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found
