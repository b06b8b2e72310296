"""Rules between `train.method`, `prefer` and the keys that only one method has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path, dotted
from grpo_cli.recipe.sections.recipe import Prefer, Recipe, Source

RL_ONLY = (
    "algorithm",
    "loss",
    "ratio",
    "baseline",
    "scale",
    "clip",
    "kl",
    "prune",
    "alive_by",
    "overlong",
    "mask_truncated",
    "credit",
)
"""Keys of `train` that shape advantages or their loss."""
DRAWN_ONLY: dict[Path, str] = {
    ("prefer", "pairs_a_row"): "`grpo pairs --pairs-a-row` says it",
    ("prefer", "length_gap"): "`grpo pairs --length-gap` says it",
    ("train", "epochs"): "say `train.steps` and `prefer.epochs`",
    ("train", "select"): "leave `train.select` out",
    ("train", "dead_groups"): "leave `train.dead_groups` out",
}
"""Keys that say how a step draws samples and makes pairs of them, and what helps where pairs come from a file."""
LEAST_SIMPO_BETA = 0.5


def check_prefer(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """What cannot be meant together with preferences, and preferences without them."""
    if recipe.train.method != "prefer":
        if recipe.prefer is not None:
            yield RecipeFinding(
                ("prefer",),
                f"`prefer` has no effect with `train.method: {recipe.train.method}`",
                "say `train.method: prefer`",
                at_key=True,
            )
        return
    assert recipe.prefer is not None
    yield from _section(recipe.prefer)
    if recipe.prefer.data is not None:
        yield from _from_file(recipe.prefer.data, said)
    for key in (*RL_ONLY, "reward_combine", "inner_epochs", "mini_batches"):
        if said(("train", key)):
            hint = "say `prefer.epochs`" if key == "inner_epochs" else f"leave `train.{key}` out"
            yield RecipeFinding(
                ("train", key),
                f"`train.{key}` has no effect with `method: prefer`",
                hint,
                at_key=True,
                idle=("train", key),
            )
    for name in recipe.train.trl:
        if name != "chat_template_kwargs":
            yield RecipeFinding(
                ("train", "trl", name),
                f"`{name}` is set on GRPO's trainer, which `method: prefer` does not run",
                at_key=True,
            )
    if recipe.train.control in ("random", "format_only"):
        yield RecipeFinding(
            ("train", "control"),
            f"`control: {recipe.train.control}` pays rewards, and pairs are made of verdicts",
            "the placebo of pairs is `control: shuffled`",
        )
    if recipe.sample.engine_kind.through_trl:
        yield RecipeFinding(
            ("sample", "engine"),
            "vLLM is driven through TRL's GRPO trainer, which `method: prefer` does not run",
            "say `engine: auto`",
        )
    if recipe.environment is not None:
        yield RecipeFinding(
            ("environment",),
            "pairs of episodes would learn what the environment said too",
            "leave `environment` out, or say `method: rl`",
            at_key=True,
        )
    launch = recipe.launch
    several = [key for key in ("gpus", "cpu_ranks", "nodes") if getattr(launch, key) not in ("auto", 1)]
    several += ["strategy"] if launch.strategy != "ddp" else []
    for key in several:
        yield RecipeFinding(("launch", key), "`method: prefer` runs in one process", f"leave `launch.{key}` out")


def _from_file(data: Source, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    if data.source.startswith("run:"):
        name = data.source.removeprefix("run:")
        yield RecipeFinding(
            ("prefer", "data"),
            f"`{data.source}` gives single answers, and `prefer.data` takes pairs",
            f"`grpo pairs {name}` writes them into a file to name here",
        )
    for path, hint in DRAWN_ONLY.items():
        if said(path):
            yield RecipeFinding(
                path,
                f"`{dotted(path)}` has no effect with `prefer.data`: nothing is drawn",
                hint,
                at_key=True,
                idle=path,
            )


def _section(prefer: Prefer) -> Iterator[RecipeFinding]:
    loss = prefer.loss
    if prefer.gamma is not None and loss != "simpo":
        yield RecipeFinding(("prefer", "gamma"), f"`prefer.gamma` belongs to `loss: simpo`, not `{loss}`")
    if prefer.sft and loss not in ("dpo", "ipo", "irpo"):
        why = "ORPO has a loss on the winners already" if loss == "orpo" else f"`{loss}` has no such term"
        yield RecipeFinding(("prefer", "sft"), f"`prefer.sft` goes with `dpo`, `ipo` and `irpo`: {why}")
    if prefer.sft == 0 and loss == "irpo":
        yield RecipeFinding(("prefer", "sft"), "`irpo` without `sft` is `dpo`", "say `loss: dpo`")
    if loss == "simpo" and prefer.beta is not None and prefer.beta < LEAST_SIMPO_BETA:
        yield RecipeFinding(
            ("prefer", "beta"),
            f"`prefer.beta` {prefer.beta:g} is a value for DPO: SimPO weighs mean log-probs a token and hardly moves below"
            f" {LEAST_SIMPO_BETA:g}",
            "2 to 10 is what its authors use",
        )
    if prefer.micro_batch is not None and prefer.batch % prefer.micro_batch:
        yield RecipeFinding(
            ("prefer", "micro_batch"),
            f"`prefer.micro_batch` {prefer.micro_batch} does not divide `prefer.batch` {prefer.batch}",
        )
    if prefer.micro_batch == 1 and loss == "kto":
        yield RecipeFinding(
            ("prefer", "micro_batch"),
            "`kto` takes its KL from each prompt with another answer of the micro-batch: it needs two",
        )
