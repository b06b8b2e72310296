"""Forward and backward pass of a packed row as CUDA graphs: a processor that is busy or slow costs nothing.

A micro-batch is two replays with TRL's loss between them. Gradients are added up in separate buffers, which become the
parameters' `.grad`; setting `.grad` to None (after an optimizer step or a skipped one) restarts the sum at 0. The
graphs read the weights in place, so a step needs no new capture.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from grpo_cli.distributed.exchange import FlatGradients, collect
from grpo_cli.policy.modes import causal_model
from grpo_cli.train.packed.layout import STEP, Packed, PackedShape, PackingPlan, shape_for
from grpo_cli.train.packed.score import ScoreNumerics, score

WARM = 2
"""Warm-up passes before a capture: kernels and workspaces that the first call creates cannot be captured."""


class NotCaptured(RuntimeError):
    """A pass that could not be captured; the message has the reason."""


class GraphMemory:
    """The memory of all captured passes, and the stream they are captured on: blocks go back to the stream they came from."""

    def __init__(self) -> None:
        self.id = torch.cuda.graph_pool_handle()
        self.stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.keeper: torch.cuda.CUDAGraph | None = None

    def capture(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        """While inside, what is launched on the device becomes the graph."""
        # another thread (verdicts, the display) may use the device meanwhile
        return torch.cuda.graph(graph, pool=self.id, stream=self.stream, capture_error_mode="thread_local")

    @contextmanager
    def working(self) -> Iterator[None]:
        """While inside, passes run on the stream and take their memory here, where a capture finds it again: taken elsewhere it
        would stay allocated in addition to that of the graphs. A tensor that outlives the pass must not lie here, where replays work."""
        if self.keeper is None:  # a pool lives while a graph has it
            self.keeper = torch.cuda.CUDAGraph()
            with self.capture(self.keeper):
                torch.zeros(1, device="cuda")
        self.stream.wait_stream(torch.cuda.current_stream())
        with (
            torch.cuda.stream(self.stream),
            torch.cuda.use_mem_pool(self),  # type: ignore[arg-type]  # it reads the id alone
            torch.autograd.set_multithreading_enabled(False),  # the pool serves this thread only
        ):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)


class Graphs:
    """The captured shapes of one model."""

    def __init__(self, model: nn.Module, numbers: ScoreNumerics, flat: FlatGradients | None = None) -> None:
        """`flat`: where the gradients are exchanged with other ranks."""
        self.base: Any = causal_model(model)
        self.numbers, self.flat = numbers, flat
        self.parameters = flat.parameters if flat else [p for p in model.parameters() if p.requires_grad]
        self.sums: list[Tensor | None] = [*flat.views] if flat else [None] * len(self.parameters)
        self.held: dict[PackedShape, CapturedGraph] = {}
        self.choice = ShapeChoice()
        self.pool = GraphMemory()
        self.hook = torch.zeros((), device="cuda", requires_grad=True)

    def score(self, plan: PackingPlan) -> tuple[Tensor, Tensor, PackedShape]:
        """Log-probs with their graph and entropies without, [N] each, and the shape that they are of.

        Only one micro-batch is in flight: its backward pass is over before the next call.

        Raises:
            NotCaptured: the shape is new and torch refused to capture it.
            torch.OutOfMemoryError: it does not fit.
        """
        captured = self._captured(plan)
        batch = plan.fill(captured.held.shape, self.hook.device)
        logps, entropies = _Replayed.apply(self.hook, captured, batch)  # type: ignore[no-untyped-call]
        return logps, entropies, captured.held.shape

    def _captured(self, plan: PackingPlan) -> CapturedGraph:
        shape = self.choice.of(self.held, plan.need, plan.rows * plan.width - plan.need.targets)
        if shape in self.held:
            self.held[shape] = self.held.pop(shape)  # move the shape to the end: the order is that of last use
            return self.held[shape]
        while len(self.held) >= MOST:
            del self.held[to_drop(self.held)]
        if self.held and shape.tokens > max(held.tokens for held in self.held):
            # larger than each: no block of theirs is as large as its, so that theirs would stay allocated next to it, while a
            # smaller shape that comes again finds its blocks in the larger's
            self.held.clear()
            self.pool = GraphMemory()
            gc.collect()  # tensors of the last replay that a loss still refers to
            torch.cuda.empty_cache()
        self.held[shape] = CapturedGraph(self, plan.fill(shape, self.hook.device))
        return self.held[shape]


class CapturedGraph:
    """Both passes of one shape."""

    def __init__(self, graphs: Graphs, batch: Packed) -> None:
        self.graphs = graphs
        self.held = Packed(batch.shape, batch.flat.clone())
        self.pull = torch.zeros(batch.shape.targets, device=batch.flat.device)
        parameters = graphs.parameters
        before = [p.grad for p in parameters]
        self.forward_graph, self.backward_graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        gc.collect()  # free passes that only a reference cycle keeps alive, with their tensors
        try:
            self._warm(parameters)
            renew_nodes(parameters)
            # two graphs, with TRL's loss between them: it is not captured, and decides what goes into the second
            with graphs.pool.capture(self.forward_graph):
                logps, entropies = score(graphs.base, self.held, graphs.numbers)
            with graphs.pool.capture(self.backward_graph):
                torch.autograd.backward(logps, self.pull)
            self.logps, self.entropies = logps.detach(), entropies.detach()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as err:
            raise NotCaptured(str(err).partition("\n")[0]) from err
        finally:
            for parameter, grad in zip(parameters, before, strict=True):
                parameter.grad = grad

    def _warm(self, parameters: list[nn.Parameter]) -> None:
        """Passes with a pull of 0, after which each parameter that takes part has its buffer as its gradient."""
        graphs = self.graphs
        renew_nodes(parameters)
        with graphs.pool.working():
            for parameter, total in zip(parameters, graphs.sums, strict=True):
                # gradients already summed in this optimizer step do not change: the passes add 0
                parameter.grad = total
            for _ in range(WARM):
                logps, _entropies = score(graphs.base, self.held, graphs.numbers)
                torch.autograd.backward(logps, self.pull)
            del logps, _entropies
        graphs.sums = [
            p.grad if p.grad is total or p.grad is None else p.grad.clone()
            for p, total in zip(parameters, graphs.sums, strict=True)
        ]
        for parameter, total in zip(parameters, graphs.sums, strict=True):
            parameter.grad = total
        if graphs.flat and any(total is not view for total, view in zip(graphs.sums, graphs.flat.views, strict=True)):
            raise NotCaptured("a gradient left the buffer that ranks exchange")

    def forward(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """Replayed on these rows: [N] log-probs and entropies, overwritten by the next call."""
        self.held.flat.copy_(batch.flat)
        self.forward_graph.replay()
        return self.logps, self.entropies

    def backward(self, pull: Tensor) -> None:
        """Adds the gradient of sum(pull * logps) to the parameters'; `pull` is [N]."""
        collect(self.graphs.parameters, self.graphs.sums)
        self.pull.copy_(pull)
        self.backward_graph.replay()


