"""The rewards of a recipe other than the outcome: terms that differ between answers with the same outcome."""

from __future__ import annotations

from grpo_cli.recipe.sections.recipe import Recipe

ALONE = "an all-wrong group trains on `{}` alone, at full size whatever its weight"
ALONE_HINT = "leave `train.alive_by` out, or name in it the verifiers that may teach while all is wrong"


def verifiers_beside(recipe: Recipe) -> list[str]:
    """Verifiers that pay wrong answers too and are not the outcome by `train.alive_by`.

    With `combine: first`, `by` or `min` another verifier judges in place of the primary one, or lowers what it pays: none is
    beside it.
    """
    alive_by, combine = recipe.train.alive_by, recipe.combine
    if combine.method not in ("sum", "gate"):
        return []
    return [
        name
        for name, one in recipe.verify.items()
        if one.weight
        and not (one.primary if isinstance(alive_by, str) else name in alive_by)
        and combine.gate.get(name) != "needs_right"
    ]


def paid_beside(recipe: Recipe) -> list[str]:
    """All that pays wrong answers by something else than the outcome: verifiers, terms of shaping, penalties."""
    terms = [name for name, one in recipe.shaping.items() if one.weight and name != "length" and one.only is None]
    overlong = ["overlong"] if recipe.train.overlong else []
    fines = ["invalid_penalty"] if any(recipe.fines.values()) else []
    return [*verifiers_beside(recipe), *terms, *overlong, *fines]


def trained_on_alone(recipe: Recipe) -> list[str]:
    """A warning for each of these that a group of equal outcomes would train on at full size."""
    train = recipe.train
    divides = train.scale != "none" or train.reward_combine != "sum"
    is_exposed = train.runs_grpo and train.alive_by == "reward" and divides and train.control is None
    parts = list(train.split)[1:] if train.reward_combine == "split" else []
    return [ALONE.format(name) for name in [*paid_beside(recipe), *parts]] if is_exposed else []


def unlearnable(recipe: Recipe) -> tuple[str, str] | None:
    """What cannot be learned where all answers are wrong, and what to do; None where the gate keeps no verifier back."""
    alive_by, names = recipe.train.alive_by, verifiers_beside(recipe)
    if alive_by == "reward" or not names or not recipe.train.runs_grpo or recipe.train.control is not None:
        return None
    shown = alive_by if isinstance(alive_by, str) else f"[{', '.join(alive_by)}]"
    primary = [name for name, one in recipe.verify.items() if one.primary]
    named = [*(primary if isinstance(alive_by, str) else alive_by), *names]
    text = (
        f"with `alive_by: {shown}` {' and '.join(f'`{name}`' for name in names)} cannot be learned from them:"
        f" name {'it' if len(names) == 1 else 'them'}, or warm up"
    )
    return text, f"such as `train.alive_by: [{', '.join(named)}]`, or a `warmup`"
