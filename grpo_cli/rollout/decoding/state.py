"""The state of the running samples, as tensors on the device. A decode step reads and writes nothing else, so one
captured CUDA graph serves every step. A row whose sample has ended writes to a sink row until the host refills it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import Decode, KeyValueStore
from grpo_cli.rollout.decoding.sampling import sample
from grpo_cli.rollout.engine import SamplingSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from grpo_cli.rollout.decoding.rollout_mode import Forward
    from grpo_cli.rollout.mixing import Mixer


@dataclass(slots=True)
class Rows:
    """For each row: the next input token, its column, the sample in the row, and that sample's number of tokens."""

    token: Tensor
    position: Tensor
    sample: Tensor
    step: Tensor
    index: Tensor

    @classmethod
    def empty(cls, rows: int, sink: int, device: torch.device) -> Rows:
        """All rows idle."""
        import torch

        zeros = [torch.zeros(rows, dtype=torch.long, device=device) for _ in range(3)]
        return cls(zeros[0], zeros[1], torch.full_like(zeros[0], sink), zeros[2], torch.arange(rows, device=device))

    def idle(self, where: Tensor | slice, sink: int) -> None:
        """Mark these rows, [n] indices or a slice, as idle; their steps write to the sink."""
        self.sample[where] = sink
        self.position[where] = 0
        self.step[where] = 0

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copies rows `sources` [n] over rows `targets` [n]."""
        for column in (self.token, self.position, self.sample, self.step):
            column[targets] = column[sources]

    def snapshot(self) -> list[Tensor]:
        """Copies for `restore`: four of [N] int64."""
        return [column.clone() for column in (self.token, self.position, self.sample, self.step)]

    def restore(self, before: list[Tensor]) -> None:
        """Restores a snapshot, four of [N], in place: a captured graph reads these tensors."""
        for column, old in zip((self.token, self.position, self.sample, self.step), before, strict=True):
            column.copy_(old)


@dataclass(slots=True)
class Outputs:
    """For each sample: its uniform numbers, its tokens and log-probs, and their number. The last row is the sink."""

    uniform: Tensor
    tokens: Tensor
    logps: Tensor
    count: Tensor

    @classmethod
    def empty(cls, samples: int, steps: int, device: torch.device) -> Outputs:
        """Room for `samples` samples of `steps` tokens."""
        import torch

        # one more, the sink: a captured step has no branches, so idle rows write there
        size = (samples + 1, steps)
        return cls(
            uniform=torch.zeros(size, device=device),
            tokens=torch.zeros(size, dtype=torch.long, device=device),
            logps=torch.zeros(size, device=device),
            count=torch.zeros(samples + 1, dtype=torch.long, device=device),
        )

    @property
    def sink(self) -> int:
        """The index that belongs to no sample."""
        return int(self.tokens.shape[0]) - 1


@dataclass(slots=True)
class Batch:
    """Everything a step touches."""

    store: KeyValueStore
    rows: Rows
    out: Outputs
    is_end: Tensor
    columns: Tensor
    settings: SamplingSettings
    seen: Tensor | None = None
    fused_accept: Callable[[Batch, Tensor], None] | None = None
    graphs: dict[tuple[int, int], Callable[[], None]] = field(default_factory=dict)
    mixer: Mixer | None = None
    """Where inputs are mixed."""


def decode(batch: Batch, forward: Forward, rows: int, length: int, *, masked: bool, column: int | None = None) -> None:
    """One token for each of the first `rows` rows, with attention over `length` columns. `masked`: some of these lie
    beyond a row's own column. `column`: the column that all rows write, if it is the same."""
    state = batch.rows
    position = state.position[:rows]
    # fused attention reads each row's own last column; plain attention needs a mask if they differ
    mask = None
    if masked and batch.store.attention is None:
        hidden = batch.columns[:length] > position[:, None]
        mask = hidden.to(batch.store.layout.dtype).masked_fill_(hidden, float("-inf"))[:, None, None]
    phase = Decode(batch.store, state.index[:rows], position, length, mask, column)
    mixer = batch.mixer
    with mixer.feeding(state.sample[:rows], state.step[:rows]) if mixer is not None else nullcontext():
        logits = forward(phase, state.token[:rows, None], position[:, None])
    # the fused sampler has no truncation, which needs a sort or a whole softmax
    if batch.fused_accept is not None and mixer is None and not batch.settings.truncates and logits.stride(-1) == 1:
        batch.fused_accept(batch, logits)
    else:
        accept(batch, logits, slice(0, rows))


def accept(batch: Batch, logits: Tensor, where: slice | Tensor) -> None:
    """Samples from the logits, writes tokens and log-probs out, and moves the rows on; ended rows go to the sink.

    Args:
        batch: changed in place: its rows, its outputs, and the tokens its penalty has seen.
        logits: [n, V], of any float type.
        where: which of the rows they are of: a slice, or [n] indices.
    """
    import torch

    # idle rows are computed too: their tokens go to the sink, which nobody reads
    state, out = batch.rows, batch.out
    sample_id, step = state.sample[where], state.step[where]
    seen = None if batch.seen is None else batch.seen[where]
    token, logp = sample(logits.float(), out.uniform[sample_id, step], batch.settings, seen)
    if batch.mixer is not None:
        token, logp = batch.mixer.step(logits.float(), token, logp, sample_id, step, out.tokens)
    out.tokens[sample_id, step] = token
    out.logps[sample_id, step] = logp
    out.count[sample_id] = step + 1
    if batch.seen is not None:
        # A Python `True` would be copied from the host, which a capture does not allow.
        batch.seen[state.index[where], token] = torch.ones_like(token, dtype=torch.bool)
    # the sink's own rows compute on and are never live again by themselves
    going = ~(batch.is_end[token] | (step + 1 >= batch.settings.max_tokens) | (sample_id == out.sink))
    state.token[where] = token
    # arithmetic instead of boolean indexing: in a captured graph no size may depend on a value
    state.position[where] = (state.position[where] + 1) * going
    state.step[where] = (step + 1) * going
    state.sample[where] = (sample_id - out.sink) * going + out.sink