class _Replayed(torch.autograd.Function):
    """Connects the replays to a loss that is not captured. `hook` only gives the result a graph."""

    @staticmethod
    def forward(ctx: Any, hook: Tensor, captured: CapturedGraph, batch: Packed) -> Any:
        ctx.captured = captured
        logps, entropies = captured.forward(batch)
        entropies = entropies.clone()
        ctx.mark_non_differentiable(entropies)
        return logps.clone(), entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.captured.backward(grads[0])
        return None, None, None


def renew_nodes(parameters: list[nn.Parameter]) -> None:
    """Let the next pass make new nodes that add up the parameters' gradients.

    A node stays with its parameter for as long as any pass is held that reads it, and with the stream it was made on; a
    capture on another stream would have to wait for that one, which CUDA refuses. Passes that are held keep theirs.
    """
    for parameter in parameters:
        own = parameter.data
        other = torch.float32 if own.dtype != torch.float32 else torch.float16
        # torch drops the node where the type of the data changes, and has no call for it
        parameter.data = torch.empty(0, dtype=other, device=own.device)
        parameter.data = own


# Which captured shape a micro-batch runs in, and when it is worth a capture of its own. No device is used.

MOST = 8
"""Shapes held; they share one pool of memory."""
HEADROOM = 16
"""A shape that is larger than all others is captured a 16th larger than needed, as far as its rows could be longer."""
STEPS = 4, 8, STEP
"""Sizes that a capture is weighed for: many sizes share one of the coarse ones, whose padding adds up soon."""
CAPTURE = 10
"""Passes that a capture costs: two before it, the recording, and what the host does meanwhile. One H200 took about 0.85 s, which
is 8 passes of the 1.5B shape and 14 at 135M."""


@dataclass
class ShapeChoice:
    """Remembers the padding of each size."""

    vain: dict[tuple[int, int], int] = field(default_factory=dict)
    """Step and tokens of a size -> tokens that were padding beyond it in the shapes taken instead."""

    def of(self, held: Iterable[PackedShape], need: PackedShape, shorter: int) -> PackedShape:
        """The shape for rows that need `need`: one of those `held`, or one to capture.

        Args:
            held: shapes that are captured.
            need: sizes of the rows.
            shorter: tokens that their completions would have more if all were as long as the longest.
        """
        near = [shape for shape in held if shape.holds(need)]
        if not near:
            # a little larger than needed, so that micro-batches a little larger find it too
            more = min(need.tokens // HEADROOM, shorter)
            keys = need.keys + more * need.keys // need.tokens
            larger = PackedShape(need.tokens + more, keys, need.targets + more, need.sequences, need.longest)
            return shape_for(larger)
        found = min(near, key=lambda shape: shape.tokens)
        # what was lost to padding so far is set against what a capture costs, as in renting against buying
        for step in STEPS:
            own = shape_for(need, step)
            if own.tokens < found.tokens:
                vain = self.vain.get((step, own.tokens), 0) + found.tokens - own.tokens
                self.vain[step, own.tokens] = vain
                if vain >= CAPTURE * own.tokens:
                    del self.vain[step, own.tokens]
                    return own
        return found


def to_drop(held: Iterable[PackedShape]) -> PackedShape:
    """Of shapes in the order of their last use the first that is not the largest, which alone can hold what is largest."""
    shapes = list(held)
    largest = max(shapes, key=lambda shape: shape.tokens)
    return next((shape for shape in shapes if shape != largest), largest)
