"""The packed update's interface to the trainer: it answers TRL's requests for log-probs, and spreads a batch over
micro-batches.

How this works. `packed_source` decides once whether a run packs its rows: on CUDA, where the self-check passes and no setting needs the
model's own forward pass. `PackedSource` then lays out each micro-batch on a separate CUDA stream, while the device still computes the
previous one, and replays a captured graph where one fits.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.distributed.exchange import FlatGradients
from grpo_cli.policy.modes import causal_model
from grpo_cli.recipe.sections.course import keeps_whole
from grpo_cli.rollout.fused.patches import Patch
from grpo_cli.train.log_probs import LogProbRequest, LogProbs, LogProbSource, TrlLogProbs
from grpo_cli.train.packed.graphs import Graphs, NotCaptured
from grpo_cli.train.packed.layout import PackingPlan, plan, shape_for
from grpo_cli.train.packed.recompute import Keeping
from grpo_cli.train.packed.score import ScoreNumerics, score
from grpo_cli.train.packed.self_check import difference, replay_difference, unfit
from grpo_cli.train.trl_config import autocast_of
from grpo_cli.train.updates import Rows, by_group

if TYPE_CHECKING:
    from grpo_cli.train.loop import Loop

LONG = 8192
"""Tokens of one sequence from which on it runs without a graph."""


class PackedSource:
    """Log-probs from packed rows: replayed graphs where a gradient is wanted, else an eager pass in the same numbers;
    from `trl` where more is wanted or a row cannot be packed."""

    def __init__(
        self,
        model: nn.Module,
        numbers: ScoreNumerics,
        note: Callable[[str], None],
        trl: LogProbSource,
        *,
        captures: bool,
        joins: bool = True,
        flat: FlatGradients | None = None,
    ) -> None:
        """`flat` as in `Graphs`."""
        self.model, self.numbers, self.note, self.trl = model, numbers, note, trl
        self.plan = partial(plan, joins=joins)
        self.base: Any = causal_model(model)
        self.device = next(self.base.parameters()).device
        self.graphs = Graphs(model, numbers, flat) if captures else None
        self.aside = _Aside(self.device)

    def __call__(self, request: LogProbRequest, laid: PackingPlan | None = None) -> LogProbs:
        """The log-probs that TRL asks for, of rows that may have been laid out before."""
        if request.wants_more:
            return self.trl(request)
        # TRL may ask for fewer rows than were laid out; then the layout is made again
        if laid is not None and (laid.rows, laid.width) == (len(request.ids_BS), request.keep):
            return (*self._scored(laid), None)
        rows = request.rows or len(request.ids_BS)
        plans = [
            self.plan(ids, mask, request.keep)
            for ids, mask in zip(torch.split(request.ids_BS, rows), torch.split(request.mask_BS, rows), strict=True)
        ]
        # the answer is one tensor, so one row that cannot be packed sends the whole request to TRL
        found = [self._scored(laid) for laid in plans if laid is not None]
        if len(found) < len(plans):
            return self.trl(request)
        return torch.cat([f[0] for f in found]), torch.cat([f[1] for f in found]), None

    def _scored(self, laid: PackingPlan) -> tuple[Tensor, Tensor]:
        # a pass over one long row keeps the device busy without a graph, whose memory nothing else could use
        long = laid.need.is_one and laid.need.tokens > LONG
        if self.graphs is not None and torch.is_grad_enabled() and len(laid.at) and not long:
            try:
                logps, entropies, shape = self.graphs.score(laid)
            except (torch.OutOfMemoryError, NotCaptured) as err:
                why = str(err) if isinstance(err, NotCaptured) else "their memory is not there"
                self.graphs = None  # its memory is free for the pass below
                self.note(f"the update runs without CUDA graphs: {why}")
            else:
                places = laid.places(shape.targets, self.device)
                return places.put(logps), places.put(entropies).detach()
            # the graphs' pool is released only when nothing refers to them any more
            gc.collect()
            torch.cuda.empty_cache()
        # no gradient is needed, or no graph fits: run an eager pass in the same dtype
        shape = shape_for(laid.need)
        logps, entropies = score(self.base, laid.fill(shape, self.device), self.numbers)
        places = laid.places(shape.targets, self.device)
        return places.put(logps), places.put(entropies).detach()

    def redistributed(self, batches: list[Rows], window: int, group: int | None, drops_dead: bool) -> list[Rows]:
        """The rows of each optimizer step so that samples of a prompt share a micro-batch, of about as many tokens each;
        as they are without the size of a group."""
        if group:
            batches = by_group(batches, window, group, drops_dead)
        # from here on the rows are complete, and may be read while the device is busy
        self.aside.mark()
        return batches

    def ahead(self, prepare: Callable[[], tuple[Rows, float]]) -> tuple[tuple[Rows, float], LogProbSource]:
        """The micro-batch after `prepare`, and a source for its log-probs that was laid out before the loss runs."""
        with self.aside.reading():
            rows, share = prepare()
            ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
            mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
            laid = self.plan(ids, mask, rows["completion_ids"].shape[1])
        if self.aside.stream is not None:
            for value in rows.values():
                if torch.is_tensor(value) and value.is_cuda:
                    # made on the reading stream: the allocator must not give it away before the computing one is done
                    value.record_stream(torch.cuda.current_stream())
        return (rows, share), partial(self, laid=laid)


class _Aside:
    """A second stream. What is read on it was there when `mark` was last called."""

    def __init__(self, device: torch.device) -> None:
        self.stream: Any = None
        self.ready: Any = None
        if device.type == "cuda":
            self.stream, self.ready = torch.cuda.Stream(device), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def mark(self) -> None:
        """Mark the work launched so far: later readers see its results."""
        if self.ready is not None:
            self.ready.record()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside, the host waits for what it reads here, not for all that the device has still to do."""
        if self.stream is None:
            yield
            return
        self.stream.wait_event(self.ready)
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)


