"""The in-process engine: each prompt goes through the model once, its samples decode from one preallocated cache, and
the row of a finished sample is closed or refilled at once. It reads the training weights and keeps no copy.

How this works: `generate` checks the requests, checks that the weights have not moved in memory, and allocates a cache
of rows x columns (`_make_room`), output buffers, and a `Batch` for the settings; each is reused from the previous call
if it is large enough. One uniform number for each sample and step goes to the device. Then a `ContinuousBatch` runs
until all samples have ended. `make_graph_engine` decides which fused kernels and captured graphs are used for this
model and machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.modes import causal_model, numerics
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.rollout.decoding.cache import CacheLayout, FusedAttention, KeyValueStore
from grpo_cli.rollout.decoding.rollout_mode import Forward, fingerprint, rollout_mode
from grpo_cli.rollout.decoding.sampling import sample_keys, uniforms
from grpo_cli.rollout.decoding.state import Batch, Outputs, Rows
from grpo_cli.rollout.decoding.supports import measure_layout, supports
from grpo_cli.rollout.engine import (
    CannotDrive,
    Completion,
    OnFinish,
    OnProgress,
    Request,
    SamplingSettings,
    check_requests,
    check_settings,
)
from grpo_cli.rollout.fused.merged_weights import MergedWeights
from grpo_cli.rollout.fused.patches import Patch, patched
from grpo_cli.rollout.graph.caches import SHARE, EpisodeCache, PackedStore, episode_cache_for, free_bytes, rows_that_fit
from grpo_cli.rollout.graph.continuous_batch import ContinuousBatch, Schedule, TurnBatch
from grpo_cli.rollout.graph.stepper import EagerStepper, Stepper
from grpo_cli.rollout.mixing import Mixer
from grpo_cli.rollout.stop_words import stop_words

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from grpo_cli.policy.contract import Tokenizer

CPU_ROWS, CUDA_ROWS, CUDA_PREFILL = 256, 1024, 32768
"""Defaults: samples that decode at once, and tokens of a prefill."""
COLUMN_STEP = 64
KEPT_SETTINGS = 4
"""Number of settings whose batches, with captured graphs, are kept: training, evaluation and two more."""


class GraphEngine:
    """`max_rows`: most samples that decode at once; memory may allow fewer. The cache, and on CUDA the captured graphs,
    are kept between calls and recreated when a call needs a larger cache or a weight has moved in memory."""

    kind = ENGINES["graph"]

    def __init__(
        self,
        model: nn.Module,
        end_ids: Collection[int],
        *,
        max_rows: int = 256,
        prefill_tokens: int = 8192,
        cache_bytes: int | None = None,
        autocast: torch.dtype | None = None,
        attention: FusedAttention | None = None,
        stepper: Stepper | None = None,
        patches: Sequence[Patch] = (),
        accept: Callable[[Batch, Tensor], None] | None = None,
        merged: MergedWeights | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.model, self.end_ids, self.tokenizer = model, sorted(end_ids), tokenizer
        self.max_rows, self.prefill_tokens, self.cache_bytes = max_rows, prefill_tokens, cache_bytes
        self.autocast, self.attention, self.patches, self.accept = autocast, attention, patches, accept
        self.merged = merged
        self.forward = Forward(model)
        self.stepper: Stepper = stepper or EagerStepper(self.forward)
        base: Any = causal_model(model)
        self.context: int | None = getattr(base.config.get_text_config(), "max_position_embeddings", None)
        self.vocabulary: int = base.get_input_embeddings().num_embeddings
        self._weights: tuple[object, ...] = ()
        self._layout: CacheLayout | None = None
        self._store: KeyValueStore | None = None
        self._episode_cache: EpisodeCache | None = None
        self._asked = 0
        self._out: Outputs | None = None
        self._batches: dict[SamplingSettings, Batch] = {}

    def generate(
        self,
        requests: Sequence[Request],
        settings: SamplingSettings,
        on_finish: OnFinish | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[list[Completion]]:
        """Completions in the order of the requests, `n` for each."""
        check_settings(settings)
        check_requests(requests, settings, context=self.context, vocabulary=self.vocabulary)
        schedule = Schedule(requests)
        if not schedule.total:
            return [[] for _ in requests]
        # once a call: an optimizer step lies between two calls, never inside one
        if self.merged is not None:
            self.merged.refresh()
        patches = [*self.patches, *(self.merged.patches() if self.merged is not None else [])]
        stepper: Stepper = self.stepper
        if settings.mix is not None:
            # what goes into the model is looked at in each step, which no captured graph and no kernel of ours has a place for
            stepper, patches = EagerStepper(self.forward), list(self.patches) if self.attention is None else []
        with numerics(self.model, self.autocast), rollout_mode(self.model), patched(patches):
            batch = self._batch(requests, settings, schedule.total)
            parts = (batch, self.forward, stepper, requests, schedule)
            stops = stop_words(settings.stop, self.tokenizer)
            # turns of episodes continue from their cache, if there is memory for one
            cache, slot = None, requests[0].slot
            if slot is not None:
                cache = self._episode_cache = episode_cache_for(self._episode_cache, batch.store.layout, slot)
            run = ContinuousBatch(*parts, stops) if cache is None else TurnBatch(*parts, stops, cache)
            finished = run.finish_all(self.prefill_tokens, on_finish, on_progress)
        done: list[list[Completion]] = [[] for _ in requests]
        for sample, completion in enumerate(finished):
            done[schedule.request_of[sample]].append(completion)
        return done

    def release(self) -> None:
        """Frees the cache, the graphs and half-precision copies; the next call recreates them."""
        self._forget()
        self._episode_cache = None
        self._asked = 0
        if self.merged is not None:
            self.merged.release()

    def make_way(self) -> None:
        """Gives all that back where it is more than what is free beside it: an update comes, and needs it."""
        store = self._store
        free = None if store is None else free_bytes(store.layout.device)
        if store is not None and free is not None and store.layout.token_bytes * store.rows * store.columns > free:
            self.release()

    def _forget(self) -> None:
        self._batches.clear()
        self._store = self._out = None

    def _batch(self, requests: Sequence[Request], settings: SamplingSettings, total: int) -> Batch:
        import torch

        # captured graphs hold addresses of weights: if one has moved they read invalid memory
        weights = fingerprint(self.model)
        if weights != self._weights or self._layout is None:
            self._batches.clear()
            self._weights, self._layout = weights, measure_layout(self.model)
        longest = max(len(request.prompt_ids) for request in requests)  # `prefix` is within `max_tokens`
        # an episode grows: allocate for its whole length at once
        whole = max((request.slot.columns for request in requests if request.slot), default=0)
        # one less: the last token of a sample is never an input
        columns = max(longest + settings.max_tokens - 1, whole)
        self._make_room(self._layout, min(total, self.max_rows), columns)
        out = self._out
        if out is None or out.sink < total or out.tokens.shape[1] < settings.max_tokens:
            # the captured graphs write into the old buffers
            self._batches.clear()
            self._out = Outputs.empty(total, settings.max_tokens, self._layout.device)
        # seed and stop texts are not part of a captured step: they enter through buffers and scans
        key, seed = dataclasses.replace(settings, seed=None, stop=()), settings.seed
        if key not in self._batches:
            # each has its captured graphs, which hold memory
            if len(self._batches) >= KEPT_SETTINGS:
                self._batches.clear()
            store, out, device = self._store, self._out, self._layout.device
            assert store is not None and out is not None
            is_end = torch.zeros(self.vocabulary, dtype=torch.bool, device=device)
            # a tokenizer may have end tokens that the model has no embedding for
            is_end[[token for token in self.end_ids if token < self.vocabulary]] = True
            shape = (store.rows, self.vocabulary)
            self._batches[key] = Batch(
                store=store,
                rows=Rows.empty(store.rows, out.sink, device),
                out=out,
                is_end=is_end,
                columns=torch.arange(store.columns, device=device),
                settings=key,
                seen=torch.zeros(shape, dtype=torch.bool, device=device) if settings.penalises else None,
                fused_accept=self.accept,
            )
        batch = self._batches[key]
        if seed is None:
            seed = int(torch.randint(2**62, ()).item())
        # drawn on the host: CPU and CUDA draw the same samples from the same logits
        table = torch.from_numpy(uniforms(sample_keys(requests, seed), settings.max_tokens))
        batch.out.uniform[:total, : settings.max_tokens] = table.to(self._layout.device)
        if settings.mix is not None:
            # one more sample at least than are asked for: the sink
            batch.mixer = Mixer(
                self.model,
                dataclasses.replace(settings, seed=seed),
                requests,
                batch.out.sink,
                self.tokenizer,
                self.end_ids,
            )
        return batch

    def _make_room(self, layout: CacheLayout, rows: int, columns: int) -> None:
        """Keeps the cache if it is large enough; otherwise allocates one for the largest call so far, if that fits."""
        import torch

        # rounded up, so that slightly longer prompts need no new cache
        columns = -(-columns // COLUMN_STEP) * COLUMN_STEP
        kept = self._store
        if kept is not None and kept.layout == layout and self._asked >= rows and kept.columns >= columns:
            return
        # the largest call so far, so that alternating training and evaluation do not recreate it each time
        most, widest = max(rows, self._asked), max(columns, kept.columns if kept is not None else 0)
        # free it before memory is measured: two caches would not fit
        self._forget()
        kept = None
        budget = self.cache_bytes
        if budget is None:
            free = free_bytes(layout.device)
            budget = None if free is None else int(free * SHARE)
        if budget is not None and layout.token_bytes * most * widest > budget:
            most, widest = rows, columns
        self._asked = most
        rows, columns = rows_that_fit(layout, most, widest, budget), widest
        while True:
            try:
                if layout.device.type == "cpu" and self.attention is None:
                    self._store = PackedStore(layout, rows, columns)
                else:
                    self._store = KeyValueStore(layout, rows, columns, self.attention)
                return
            except (torch.OutOfMemoryError, RuntimeError) as err:
                # a CPU that is out of memory raises a plain RuntimeError
                if "memory" not in str(err).lower():
                    raise
                if rows == 1:
                    raise SetupError(
                        f"no memory for the cache of one sample of {columns} tokens",
                        hint="lower `sample.max_tokens`, or use a smaller model",
                    ) from err
                # free memory may be fragmented; fewer rows cost time, but no samples
                rows //= 2


def make_graph_engine(
    model: nn.Module,
    ends: set[int],
    *,
    tokenizer: Tokenizer | None,
    max_rows: int | None,
    autocast: torch.dtype | None,
    note: Callable[[str], None],
    **_: object,
) -> GraphEngine:
    """The `rollout.make.Factory` of graph engines. On CUDA they have captured graphs and fused kernels if these work
    here; on other devices they run eagerly.

    Raises:
        CannotDrive: the engine cannot generate from this model.
    """
    from grpo_cli.rollout.fused.llama_cpu import checked_llama_cpu
    from grpo_cli.rollout.fused.self_check import (
        checked_accept,
        checked_attention,
        checked_backbone,
        checked_merged_weights,
        checked_patches,
    )
    from grpo_cli.rollout.graph.stepper import GraphStepper

    reason = supports(model)
    if reason is not None:
        raise CannotDrive(GraphEngine.kind.name, reason)
    if next(model.parameters()).device.type != "cuda":
        patches = checked_llama_cpu(model) if autocast is None else []
        rows = max_rows or CPU_ROWS
        return GraphEngine(model, ends, max_rows=rows, autocast=autocast, patches=patches, tokenizer=tokenizer)
    # every self-check runs in the dtype of training: a kernel may be right in one dtype only
    with numerics(model, autocast):
        merged, attention = checked_merged_weights(model, autocast, note), checked_attention(model, note)
        patches = checked_patches(model, note)
        patches += checked_backbone(model, autocast, attention, patches, merged)
        options: dict[str, Any] = {
            "max_rows": max_rows or CUDA_ROWS,
            "prefill_tokens": CUDA_PREFILL,
            "autocast": autocast,
            "tokenizer": tokenizer,
            "attention": attention,
            "patches": patches,
            "accept": checked_accept(model, note),
            "merged": merged,
        }
    engine = GraphEngine(model, ends, stepper=GraphStepper(Forward(model)), **options)
    try:
        # test a capture here on two samples of three tokens: if it fails, it fails now
        engine.generate([Request([0, 0], 2)], SamplingSettings(3, seed=0))
    except RuntimeError as err:
        note(f"decoding without CUDA graphs: {str(err).splitlines()[0][:100]}")
        return GraphEngine(model, ends, **options)
    engine.release()
    return engine
