"""Episodes in which the environment itself says how to act: demonstrations for a warm-up, in the very tokens of an episode."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.errors import DataError
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.warmup import WarmupText
from grpo_cli.recipe.sections.environment import Environment
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes, suffixes_of
from grpo_cli.rollout.episodes.running import LiveEpisode

AT_ONCE = 512
"""Episodes that are played beside each other."""


def demonstrations(
    spec: Environment, worlds: Worlds, policy: Policy, rows: Sequence[Row], seed: int, budget: int
) -> list[WarmupText]:
    """One episode a row, of at most `budget` tokens; what the environment says in it is not to be imitated.

    Raises:
        RecipeError: the environment has no `demonstrate`.
        DataError: a row that it cannot begin with, or show.
    """
    worlds.refuse_silent()
    suffixes = suffixes_of(spec, policy)

    def show(
        some: Sequence[LiveEpisode], requests: Sequence[Request], settings: SamplingSettings
    ) -> list[Completion]:
        shown: list[Completion] = []
        for request, action in zip(requests, worlds.demonstrate([e.world for e in some]), strict=True):
            if isinstance(action, Fault):
                raise DataError(action.text, place="`warmup`", hint="mend the environment's `demonstrate`")
            ids = [*policy.tokenizer(action, add_special_tokens=False).input_ids, suffixes.closing]
            # as an engine counts: the prefix is part of the limit
            room = settings.max_tokens - len(request.prefix)
            # no policy gave it a log-prob, and imitation asks for none
            shown.append(Completion(ids[:room], [0.0] * len(ids[:room]), "stop"))
        return shown

    episodes = Episodes(spec, worlds, policy, suffixes, show)
    found = []
    for at in range(0, len(rows), AT_ONCE):
        play = episodes.open(rows[at : at + AT_ONCE], 1, seed)
        played = play.generate(SamplingSettings(budget))
        for prompt, (completion,) in zip(play.prompts, played, strict=True):
            found.append(WarmupText(prompt, completion.token_ids, completion.mask))
    return found
