"""Rules between `train.method`, `prefer` and the keys that only one method has."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_cli.recipe.checking.values import IsSet, RecipeFinding
from grpo_cli.recipe.sections.fields import Path, dotted
from grpo_cli.recipe.sections.recipe import Recipe

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
"""Keys for how a step draws samples and makes pairs of them, and what helps where pairs come from a file."""
LEAST_SIMPO_BETA = 0.5


def check_prefer(recipe: Recipe, is_set: IsSet) -> Iterator[RecipeFinding]:
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
    prefer = recipe.prefer
    assert prefer is not None
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
    if prefer.data is not None and prefer.data.source.startswith("run:"):
        name = prefer.data.source.removeprefix("run:")
        yield RecipeFinding(
            ("prefer", "data"),
            f"`{prefer.data.source}` gives single answers, and `prefer.data` takes pairs",
            f"`grpo pairs {name}` writes them into a file to name here",
        )
    for path, hint in DRAWN_ONLY.items() if prefer.data is not None else ():
        if is_set(path):
            yield RecipeFinding(
                path,
                f"`{dotted(path)}` has no effect with `prefer.data`: nothing is drawn",
                hint,
                at_key=True,
                idle=path,
            )
    for key in (*RL_ONLY, "reward_combine", "inner_epochs", "mini_batches"):
        if is_set(("train", key)):
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
    for key in recipe.launch.several:
        yield RecipeFinding(("launch", key), "`method: prefer` runs in one process", f"leave `launch.{key}` out")
