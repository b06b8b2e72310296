"""The requirements that are checked before weights are loaded, as one list: `grpo train` raises the first failure,
`grpo check` reports all.

Every check calls the module that the run uses later: packages, engine, device, webhook, run folder. Nothing here
imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo_cli.data.rows import named_sources
from grpo_cli.data.sources import refuse_missing
from grpo_cli.display.webhook import hook_url
from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.inspection import refuse_4bit, refuse_router_loss
from grpo_cli.policy.loading.packages import trainer_needs
from grpo_cli.recipe.reading.dump import stage_recipe
from grpo_cli.recipe.sections.method import ROUTER
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.vllm.server import check_vllm
from grpo_cli.run.folder import refuse_place


@dataclass(frozen=True, slots=True)
class Question:
    """A requirement of a run, with its name in `grpo check`; `ask` raises a UserError if it is not met."""

    check: str
    ask: Callable[[], object]


def questions(recipe: Recipe, processes: int, *, on_gpu: bool, begins: bool = True) -> Iterator[Question]:
    """The requirements of a run with this many processes on this machine.

    Args:
        recipe: its `stages` are checked too.
        processes: of all machines together.
        on_gpu: whether each process has a GPU.
        begins: whether the run has no folder yet.
    """
    for one in (recipe, *_stages(recipe)):
        for need in trainer_needs(one):
            yield Question("packages", need.require)
        if one.sample.engine_kind.through_trl:
            mode, device = one.sample.vllm.get("mode", "colocate"), "cuda" if on_gpu else "cpu"
            yield Question("engine", partial(check_vllm, mode, processes, device))
        yield Question("model", partial(refuse_4bit, one.model, on_gpu=on_gpu))
        if one.train.offload != "no" and not on_gpu:
            yield Question("memory", _refuse_offload)
        if one.train.method not in ("sft", "prefer"):
            yield Question("model", partial(refuse_router_loss, one.model, one.train.trl.get(ROUTER)))
        if one.run.webhook is not None:
            yield Question("run", partial(hook_url, one.run.webhook))
    yield Question("run", partial(refuse_place, recipe.run.dir, recipe.run.name if begins else None))


def _refuse_offload() -> None:
    raise SetupError("`train.offload` needs a CUDA device: on a CPU activations lie in its memory", hint="leave it out")


def sources(recipe: Recipe, base: Path | None) -> Iterator[Question]:
    """Whether every file is there that a recipe and its stages take rows from; no row is read."""
    for one in (recipe, *_stages(recipe)):
        named = [*named_sources(one.data, "train"), *(named_sources(one.data, "eval") if one.data.eval else ())]
        for section, phases in (("warmup", one.warmup), ("sft", one.sft)):
            named += [(f"{section}[{i}].data", p.data) for i, p in enumerate(phases or ()) if p.data is not None]
        named += [("monitor.canary", one.monitor.canary.rows)] if one.monitor.canary is not None else []
        named += [("prefer.data", one.prefer.data)] if one.prefer is not None and one.prefer.data else []
        for key, source in named:
            if not source.source.startswith("run:"):  # an earlier stage writes this run
                yield Question("rows", partial(refuse_missing, source, base, key))


def _stages(recipe: Recipe) -> Iterator[Recipe]:
    for at in range(len(recipe.stages or ())):
        yield stage_recipe(recipe, at, start=None, folder=Path(recipe.run.dir))
