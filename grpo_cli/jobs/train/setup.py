"""Creates the parts of a training run one after the other. Everything that can be refused is refused before the run has
a folder.

`connect` asks what this machine cannot do and joins the ranks. `open_train_job` loads the model and fits rows, canary and pairs
to it. `make_parts` makes engine and loop, and `make_trainer` the trainer for `train.method`: TRL's trainer around the
loop, or rounds of pairs or demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import TrainerCallback

from grpo_cli.curriculum.ads import Clusters
from grpo_cli.display.protocol import Display
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.distributed.replica import Replica
from grpo_cli.errors import UserError
from grpo_cli.jobs.open_job import JudgedRows, OpenJob, with_policy
from grpo_cli.jobs.refusals import questions
from grpo_cli.jobs.rows import load_canary, takes_rows
from grpo_cli.measure.clustering import clusters_of_run
from grpo_cli.policy.loading.adapter import adapter_folder, base_of, describe
from grpo_cli.policy.loading.coverage import coverage
from grpo_cli.policy.loading.failures import loading_failures
from grpo_cli.policy.model import load_model, pick_device
from grpo_cli.policy.positions import needs_positions
from grpo_cli.policy.threads import set_threads
from grpo_cli.recipe.arithmetic import STUCK_HINT, Batching, batching, plan, refuse_parts, stuck_weights, with_steps
from grpo_cli.recipe.beside import ALONE_HINT, trained_on_alone
from grpo_cli.recipe.sections.course import splits_parameters
from grpo_cli.recipe.sections.method import ROUTER, acts_on_every_row
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.rollout.engine import Engine
from grpo_cli.rollout.make import policy_engine
from grpo_cli.rollout.vllm.engine import VllmEngine, starting
from grpo_cli.rollout.vllm.server import Server, ServerWatch, check_model, server_of, watched
from grpo_cli.run.folder import RunFolder
from grpo_cli.train.log_probs import check_agreement
from grpo_cli.train.loop import Loop, RolloutParts
from grpo_cli.train.trainer import Trainer
from grpo_cli.train.trl_config import check_hooks, grpo_config, refuse_settings

if TYPE_CHECKING:
    from grpo_cli.train.prefer.rounds import RoundTrainer

MOST_SEEN = 2000
"""Number of training rows whose prompts are measured to choose the micro-batch size."""


def connect(recipe: Recipe, ranks: Ranks, *, resumes: bool) -> None:
    """Check the requirements on this machine, then join the other ranks; `resumes`: the run already has a folder.

    Raises:
        RecipeError: a field of `train.trl` that training does not take.
        SetupError: an unsupported version of TRL, a requirement of `questions` that is not met, or ranks that cannot be
        reached.
    """
    device = pick_device(ranks.local)
    check_hooks()
    on_gpu = device.type == "cuda"
    for question in questions(recipe, ranks.world, on_gpu=on_gpu, begins=not resumes):
        question.ask()
    set_threads(recipe.run.threads)
    ranks.connect()
    if recipe.train.runs_grpo and recipe.train.trl:
        refuse_settings(recipe, ranks.world, device)


def open_train_job(rows: JudgedRows, ranks: Ranks) -> tuple[OpenJob, Server | None]:
    """The job of a run, and its vLLM server if it uses one.

    Raises:
        DataError, SetupError: the rows do not fill a step, the folder of runs cannot be written, or model and server
            do not fit them or each other.
    """
    recipe, display = rows.recipe, rows.display
    # refused before a model is loaded, which may take minutes
    plan(recipe, len(rows.train.rows))
    canary = load_canary(recipe, rows.base, rows.judge, display, rows.train.rows)
    server = server_of(recipe.sample, display.progress)
    display.progress("load model", 0, 1)
    policy = load_model(
        recipe.model,
        device=pick_device(ranks.local),
        seed=recipe.train.seed,
        accept=takes_rows(recipe, rows.splits),
        pixels=recipe.data.image_pixels,
    )
    display.progress("load model", 1, 1)
    folder = adapter_folder(recipe.model)
    if (stuck := stuck_weights(recipe, adapter=folder is not None)) is not None:
        display.note("warn", stuck, STUCK_HINT)
    for alone in trained_on_alone(recipe):
        display.note("warn", alone, ALONE_HINT)
    if folder is not None:
        display.note("info", describe(folder, base_of(recipe.model, recipe.train.seed)))
    if hasattr(policy.model, "peft_config"):
        display.note("info", coverage(policy.model).text())
    if server is not None:
        check_model(server, policy.model, policy.tokenizer, rows.train.rows[0].prompt)
    if policy.vision is None:
        needs_positions(policy.model)  # what padding would spoil is refused here
    job = with_policy(rows, policy, server.context if server is not None else None)
    recipe = with_steps(recipe, len(job.train.rows))
    if recipe.prefer is None or recipe.prefer.data is None:
        pairs = None
    else:
        from grpo_cli.train.prefer.pairs import PairSet

        pairs = PairSet.of_file(
            recipe.prefer.data,
            job.base,
            job.policy,
            job.train.rows,
            job.held_out.rows if job.held_out else (),
            recipe.sample.stop,
            lambda text: job.display.note("warn", text),
            recipe.train.seed if recipe.train.control == "shuffled" else None,
        )
    return replace(job, recipe=recipe, canary=canary, pairs=pairs), server


@dataclass(frozen=True)
class TrainParts:
    """The parts that sample and train; `engine` is used for evaluation, `vllm` for sampling if the recipe uses vLLM."""

    loop: Loop
    engine: Engine
    vllm: VllmEngine | None
    replica: Replica | None
    server: ServerWatch | None


def make_parts(
    job: OpenJob,
    run: RunFolder,
    ranks: Ranks,
    server: Server | None,
    abort: Callable[[UserError], None],
    *,
    resumes: bool = False,
) -> TrainParts:
    """Engine and loop on the trained weights; `abort` ends the process if the server is lost.

    `resumes`: the run continues from a checkpoint, so the policy is not its initial one.

    Raises:
        RecipeError, SetupError: an engine that cannot drive this model, or an option of a shaping term.
        DataError: rows that the recipe's selection cannot choose from.
    """
    recipe, policy, display = job.recipe, job.policy, job.display
    replica, whole, strategy = None, policy, recipe.launch.strategy
    if splits_parameters(strategy):
        replica = Replica(policy.model, policy.autocast)
        whole = replace(policy, model=replica.model)
        takes = f"a whole copy of the weights for rollouts takes {replica.megabytes:,.0f} MiB on each process"
        display.note("info", f"`{strategy}`: {takes}")
    through_trl = recipe.sample.engine_kind.through_trl
    engine = policy_engine(
        "auto" if through_trl else recipe.sample.engine,  # TRL's vLLM is not used for evaluation
        whole,
        lambda text: display.note("info", text),
    )
    watch = ServerWatch.of(server, recipe.stop.lost_s, abort)
    vllm = VllmEngine.of(policy, watch) if through_trl else None
    rollouts = RolloutParts(recipe, job.train.rows, job.train.golds, job.judge, vllm or engine, policy, ranks)
    if recipe.train.select != "ads":
        clusters = None
    else:
        found: Clusters | None = None
        if ranks.is_main:
            found = clusters_of_run(
                run.path,
                recipe,
                job.policy,
                job.train.rows,
                resumes=resumes,
                on_progress=lambda done, total: display.progress("embed rows", done, total),
            )
            sizes = sorted(map(len, found.members))
            ranked = "" if all(found.ranked) else f", {found.ranked.count(False)} ranked by first visits"
            display.note("info", f"{len(sizes)} clusters of {sizes[0]} to {sizes[-1]} rows{ranked}")
        # computed by rank 0 only: on different processors the last bits of a state may lead to another cluster
        clusters = ranks.agreed(found)
    loop = Loop.of(rollouts, run, display, clusters)
    return TrainParts(loop, engine, vllm, replica, watch)


def check_whole(recipe: Recipe, batch: Batching, world: int, display: Display) -> None:
    """Refuse terms that are exact only over a whole step if the step is split into micro-batches. A router's loss is
    defined over the rows of one forward pass: it is allowed, with a note.

    Raises:
        RecipeError: a term that would change if the step is split.
    """
    if ROUTER in acts_on_every_row(recipe.train.trl) and batch.accumulate * world > 1:
        display.note(
            "warn",
            f"`train.trl.{ROUTER}`: the router's loss is taken over {batch.micro} completions at a time, of"
            f" {batch.micro * batch.accumulate * world} a step; with another `sample.micro_batch` or number of processes"
            " the run trains on another one",
        )
    refuse_parts(recipe, batch, world)


def make_trainer(
    job: OpenJob,
    parts: TrainParts,
    run: RunFolder,
    callbacks: list[TrainerCallback],
    on_checkpoint: Callable[[Trainer | RoundTrainer, Path], None],
) -> Trainer | RoundTrainer:
    """The trainer for the recipe's method, around the loop.

    Raises:
        SetupError: no room on the disk for two checkpoints, or a library does not take the recipe.
    """
    # check now, not at the first save, which may be hours later
    checkpoint.check_space(run.path, checkpoint.checkpoint_bytes(job.policy.model))
    partial = run.path / "checkpoints" / checkpoint.PARTIAL
    recipe = job.recipe
    if recipe.train.method == "prefer":
        from grpo_cli.train.prefer.rounds import PairPasses, PairRounds, RoundSetup

        setup = RoundSetup(parts.loop, job.policy, partial, callbacks, on_checkpoint)
        return PairRounds(setup) if job.pairs is None else PairPasses(setup, job.pairs)
    if recipe.train.method == "sft":
        from grpo_cli.policy.coldstart import phase_rows
        from grpo_cli.train.prefer.rounds import RoundSetup, SupervisedTrainer

        held_out = job.held_out.rows if job.held_out else ()
        phases = phase_rows(recipe, "sft", job.train.rows, job.base, held_out)
        setup = RoundSetup(parts.loop, job.policy, partial, callbacks, on_checkpoint)
        return SupervisedTrainer(setup, phases)
    with loading_failures("no trainer can be made of this recipe"):
        policy, ranks = job.policy, parts.loop.ranks
        seen = job.train.rows[:MOST_SEEN] if policy.device.type == "cuda" else []  # a CPU takes the batch as a whole
        longest = max((len(policy.encode(row)) for row in seen), default=0)
        batch = batching(recipe, longest, ranks.world, on_gpu=policy.device.type == "cuda")
        check_whole(recipe, batch, ranks.world, job.display)
        started = starting(policy.model, policy.tokenizer) if parts.vllm else nullcontext()
        with started, watched(parts.server):
            trainer = Trainer(
                parts.loop,
                model=policy.model,
                args=grpo_config(recipe, partial, batch, policy.device, policy.autocast, policy.banned),
                tokenizer=policy.tokenizer,
                callbacks=callbacks,
                on_checkpoint=on_checkpoint,
                replica=parts.replica,
                vision=policy.vision,
            )
        if parts.vllm is not None:  # TRL corrects the loss for the difference of vLLM's log-probs
            parts.vllm.attach(trainer)
        else:
            check_agreement(trainer, parts.engine, policy, job.train.rows[0], recipe.sample.max_tokens)
        return trainer
