"""The in-process engine: each prompt goes through the model once, its samples decode from one preallocated cache, and
a finished sample's row is closed or refilled at once. Reads the training weights themselves; keeps no copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError
from grpo_cli.train.rollout.bounds import check_requests, check_settings
from grpo_cli.train.rollout.cache import KeyValueStore
from grpo_cli.train.rollout.engine import Completion, OnFinish, OnProgress, Request, SamplingSettings
from grpo_cli.train.rollout.memory import SHARE, free_bytes, rows_that_fit
from grpo_cli.train.rollout.modelseat import Forward, causal_model, seated
from grpo_cli.train.rollout.noise import sample_keys, uniforms
from grpo_cli.train.rollout.run import Run
from grpo_cli.train.rollout.schedule import Schedule
from grpo_cli.train.rollout.state import Batch, Outputs, Rows
from grpo_cli.train.rollout.supports import measure_layout

if TYPE_CHECKING:
    import torch
    from torch import nn

COLUMN_STEP = 64


class GraphEngine:
    """Rows: how many samples decode at once at most (memory may allow fewer). The cache is kept between calls."""

    name = "graph"

    def __init__(
        self,
        model: nn.Module,
        end_ids: Collection[int],
        *,
        max_rows: int = 256,
        prefill_tokens: int = 8192,
        cache_bytes: int | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.model, self.end_ids = model, sorted(end_ids)
        self.max_rows, self.prefill_tokens, self.cache_bytes = max_rows, prefill_tokens, cache_bytes
        self.autocast = autocast
        self.forward = Forward(model)
        base: Any = causal_model(model)
        config = base.config.get_text_config()
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self.vocabulary: int = base.get_input_embeddings().num_embeddings
        self._store: KeyValueStore | None = None

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
        with seated(self.model), self._numerics():
            run = Run(self._batch(requests, settings, schedule.total), self.forward, requests, schedule)
            finished = run.finish_all(self.prefill_tokens, on_finish, on_progress)
        done: list[list[Completion]] = [[] for _ in requests]
        for sample, completion in enumerate(finished):
            done[schedule.request_of[sample]].append(completion)
        return done

    def release(self) -> None:
        """Gives the cache back; the next call makes it anew."""
        self._store = None

    def _numerics(self) -> AbstractContextManager[Any]:
        import torch

        if self.autocast is None:
            return nullcontext()
        return torch.autocast(next(self.model.parameters()).device.type, self.autocast)

    def _batch(self, requests: Sequence[Request], settings: SamplingSettings, total: int) -> Batch:
        import torch

        longest = max(len(request.prompt_ids) for request in requests)
        store = self._stored(min(total, self.max_rows), longest + settings.max_tokens - 1)
        device = store.layout.device
        seed = settings.seed
        if seed is None:
            seed = int(torch.randint(2**62, ()).item())
        table = torch.zeros(total + 1, settings.max_tokens)
        table[:total] = torch.from_numpy(uniforms(sample_keys(requests, seed), settings.max_tokens))
        out = Outputs(
            uniform=table.to(device),
            tokens=torch.zeros(total + 1, settings.max_tokens, dtype=torch.long, device=device),
            logps=torch.zeros(total + 1, settings.max_tokens, device=device),
        )
        logits = self.vocabulary
        is_end = torch.zeros(logits, dtype=torch.bool, device=device)
        is_end[[token for token in self.end_ids if token < logits]] = True
        seen = None
        if settings.penalises:
            seen = torch.zeros(store.rows, logits, dtype=torch.bool, device=device)
        return Batch(
            store=store,
            rows=Rows.empty(store.rows, total, device),
            out=out,
            is_end=is_end,
            columns=torch.arange(store.columns, device=device),
            settings=settings,
            seen=seen,
        )

    def _stored(self, rows: int, columns: int) -> KeyValueStore:
        """The kept cache if it is large enough, else a new one."""
        import torch

        layout = measure_layout(self.model)
        kept = self._store
        if kept is not None and kept.layout == layout and kept.rows >= rows and kept.columns >= columns:
            return kept
        self._store = kept = None
        columns = -(-columns // COLUMN_STEP) * COLUMN_STEP
        budget = self.cache_bytes
        if budget is None:
            free = free_bytes(layout.device)
            budget = None if free is None else int(free * SHARE)
        rows = rows_that_fit(layout, rows, columns, budget)
        while True:
            try:
                self._store = KeyValueStore(layout, rows, columns)
                return self._store
            except (torch.OutOfMemoryError, RuntimeError) as err:
                if "memory" not in str(err).lower():
                    raise
                if rows == 1:
                    raise SetupError(
                        f"no memory for the cache of one sample of {columns} tokens",
                        hint="lower `sample.max_tokens`, or use a smaller model",
                    ) from err
                rows //= 2
