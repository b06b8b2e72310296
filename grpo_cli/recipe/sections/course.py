"""The sections `gate`, `eval`, `monitor`, `stop`, `run`, `launch` and `warmup`: the course of a run around its steps.

How this works: each class is a section of the recipe and each field a key, with its range in its type and its meaning below it; the
reference and `grpo explain` are made of these texts. The strategies of `launch` stand here with what each process holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from grpo_cli.errors import SetupError
from grpo_cli.recipe.sections.fields import Above0, Count, Section, Share, Whole, Words, one_of
from grpo_cli.recipe.sections.inputs import Source

if TYPE_CHECKING:
    pass


class Gate(Section):
    """What the model must show before its first step. `grpo probe` measures it; `grpo train` does so first and refuses."""

    pass_1: Annotated[
        list[Share], Field(alias="pass@1", min_length=2, max_length=2), one_of("two shares, `[low, high]`")
    ] = Field(default=[0.01, 0.95], alias="pass@1")
    """Lowest and highest share of right samples: below it there is little to reinforce, above it little to learn."""
    signal: Share = 0.2
    """Least share of groups with right and wrong answers that is predicted at `sample.group`."""
    truncated: Share | None = None
    """Largest share of samples that may be cut off at `sample.max_tokens`; left out, any."""
    no_answer: Share | None = None
    """Largest share of samples without an answer to judge; left out, any."""
    error: Share = 0.05
    """Largest share of samples without a verdict."""
    n: Whole = 64
    """Training prompts probed. Raising it narrows every interval."""
    samples: Annotated[int, Field(ge=2, le=256)] = 8
    """Samples of each prompt. Dead groups are measured up to this size, and extrapolated above it."""


class Expect(Section):
    """What whoever wrote the recipe measured; a run that ends elsewhere has finding W54."""

    step: Whole
    """The step whose held-out score is compared; a run that ends before it is not."""
    pass_1: Annotated[
        list[Share], Field(alias="pass@1", min_length=2, max_length=2), one_of("two shares, `[low, high]`")
    ]
    """Lowest and highest held-out sampled pass@1 that is no surprise, over seeds."""


class Eval(Section):
    """Held-out measurement."""

    every: Whole | None = None
    """Steps between evaluations; left out, only before and after."""
    between: Whole | None = None
    """Evaluations between the first and the last only sample the first this many held-out rows: they draw the curve and
    choose nothing, so that it has no effect beside `stop.patience` and `monitor.gold`, which compare. Left out, all are alike."""
    samples: Whole = 4
    """Completions of each held-out prompt. Raising it narrows the interval of pass@k."""
    k: list[Whole] = Field(default=[1, 4], min_length=1)
    """The k of pass@k; none above `samples`."""
    limit: Whole | None = None
    """Sample at most this many held-out rows; greedy takes all."""
    temperature: Above0 | None = None
    """Left out, `sample.temperature`."""
    greedy: bool = True
    """Also decode every held-out row once, greedily."""
    max_tokens: Whole | None = None
    """Left out, `sample.max_tokens`."""
    expect: Expect | None = None
    """The band in which the held-out score should end; left out, no band. A recipe that extends this one has its own or none."""


class KlMonitor(Section):
    """The KL to the model the run started from, measured where it is not penalised."""

    every: Whole = 10
    """Steps between measurements. Each scores its samples twice; a copy of the trained weights is kept."""
    rows: Whole = 32
    """Samples measured. Raising it makes the number steadier and costs time in proportion."""


class Canary(Section):
    """Prompts that are never trained on and asked all along: what the run must not change. Filled by the templates of `data`."""

    rows: Source = Field(alias="from")
    """Their rows: a file or another source, as in `data.train`."""
    verify: Words | None = None
    """Name of the verifier in `verify` that says what right is; left out, the primary one."""
    every: Whole = 10
    """Steps between looks. The first is before the first step, the last after the last one; a drop that is large and not yet
    significant is looked at again after each step."""
    samples: Whole = 4
    """Samples of each prompt. More prompts narrow the interval more than more samples."""
    drop: Share = 0.05
    """The drop of the share right, from the first look, above which a significant one is an alarm."""


Action = Literal["warn", "pause", "roll_back"]


class Monitor(Section):
    """What is measured beside training, without a part in it."""

    kl: Annotated[KlMonitor | Literal["off"], one_of("`off`, or `every` and `rows`")] = KlMonitor()
    """KL to the start; has no effect where `train.kl.beta` is above 0, which measures it every step."""

    gold: Words | None = None
    """Name of a verifier in `verify` with `weight: 0`; an alarm is raised when the primary one drifts from it on held-out rows."""
    canary: Canary | None = None
    """Prompts that are never trained on; an alarm is raised when significantly fewer of their samples are right than at the start."""
    on_alarm: Annotated[
        Action | dict[Literal["gold", "canary", "entropy", "length", "repetition", "saturation"], Action],
        one_of("`warn`, `pause` or `roll_back`, or one of these by monitor, such as `{gold: roll_back}`"),
    ] = "warn"
    """What an alarm does; by monitor, those left out warn. `pause` finishes the step, saves and stops with exit code 1; a resume
    goes on. `roll_back` takes the run back to the checkpoint with the best gold score (without `gold`, the best canary score) and ends there: chance depends on seed
    and step alone, so training on with the same verifier would repeat what it led to. Before the first step it pauses."""


class Stop(Section):
    """When to stop before the last step."""

    on: list[Literal["non_finite", "entropy_collapse", "dead_groups", "proxy_gold_gap"]] = Field(default=["non_finite"])
    """Findings that stop the run. Without `non_finite` such a step is skipped and counted."""
    patience: Whole | None = None
    """Stop after this many steps without a better held-out score."""
    hang_s: Above0 = 900.0
    """Say what is stuck, with stacks in the log, when nothing moved for this many seconds."""
    lost_s: Above0 = 120.0
    """With several machines, or a vLLM server: end when nothing was heard of one for this many seconds."""
    verifier_errors: Share = 0.05
    """Stop when more than this share of all samples so far got no verdict."""


class Run(Section):
    """Where the run is written, and how long it may take."""

    dir: Words = "runs"
    """Folder of run folders; a relative one counts from the current folder, not from the recipe's."""
    name: Words | None = None
    """Name of the run folder; left out, date, recipe (its folder, where the file is called `recipe`) and four letters."""
    save_every: Whole | None = None
    """Steps between checkpoints; left out, every five minutes. The last step is always saved."""
    keep: Whole = 2
    """Checkpoints kept."""
    track: list[Literal["tensorboard", "wandb", "trackio", "mlflow"]] = Field(default_factory=list)
    """Trackers that get the same numbers; mlflow writes `@` in a name as `_`."""
    report: bool = True
    """Write `report.html` into the run folder as the run ends (`grpo report`)."""
    webhook: Annotated[str, Field(pattern=r"^(https?://[^\s/]+\S*|env:[A-Za-z_]\w*)$")] | None = None
    """Address that gets a POST of JSON when the run ends, fails or raises an alarm; `env:NAME` reads it from a variable."""
    threads: Annotated[int, Field(gt=0, le=1024)] | None = None
    """CPU threads; left out, what the machine grants."""
    deadline: Annotated[str, Field(pattern=r"^\d+(\.\d+)?[smhd]?(\d+(\.\d+)?[smhd])*$")] | None = None
    """Save and stop after this time, such as `3h50m`."""


