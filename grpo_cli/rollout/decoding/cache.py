"""Keys and values of every running sample in one preallocated buffer a layer: row i holds sample i's tokens from
column 0 on, without left padding, so that a row can be copied, moved and refilled without touching the others.

How this works: a forward pass has a phase. `Prefill` spreads whole prompts over the rows of their samples, `Extend`
appends several tokens to each row, `Decode` appends one; `CacheProbe` only records shapes. Each layer of the model
passes its new keys and values to transformers' `Cache.update`, which `hugging_face_cache` redirects to the `write` of
the phase. The layer attends to the result of `write` (`attention.py`). `AttentionForm` holds a layer's features beyond
the plain softmax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from torch import Tensor


# Features of a layer's attention beyond the softmax of scaled products: a window (Mistral, Gemma), a cap on its scores
# (Gemma 2), a learned extra score in the softmax's denominator (GPT-OSS).


@dataclass(frozen=True, slots=True, eq=False)
class AttentionForm:
    """`window`: a token sees itself and the `window` - 1 before it; `cap`: scores are cap x tanh(score / cap);
    `sinks` [heads]: an additional score that has no value vector."""

    window: int | None = None
    cap: float | None = None
    sinks: Tensor | None = None

    @classmethod
    def of(cls, extras: Mapping[str, object]) -> AttentionForm:
        """The form, read from the arguments that a layer passes to its attention function, by transformers' names."""
        window, cap, sinks = (extras.get(name) for name in ("sliding_window", "softcap", "s_aux"))
        if window is None and cap is None and sinks is None:
            return PLAIN
        return cls(cast("int | None", window), cast("float | None", cap), cast("Tensor | None", sinks))

    @property
    def is_plain(self) -> bool:
        """Whether it is the softmax alone."""
        return self.window is None and self.cap is None and self.sinks is None

    def seen(self, tokens: int, device: torch.device) -> Tensor:
        """[tokens, tokens], true where the row's token sees the column's."""
        import torch

        row, column = torch.arange(tokens, device=device)[:, None], torch.arange(tokens, device=device)
        seen = column <= row
        return seen if self.window is None else seen & (column > row - self.window)

    def capped(self, scores: Tensor) -> Tensor:
        """Scores [..., heads, tokens, columns] under the cap, in their own type (Gemma 2, arXiv 2408.00118, section 2)."""
        return scores if self.cap is None else (scores / self.cap).tanh() * self.cap

    def likelihood(self, scores: Tensor) -> Tensor:
        """Softmax over the columns, in float32.

        Args:
            scores: [..., heads, tokens, columns], scaled, capped, and -inf where a token does not see a column.

        Returns:
            float32 of the same shape; with sinks a row sums to less than 1.
        """
        import torch

        if self.sinks is None:
            return torch.softmax(scores, -1, dtype=torch.float32)
        # an additional column without a value, dropped after the softmax
        sinks = self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sinks], -1), -1, dtype=torch.float32)[..., :-1]


PLAIN = AttentionForm()


ZERO_AHEAD = 32
"""Number of columns that are zeroed at once."""


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The layout of one layer's cache: (heads, width) of keys and of values, and their dtype."""

    layers: int
    key: tuple[int, int]
    value: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes of cache for one token of one sample, in all layers together."""
        per_layer = self.key[0] * self.key[1] + self.value[0] * self.value[1]
        return int(self.layers * per_layer * self.dtype.itemsize)


FusedAttention = Callable[..., "Tensor"]
"""`rollout/fused/launch.py:fused_attention`: stores one new key and value a row, and computes attention over the row's
columns up to them."""


class KeyValueStore:
    """The buffers, [rows, heads, columns, width]. Columns are zeroed only when they come into use. They must be zeroed
    because a masked column is multiplied by probability 0 and must not be NaN; columns that no sample reaches cost no
    memory on a CPU."""

    def __init__(self, layout: CacheLayout, rows: int, columns: int, attention: FusedAttention | None = None) -> None:
        import torch

        self.layout, self.rows, self.columns = layout, rows, columns
        self.attention = attention
        self._zeroed = 0

        def buffers(shape: tuple[int, int]) -> list[Tensor]:
            size = (rows, shape[0], columns, shape[1])
            # `empty`: on a CPU untouched pages are never allocated
            return [torch.empty(size, dtype=layout.dtype, device=layout.device) for _ in range(layout.layers)]

        self.keys, self.values = buffers(layout.key), buffers(layout.value)

    def restart(self) -> None:
        """Forget everything stored."""

    def reach(self, columns: int, rows: int | None = None) -> int:
        """Makes the first `columns` columns of the first `rows` rows safe to read; returns how many to read."""
        if columns > self._zeroed:
            # zero some columns ahead: column by column would need one call for each token and layer
            upto = min(self.columns, max(columns, self._zeroed + ZERO_AHEAD))
            for buffer in (*self.keys, *self.values):
                buffer[:, :, self._zeroed : upto] = 0
            self._zeroed = upto
        return columns

    def copy_rows(self, sources: Tensor, targets: Tensor, columns: int) -> None:
        """Copies the first `columns` columns of rows `sources` [n] over rows `targets` [n], in every layer."""
        for buffer in (*self.keys, *self.values):
            buffer[targets, :, :columns] = buffer[sources, :, :columns]


@dataclass(slots=True)
class Prefill:
    """The phase in which whole prompts go through the model: prompt `prompt_of_row[i]` of the batch fills row
    `rows[i]`."""

    store: KeyValueStore
    rows: Tensor
    prompt_of_row: Tensor

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Copies each prompt into the rows of its samples; attention then runs on the prompts alone.

        Args:
            layer: which of the model's, from 0.
            keys: [prompts, heads, tokens, width], padded on the right.
            values: the same, with a width of its own.

        Returns:
            Both as they came.
        """
        # the padding after a prompt is stored too: its columns are overwritten before a token of the row sees them
        length = keys.shape[2]
        dtype = self.store.layout.dtype
        self.store.keys[layer][self.rows, :, :length] = keys.to(dtype)[self.prompt_of_row]
        self.store.values[layer][self.rows, :, :length] = values.to(dtype)[self.prompt_of_row]
        return keys, values


