"""What credit for turns knows of a move on `keydoor` beyond the outcome: correlations over the turns of a run's samples.

    PYTHONPATH=.:verifiers python bench/credit_quality.py RUN

A move is good (1) where it leads nearer to what is looked for, key or door, bad (-1) where it leads away, else 0; a signal is worth
having where it says that better than the episode's outcome does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import correlation, fmean, pstdev, stdev
from typing import Any

from grpo_cli.algorithm.turn_credit import Steps, gigpo, milestones
from grpo_cli.environments.worlds.keydoor import Keydoor


def replayed(sample: dict[str, Any]) -> tuple[list[str], list[int]]:
    """What each turn saw, and how good its move was."""
    world = Keydoor()
    states, good = [world.reset(sample, 0)], list[int]()
    for turn in sample["turns"]:
        before = world._far(world.at)
        goal = world.has_key
        seen = world.step(turn["text"])["state"]
        reached = world.has_key != goal
        good.append(before if reached else before - world._far(world.at))
        states.append(seen)
    return states[:-1], good


def signals(group: Sequence[dict[str, Any]]) -> list[tuple[float, ...]]:
    """For each turn: how good it was, and what outcome, GiGPO's part, the two together, and milestones with the outcome say."""
    played = [replayed(sample) for sample in group]
    episodes = [
        Steps([t["reward"] for t in sample["turns"]], states, [t["milestone"] for t in sample["turns"]])
        for sample, (states, _) in zip(group, played, strict=True)
    ]
    outcomes = [sum(episode.rewards) for episode in episodes]
    spread = stdev(outcomes)
    if spread == 0:
        return []
    found = []
    for outcome, (_, good), own, part in zip(
        outcomes, played, gigpo(episodes).parts, milestones(episodes), strict=True
    ):
        whole = (outcome - fmean(outcomes)) / spread
        found += [
            (float(g), whole, step, whole + step, whole + stone) for g, step, stone in zip(good, own, part, strict=True)
        ]
    return found


def main() -> None:
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(Path(sys.argv[1]).glob("samples/*.jsonl")):
        for line in file.open():
            sample = json.loads(line)
            groups.setdefault(sample["group"], []).append(sample)
    turns = [turn for group in groups.values() for turn in signals(group)]
    good, outcome, step, both, stones = (list(column) for column in zip(*turns, strict=True))
    print(f"{len(turns):,} turns of {len(groups)} groups")
    for name, values in (("outcome", outcome), ("gigpo's part", step), ("gigpo", both), ("milestones", stones)):
        print(f"{name:14}with how good the move was {correlation(good, values):.3f}")
    print(
        f"gigpo's part with the outcome {correlation(step, outcome):.3f}, its spread {pstdev(step) / pstdev(outcome):.2f} of it"
    )


if __name__ == "__main__":
    main()
