"""A world whose rules are a checksum: what it answers and pays is a function of the action alone, so that a reference can
recompute it from the tokens. Observations are few, so that episodes come back to the same states.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.rollout.collect import Collect, EngineCall, RowCompletions
from grpo_cli.rollout.engine import Completion, Episode, Request, SamplingSettings, Turn
from tests.reference.policy import Said

TURN_TOKENS, MAX_TURNS = 4, 3
ANSWERS = ("?a", "?bc")


def answers(action: Sequence[int]) -> str:
    """What the world says to an action."""
    return ANSWERS[_number(action) % len(ANSWERS)]


def pays(action: Sequence[int]) -> float:
    """What an action is paid at once."""
    return _number(action) // 2 % 3 / 4


def states(said: Said) -> list[str]:
    """What each turn of an episode saw."""
    turns = said.turns
    return ["start", *(answers(said.answer[a:b]) for a, b in turns[:-1])]


@contextmanager
def playing() -> Iterator[None]:
    """Inside, a row is sampled as episodes of up to three turns; some are cut by the budget."""
    before = Collect.sample
    Collect.sample = _sample  # type: ignore[method-assign]
    try:
        yield
    finally:
        Collect.sample = before  # type: ignore[method-assign]


def _sample(self: Collect, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[RowCompletions]:
    settings, found = self.settings(call), []
    with self.judges.listening(rows) as on_finish:
        for place, row in enumerate(rows):
            ids = self.encode(self.rows[row])
            own = [_episode(self, ids, settings, row, number) for number in range(size)]
            found.append(RowCompletions(row, ids, own))
            for number, completion in enumerate(own if on_finish is not None else ()):
                on_finish(place, number, completion)
    return found


def _episode(collect: Collect, prompt: list[int], settings: SamplingSettings, row: int, number: int) -> Completion:
    ids, logps, turns, state, cut = list[int](), list[float](), list[Turn](), "start", False
    for turn in range(MAX_TURNS):
        room = min(TURN_TOKENS, settings.max_tokens - len(ids))
        seed = hash((settings.seed, row, number, turn)) & 0x7FFFFFFF
        asked = SamplingSettings(room, settings.temperature, seed=settings.seed)
        said = collect.engine.generate([Request(prompt + ids, 1, seed)], asked)[0][0]
        start, end = len(ids), len(ids) + len(said.token_ids)
        ids, logps = ids + said.token_ids, logps + said.logps
        heard = answers(said.token_ids)
        turns.append(Turn(start, end, state=state, observation=heard, reward=pays(said.token_ids)))
        state, suffix = heard, byte_tokenizer().encode(heard)
        cut = len(ids) + len(suffix) + 1 > settings.max_tokens
        if cut or turn + 1 == MAX_TURNS or _number(said.token_ids) % 7 == 0:
            break
        ids, logps = ids + suffix, logps + [0.0] * len(suffix)
    episode = Episode(tuple(turns), None, truncated=cut)
    return Completion(ids, logps, "length" if cut else "stop", episode=episode)


def _number(action: Sequence[int]) -> int:
    return zlib.crc32(repr([int(token) for token in action]).encode())