@dataclass(slots=True)
class Extend:
    """The phase that appends several tokens to each row: the tokens of row `rows[i]` go to the columns `positions[i]`;
    tokens after index `last[i]` are padding. Each token sees the columns up to its own, among the first `length`."""

    store: KeyValueStore
    rows: Tensor
    positions: Tensor
    last: Tensor
    length: int

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the new columns; padding behind a row's last new token is not stored.

        Args:
            layer: which of the model's, from 0.
            keys: [rows, heads, new tokens, width].
            values: the same, with a width of its own.

        Returns:
            All that the rows hold, [rows, heads, length, width], copied together.
        """
        import torch

        steps = torch.arange(self.positions.shape[1], device=self.positions.device)
        row, step = (steps[None] <= self.last[:, None]).nonzero(as_tuple=True)
        target, column = self.rows[row], self.positions[row, step]
        found = []
        for buffer, new in ((self.store.keys[layer], keys), (self.store.values[layer], values)):
            buffer[target, :, column] = new.transpose(1, 2)[row, step].to(buffer.dtype)
            found.append(buffer[self.rows, :, : self.length])
        return found[0], found[1]


@dataclass(slots=True)
class Decode:
    """The phase that appends one token to each row: row i writes column `position[i]` and sees the columns up to it, at
    most `length`. `column` is set when all rows write the same one."""

    store: KeyValueStore
    row: Tensor
    position: Tensor
    length: int
    mask: Tensor | None
    column: int | None = None

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the new column. A fused attention kernel stores it itself, so it gets keys and values unchanged.

        Args:
            layer: which of the model's, from 0.
            keys: [rows, heads, 1, width].
            values: the same, with a width of its own.

        Returns:
            The rows' live columns [rows, heads, length, width], views of the buffers.
        """
        if self.store.attention is not None:
            return keys, values
        buffer_k, buffer_v = self.store.keys[layer], self.store.values[layer]
        rows = keys.shape[0]
        if self.column is None:
            # by index: each row writes a column of its own
            buffer_k[self.row, :, self.position] = keys[:, :, 0].to(buffer_k.dtype)
            buffer_v[self.row, :, self.position] = values[:, :, 0].to(buffer_v.dtype)
        else:
            # by slice, which is a plain copy, no scatter
            buffer_k[:rows, :, self.column] = keys[:, :, 0]
            buffer_v[:rows, :, self.column] = values[:, :, 0]
        return buffer_k[:rows, :, : self.length], buffer_v[:rows, :, : self.length]


@dataclass(slots=True)
class CacheProbe:
    """Records the shapes that a model passes to its cache and each layer's form of attention; stores nothing."""

    seen: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    forms: dict[int, AttentionForm] = field(default_factory=dict)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns keys and values [1, heads, tokens, width] unchanged, and records their shapes."""
        self.seen[layer] = (keys, values)
        return keys, values


Phase = Prefill | Extend | Decode | CacheProbe


@functools.cache
def rollout_cache_class() -> Any:
    """The transformers `Cache` whose `update` writes through a phase; it is made with one."""
    # created once: a class is part of a reference cycle, so a class made for each pass would keep its phase, and with
    # it all keys and values, alive until the next garbage collection
    from transformers.cache_utils import Cache

    class RolloutCache(Cache):  # type: ignore[misc]
        """Only `update` is ever called: masks and positions are the engine's own."""

        def __init__(self, phase: Phase) -> None:
            # no layers: transformers would create them, and keep a second copy of all keys
            super().__init__(layers=[])
            self.phase = phase

        def update(
            self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
        ) -> tuple[Tensor, Tensor]:
            return self.phase.write(layer_idx, key_states, value_states)

    return RolloutCache
