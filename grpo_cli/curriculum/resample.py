"""Dynamic sampling (DAPO, arXiv 2503.14476): sample again until every group of the batch carries signal.

Done before TRL sees the batch, so its token counts and normalisers are those of the groups that are trained on. What
is rejected was generated all the same: it is counted, and the saving is in updates, not in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_cli.reward.group import Group


@dataclass(frozen=True)
class FilledBatch:
    """The batch, and what it cost to fill."""

    groups: list[Group]
    rejected: list[Group]
    rounds: int

    def metrics(self) -> dict[str, float]:
        """`resample/…`: rounds after the first, groups rejected by kind and the tokens generated for them."""
        wrong = sum(g.right == 0 for g in self.rejected)
        right = sum(g.right == g.judged > 0 for g in self.rejected)
        return {
            "resample/rounds": self.rounds,
            "resample/thrown": len(self.rejected),
            "resample/thrown_all_wrong": wrong,
            "resample/thrown_all_right": right,
            "resample/thrown_tokens": sum(g.tokens for g in self.rejected),
        }


def fill(
    first: Sequence[Group],
    sample: Callable[[int], list[Group]],
    has_signal: Callable[[Group], bool],
    most_rounds: int,
) -> FilledBatch:
    """A batch of `len(first)` groups with signal, as far as `most_rounds` further calls of `sample` give them.

    Each round asks for as many groups as the share with signal so far makes likely to be needed, at most a batch.
    What is still missing then is filled with groups without signal, so the size never changes; a call that
    returns fewer groups than asked for (no rows left) ends the search.
    """
    size, sampled, rounds = len(first), list(first), 0
    alive = [g for g in sampled if has_signal(g)]
    while len(alive) < size and rounds < most_rounds:
        # Laplace's rule: never 0, so that a first round without signal does not ask for all there is
        share = (len(alive) + 1) / (len(sampled) + 2)
        wanted = min(size, math.ceil((size - len(alive)) / share))
        more = sample(wanted)
        rounds += 1
        sampled += more
        alive += [g for g in more if has_signal(g)]
        if len(more) < wanted:
            break
    kept = alive[:size]
    kept += [g for g in sampled if not has_signal(g)][: size - len(kept)]
    # by identity: a group holds lists, which have no hash
    chosen = {id(g) for g in kept}
    return FilledBatch(kept, [g for g in sampled if id(g) not in chosen], rounds)