Strategy = Literal["ddp", "zero1", "fsdp2", "zero2", "zero3"]
DEEPSPEED = ("zero2", "zero3")
"""Those that DeepSpeed carries out, in an engine of its own."""


class Launch(Section):
    """Processes."""

    gpus: Annotated[Literal["auto"] | Whole, one_of("`auto` or a whole number above 0")] = "auto"
    """GPUs of this machine, one process each; `auto` takes as many as the completions of a step divide over."""
    cpu_ranks: Whole = 1
    """Processes where there is no GPU; more than 1 is for trying a many-process run on a CPU."""
    nodes: Whole = 1
    """Machines. The same command runs on each; `run.dir` and data must lie where all of them see them."""
    node_rank: Count | None = None
    """This machine's number, from 0; left out, Slurm's. Number 0 owns the run folder and the display."""
    rendezvous: Annotated[str, Field(pattern=r"^[^\s:]+:\d{1,5}$")] | None = None
    """`host:port` of machine 0, where the others find it; needed where `nodes` is above 1."""
    strategy: Strategy = "ddp"
    """How the processes share the training. `ddp`: each holds all of it. `zero1`: the optimizer state is shared out.
    `fsdp2`, `zero3`: each holds its share of parameters, gradients and optimizer state, beside a whole copy of the weights
    that generates. `zero2`: gradients and optimizer state are shared out, the weights are not. `zero2` and `zero3` need
    the extra `deepspeed`."""

    @property
    def several(self) -> list[str]:
        """Keys that ask for more than one process."""
        found = [key for key in ("gpus", "cpu_ranks", "nodes") if getattr(self, key) not in ("auto", 1)]
        return found if self.strategy == "ddp" else [*found, "strategy"]


