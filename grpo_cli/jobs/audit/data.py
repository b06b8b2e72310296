"""`grpo audit data`: the training rows of a recipe, looked at as somebody would who had hidden one among them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.data.suspects import RowSignals
from grpo_cli.display.protocol import Display
from grpo_cli.errors import UsageError
from grpo_cli.jobs.audit.rows import MOST_VOTES, DataAudit, RowVotes
from grpo_cli.jobs.workplace import Workplace, open_rows, open_start
from grpo_cli.recipe.sections.recipe import Recipe

if TYPE_CHECKING:
    from grpo_cli.reward.group import Group
    from grpo_cli.rollout.collect import Collect

BATCH = 64
"""Rows sampled in one call of the engine."""
MORE = 7
"""Rows whose samples are all wrong alike are sampled this many times as often again, to find one that is right."""
MOST_AGAIN = 32
"""Such rows at most."""


def audit_data(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    *,
    asked: int,
    samples: int,
    seed: int | None = None,
) -> DataAudit:
    """Look at all rows, and ask the model as training would start it about `asked` of them, `samples` times each.

    0 rows: the data alone, without a model. Rows that the data make odd are asked first, the others drawn by the seed.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
        UsageError: the recipe has an environment, and rows are to be asked about.
    """
    began = time.perf_counter()
    draws = recipe.train.steps * recipe.sample.prompts
    if not asked:
        with open_rows(recipe, base, display, ["train"]) as place:
            found = DataAudit(place.train.rows, RowSignals.of(place.train.rows), draws)
        found.seconds = time.perf_counter() - began
        return found
    if recipe.environment is not None:
        raise UsageError(
            "the model is not asked about rows of an environment: its turns have no one answer",
            hint="`--rows 0` looks at the data alone",
        )
    with open_start(recipe, base, display, splits=["train"]) as workplace:
        rows = workplace.train.rows
        found = DataAudit(rows, RowSignals.of(rows), draws)
        chosen = choose(found, asked, recipe.train.seed if seed is None else seed)
        _ask(found, workplace, chosen, samples, seed or 0)
    found.seconds = time.perf_counter() - began
    return found


def choose(found: DataAudit, asked: int, seed: int) -> list[int]:
    """The rows to ask about: those past a bar of the data first, then any."""
    flagged = list(found.flags())
    rest = [row for row in range(len(found.rows)) if row not in set(flagged)]
    random.Random(seed).shuffle(rest)
    return sorted((flagged + rest)[:asked])


def _ask(found: DataAudit, place: Workplace, chosen: Sequence[int], samples: int, seed: int) -> None:
    from grpo_cli.measure.gradients import GradientSketch, against_the_rest
    from grpo_cli.train.clock import Clock, StepProgress
    from grpo_cli.train.credit import Method
    from grpo_cli.train.loop import RolloutParts, judged_rollouts

    progress = StepProgress(Clock(), place.display)
    parts = RolloutParts(
        place.recipe, place.train.rows, place.train.golds, place.judge, place.engine, place.policy
    )
    collect = judged_rollouts(parts, progress)
    groups = {group.row: group for group in _sampled(collect, chosen, samples, place)}
    found.votes = {row: RowVotes.of(group) for row, group in groups.items()}
    method, sketcher = Method.of(place.recipe), GradientSketch(place.policy, seed)
    again = sorted(
        (row for row, v in found.votes.items() if not v.right and (v.against or 0) >= MOST_VOTES),
        key=lambda row: -(found.votes[row].against or 0),
    )[:MOST_AGAIN]
    for row in again:
        groups[row] = groups[row].joined(_more(collect, row, samples))
        found.votes[row] = RowVotes.of(groups[row])
    sketches = []
    for done, group in enumerate(groups.values(), 1):
        advantages = method.credit([group]).A_PG[0].tolist()
        ids = [completion.token_ids for completion in group.completions]
        sketches.append(sketcher.of(group.prompt_ids, ids, advantages))
        place.display.progress("gradients", done, len(groups))
    cosines = against_the_rest(sketches)
    found.cosines = {row: c for row, c in zip(groups, cosines, strict=True) if c is not None}


def _sampled(
    collect: Collect[Group], chosen: Sequence[int], samples: int, place: Workplace
) -> Iterator[Group]:
    from grpo_cli.rollout.collect import EngineCall

    for start in range(0, len(chosen), BATCH):
        place.display.progress("samples", start, len(chosen))
        yield from collect(chosen[start : start + BATCH], samples, EngineCall(0, 1 + start // BATCH))


def _more(collect: Collect[Group], row: int, samples: int) -> Group:
    from grpo_cli.rollout.collect import EngineCall

    return collect([row], MORE * samples, EngineCall(1, 1), samples)[0]
