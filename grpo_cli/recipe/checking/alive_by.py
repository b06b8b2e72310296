"""What `train.alive_by` and `train.std_floor: noise` cannot mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grpo_cli.recipe.checking.mistakes import RecipeFinding, unknown
from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.sections.recipe import Recipe

ALIVE_BY: Path = ("train", "alive_by")
FLOOR: Path = ("train", "std_floor")


def check_alive_by(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """Names that are no verifiers or pay nothing, and a floor of noise where nothing is compared with it."""
    train = recipe.train
    named = train.alive_by if isinstance(train.alive_by, list) else []
    for at, name in enumerate(named):
        path = (*ALIVE_BY, at)
        if name not in recipe.verify:
            hint = unknown(name, recipe.verify, "`verify`")
            yield RecipeFinding(path, f"`train.alive_by` names no verifier `{name}`", hint)
        elif not recipe.verify[name].weight:
            yield RecipeFinding(
                path,
                f"`train.alive_by` names `{name}`, whose weight is 0: it pays nothing that a group could be alive by",
                f"give `verify.{name}` a weight, or leave it out",
            )
    if named and not any(one.primary for name, one in recipe.verify.items() if name in named):
        primary = next(name for name, one in recipe.verify.items() if one.primary)
        if recipe.verify[primary].weight and recipe.combine.method != "by":
            yield RecipeFinding(
                ALIVE_BY,
                f"`train.alive_by` leaves out the primary verifier `{primary}`: groups that it alone tells apart would teach nothing",
                f"such as `[{', '.join([primary, *named])}]`",
            )
    if train.std_floor != "noise":
        return
    if train.method != "rl" or train.baseline == "critic":
        other = f"method: {train.method}" if train.method != "rl" else "baseline: critic"
        yield RecipeFinding(FLOOR, f"`std_floor: noise` has no effect with `{other}`", "leave it out")
    elif train.reward_combine == "normalise_then_sum":
        yield RecipeFinding(
            FLOOR,
            "`std_floor: noise` is one number in units of the reward, and `normalise_then_sum` scales each part by itself",
            "say `reward_combine: sum`, or a number",
        )