class Demonstration(Section):
    """One kind of completion that the warm-up shows."""

    template: Words
    """Template over columns."""
    weight: Above0 = 1.0
    """Share among the demonstrations."""


class WarmupPhase(Section):
    """Supervised training on demonstrations before the first step."""

    data: Source | None = None
    """Rows; left out, the training rows."""
    demonstration: list[Demonstration] = Field(default_factory=list)
    """What a good completion looks like: a template, or several with weights. Left out with an `environment`: episodes in
    which the environment itself says how to act (`demonstrate`)."""
    steps: Whole
    """Optimizer steps of this phase."""
    lr: Above0
    """Learning rate at its highest."""
    muon_lr: Above0 | None = None
    """Learning rate of Muon on the weight matrices; left out, AdamW does all."""
    batch: Whole = 64
    """Rows of a step."""
    lr_warmup_steps: Count = 10
    """Steps over which the rate rises."""
    final_lr: Share = 0.1
    """Share of the rate that is left at the end."""
    limit: Whole | None = None
    """Use at most this many rows."""


STRATEGIES = {
    "ddp": "Each process holds all parameters, gradients and optimizer state; gradients are averaged once an update.",
    "zero1": "Each process holds all parameters and gradients, and the optimizer state of its share of the parameters (torch's"
    " ZeroRedundancyOptimizer). It updates those and sends them to the others. Rollouts read the weights in place.",
    "fsdp2": "Each process holds its share of parameters, gradients and optimizer state (torch's fully_shard, through"
    " accelerate); layers are gathered for their forward and backward pass. A whole copy of the weights beside the"
    " shards, in bfloat16 on a GPU, generates, is evaluated and is the KL's; it is renewed after each update. Each process loads the whole model first.",
    "zero2": "Each process holds all weights, and its share of gradients and optimizer state (DeepSpeed's ZeRO stage 2,"
    " through accelerate). Rollouts read the weights in place. Needs the extra `deepspeed`.",
    "zero3": "Each process holds its share of parameters, gradients and optimizer state (DeepSpeed's ZeRO stage 3,"
    " through accelerate), and a whole copy of the weights as with `fsdp2`. Needs the extra `deepspeed`.",
}
"""What each process holds."""


def check_processes(strategy: str, world: int) -> None:
    """Raises SetupError where the strategy cannot run with so many processes."""
    if world == 1 and not keeps_whole(strategy):
        raise SetupError(
            f"`launch.strategy: {strategy}` spreads the training over processes, and there is one",
            hint="leave it out, or raise `launch.gpus` (on a CPU `launch.cpu_ranks`)",
        )


def splits_parameters(strategy: str) -> bool:
    """Whether a process holds only its share of each parameter, so that rollouts need a copy of the whole."""
    return strategy in ("fsdp2", "zero3")


def keeps_whole(strategy: str) -> bool:
    """Whether each process holds all weights and gradients, so that it trains as one process does."""
    return strategy in ("ddp", "zero1")


def describe_strategy(name: str) -> dict[str, Any]:
    """What a strategy does."""
    return {"strategy": name, "summary": STRATEGIES[name]}
