"""What watches a run beside its reward: gold scores and canary prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe


def check_gold(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """The gold verifier: another than those that are rewarded, held-out rows to compare on, actions that need it."""
    name, path = recipe.monitor.gold, ("monitor", "gold")
    actions = recipe.monitor.on_alarm
    by_monitor = actions if isinstance(actions, dict) else {"": actions}
    if name is None and recipe.monitor.canary is None and "roll_back" in by_monitor.values():
        yield RecipeFinding(
            ("monitor", "on_alarm"),
            "`roll_back` goes to the checkpoint with the best gold score, and no gold verifier is named",
            "name one in `monitor.gold`, or say `on_alarm: pause`",
        )
    elif name is None and "gold" in by_monitor:
        yield RecipeFinding(
            ("monitor", "on_alarm", "gold"), "`gold` needs a second verifier", "name one in `monitor.gold`"
        )
    if "proxy_gold_gap" in recipe.stop.on and name is None:
        yield RecipeFinding(("stop", "on"), "`proxy_gold_gap` needs a second verifier", "name one in `monitor.gold`")
    if name is None:
        return
    spec = recipe.verify.get(name)
    if spec is None:
        yield RecipeFinding(
            path, f"`monitor.gold` names no verifier: `{name}`", f"one of {', '.join(f'`{n}`' for n in recipe.verify)}"
        )
    elif spec.primary or spec.weight:
        yield RecipeFinding(
            path,
            f"`verify.{name}` is rewarded: what is optimised cannot be the judge of it",
            f"say `weight: 0` in `verify.{name}` and leave `primary` to another",
        )
    if recipe.data.eval is None or recipe.eval.every is None:
        yield RecipeFinding(path, "`monitor.gold` compares on held-out rows", "set `data.eval` and `eval.every`")


def check_canary(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """The canary: its verifier, and an action on its alarm only where there is one."""
    canary, path = recipe.monitor.canary, ("monitor", "canary")
    actions = recipe.monitor.on_alarm
    if canary is None:
        if isinstance(actions, dict) and "canary" in actions:
            yield RecipeFinding(
                ("monitor", "on_alarm", "canary"),
                "`canary` needs prompts to ask",
                "name their file in `monitor.canary`",
            )
    elif canary.verify is not None and canary.verify not in recipe.verify:
        yield RecipeFinding(
            (*path, "verify"),
            f"`monitor.canary.verify` names no verifier: `{canary.verify}`",
            f"one of {', '.join(f'`{n}`' for n in recipe.verify)}",
        )