def packed_source(
    loop: Loop,
    model: nn.Module,
    args: GRPOConfig,
    fused: list[Patch],
    keeping: Keeping,
    flat: FlatGradients | None,
    asked: dict[str, bool],
    *,
    absolute: bool,
) -> PackedSource | None:
    """The packed update for a CUDA device, if its self-check on this model passes; otherwise None, and the screen shows
    the reason.

    Args:
        keeping: what lies in memory between the passes.
        flat: as in `Graphs`.
        asked: settings of the trainer that need the model's own forward pass, and whether it has them.
        absolute: as in `TrlLogProbs`.
    """
    if next(model.parameters()).device.type != "cuda":
        return None
    exact_head = bool(args.cast_lm_head_to_fp32) or loop.recipe.model.head == "float32"
    numbers = ScoreNumerics(autocast_of(args), args.temperature, exact_head, keeping)
    note = partial(loop.display.note, "info")
    # settings of the run that need the model's own forward pass
    asked |= {
        "gradient checkpointing of its own kind": args.gradient_checkpointing,
        "torch.compile": args.torch_compile,
        "mixed inputs": bool(loop.recipe.sample.mixed),
        "a teacher of whole distributions": loop.recipe.distil is not None and loop.recipe.distil.loss == "topk",
    }
    found = [name for name, wanted in asked.items() if wanted]
    why: str | None
    if not keeps_whole(loop.recipe.launch.strategy):
        why = f"`launch.strategy: {loop.recipe.launch.strategy}` keeps shares"
    elif found:
        why = f"the recipe asks for {found[0]}"
    else:
        why = unfit(model, numbers) or difference(model, numbers, fused)
    if why is not None:
        note(f"the update pads its rows: {why}")
        return None
    # what goes to the host is as long as rows are, and its copies are no part of a graph
    uncaptured = None if numbers.keeping.offload else replay_difference(model, numbers, fused)
    if uncaptured is not None:
        note(f"the update runs without CUDA graphs: {uncaptured}")
    captures = uncaptured is None and not numbers.keeping.offload
    # rows are alone where the recipe puts one into a micro-batch; elsewhere those that are left alone run as the others do
    joins = args.per_device_train_batch_size == 1
    if joins:
        apart = difference(model, numbers, fused, joined=True)
        if apart is None and captures:
            apart = replay_difference(model, numbers, fused, joined=True)
        if apart is not None:
            note(f"a row alone runs as two sequences: {apart}")
        joins = apart is None
    trl = TrlLogProbs(absolute)
    return PackedSource(model, numbers, note, trl, captures=captures, joins=joins, flat=flat)
