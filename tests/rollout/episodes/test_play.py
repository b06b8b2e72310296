"""The turn loop on an engine that says what it is told: layout, offsets, limits, penalties and faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_cli.environments.pool import Fault
from grpo_cli.environments.step import Step
from grpo_cli.errors import DataError, SetupError
from grpo_cli.recipe.engines import EngineKind
from grpo_cli.rollout.engine import Completion, SamplingSettings, Turn
from grpo_cli.rollout.episodes.running import with_observation
from grpo_verifiers.kinds.environment import EnvironmentVerifier
from grpo_verifiers.verdict import Outcome, floored
from grpo_verifiers.verifier import Played, Sample
from tests.rollout.episodes.scripted import END, Scripted, Speaker, episodes, row

TWO = {(9,): [5, END], (9, 5, END, 7, 7): [6, END]}
ANSWERS: dict[str, Step | Fault] = {
    "5": Step("seen", 0.25, state="s1", milestone="half"),
    "6": Step("over", 1.0, done=True),
}
SETTINGS = SamplingSettings(20, seed=3)


def play(engine: Speaker, worlds: Scripted, settings: SamplingSettings = SETTINGS, **spec: Any) -> Completion:
    ((completion,),) = episodes(engine, worlds, **spec).open([row()], 1, 3).generate(settings)
    return completion


def test_an_episode_is_its_turns_with_the_observations_between_them() -> None:
    done = play(Speaker(TWO), Scripted(ANSWERS, first="s0", outcome=0.75))
    assert done.token_ids == [5, END, 7, 7, 6, END]
    assert done.mask == [1, 1, 0, 0, 1, 1]
    assert done.logps == [-0.5, -0.5, 0.0, 0.0, -0.5, -0.5]
    assert done.finish == "stop"
    assert done.episode is not None
    assert done.sampled_tokens == 4
    assert done.episode.outcome == 0.75
    assert done.episode.turns == (
        Turn(0, 2, state="s0", text="5", observation="seen", reward=0.25, milestone="half"),
        Turn(4, 6, state="s1", text="6", observation="over", reward=1.0, done=True),
    )


def test_a_state_belongs_to_the_turn_that_saw_it_and_is_the_observation_where_none_is_said() -> None:
    answers = {"5": replace(ANSWERS["5"], state=None), "6": ANSWERS["6"]}
    done = play(Speaker(TWO), Scripted(answers, first="s0"))
    assert done.episode is not None
    assert [turn.state for turn in done.episode.turns] == ["s0", "seen"]


def test_the_most_turns_end_an_episode_that_is_whole() -> None:
    done = play(Speaker(TWO), Scripted(ANSWERS), max_turns=1)
    assert done.token_ids == [5, END]
    assert (done.finish, done.episode and done.episode.truncated) == ("stop", False)


def test_an_observation_that_does_not_fit_with_one_more_token_cuts_the_episode() -> None:
    for budget, ids in ((4, [5, END]), (5, [5, END, 7, 7, 6])):
        done = play(Speaker(TWO), Scripted(ANSWERS, outcome=0.0), replace(SETTINGS, max_tokens=budget))
        assert done.token_ids == ids
        assert done.finish == "length"
        assert done.episode is not None
        assert (done.episode.truncated, done.episode.outcome) == (True, 0.0)


def test_a_turn_that_the_budget_cut_off_is_not_shown_to_the_environment() -> None:
    done = play(Speaker(TWO), Scripted({"5": ANSWERS["5"]}), replace(SETTINGS, max_tokens=5))
    assert done.episode is not None
    assert done.episode.turns[-1] == Turn(4, 5, state="s1", text="6")


def test_a_turn_that_ends_on_the_last_token_of_the_budget_is_whole() -> None:
    done = play(Speaker(TWO), Scripted(ANSWERS), replace(SETTINGS, max_tokens=6))
    assert done.token_ids == [5, END, 7, 7, 6, END]
    assert done.finish == "stop"


def test_a_turn_cut_at_its_own_limit_is_closed_and_goes_to_the_environment() -> None:
    turns = {(9,): [5, 5, 5, END], (9, 5, 5, END, 7, 7): [6, END]}
    done = play(Speaker(turns), Scripted({"5 5": Step("more"), "6": ANSWERS["6"]}), turn_tokens=2)
    assert done.token_ids == [5, 5, END, 7, 7, 6, END]
    assert done.mask == [1, 1, 0, 0, 0, 1, 1]
    assert done.finish == "stop"


def test_an_invalid_action_costs_its_turn_and_the_outcome() -> None:
    answers = {"5": Step("seen", 0.5, valid=False), "6": ANSWERS["6"]}
    done = play(Speaker(TWO), Scripted(answers, outcome=1.5), invalid_penalty=0.25)
    assert done.episode is not None
    assert [turn.reward for turn in done.episode.turns] == [0.25, 1.0]
    assert [turn.valid for turn in done.episode.turns] == [False, True]
    assert done.episode.outcome == 1.25


def test_a_fault_of_the_environment_is_no_verdict_and_keeps_what_was_said() -> None:
    fault = Fault("environment_raised", "`step` of `B` raised KeyError: 'x'")
    done = play(Speaker(TWO), Scripted({**ANSWERS, "6": fault}))
    assert done.token_ids == [5, END, 7, 7, 6, END]
    assert done.episode is not None
    assert done.episode.outcome is None
    assert done.episode.played == (None, "environment_raised", fault.text, False, False)
    assert done.episode.turns[-1].text == "6"


@pytest.mark.parametrize(("paid", "least"), [(-0.75, -0.75), (0.5, 0.0)])
def test_what_the_actions_provoke_twice_is_a_limit_that_they_burst(paid: float, least: float) -> None:
    fault = Fault("timeout", "`step` of `B` took longer", provoked=True)
    script = {**ANSWERS, "5": Step("seen", paid), "6": fault}
    done = play(Speaker(TWO), Scripted(script))
    assert done.episode is not None
    assert done.episode.played == (least, "timeout", fault.text, True, False)
    verifier = EnvironmentVerifier(EnvironmentVerifier.Options())
    mine = verifier.judge([Sample("", None, played=done.episode.played), Sample("", None, played=Played(-1.0))])
    assert mine[0].outcome is Outcome.OVER_LIMIT
    assert [v.score for v in floored(mine, verifier.low)] == [-1.0, -1.0]
    left = play(Speaker(TWO), Scripted(script), over_limit="no_verdict")
    assert left.episode is not None and left.episode.outcome is None


@pytest.mark.parametrize("outcome", [None, Fault("bad_return", "nan")])
def test_a_score_that_is_none_is_no_verdict(outcome: Any) -> None:
    done = play(Speaker(TWO), Scripted(ANSWERS, outcome=outcome))
    assert done.episode is not None
    assert done.episode.outcome is None
    assert done.episode.problem


def test_a_reset_that_fails_is_an_error_of_the_row() -> None:
    with pytest.raises(DataError) as err:
        play(Speaker(TWO), Scripted(ANSWERS, first=Fault("environment_raised", "`reset` raised KeyError")))
    assert err.value.mistakes[0].place == "rows:a"
    assert "`reset` raised KeyError" in str(err.value)


def test_a_prompt_that_leaves_no_room_is_an_error_of_the_row() -> None:
    with pytest.raises(DataError, match="more than the model's context of 64"):
        play(Speaker(TWO), Scripted(ANSWERS), replace(SETTINGS, max_tokens=64))


def test_an_engine_with_one_stream_is_refused() -> None:
    with pytest.raises(SetupError, match="draws all samples from one stream"):
        play(Speaker(TWO, kind=EngineKind("scripted", has_own_seeds=False)), Scripted(ANSWERS))


def test_seeds_are_of_row_sample_and_turn_and_worlds_of_one_row_begin_alike() -> None:
    def seeds(names: str, size: int, first: int = 0, seed: int = 3) -> tuple[dict[Any, int], list[int]]:
        engine, worlds = Speaker(TWO), Scripted(ANSWERS)
        rows = [row(name) for name in names]
        episodes(engine, worlds).open(rows, size, seed, first).generate(SETTINGS)
        places = [(name, s, turn) for turn in (0, 1) for name in names for s in range(first, first + size)]
        return dict(zip(places, [request.seed for request, _ in engine.asked], strict=True)), worlds.seeds

    alone, worlds = seeds("b", 2)
    beside, _ = seeds("abc", 3)
    assert alone.items() <= beside.items()
    assert len(set(beside.values())) == len(beside)
    assert seeds("b", 1, first=1)[0].items() <= alone.items()
    assert not set(seeds("b", 2, seed=4)[0].values()) & set(alone.values())
    assert worlds[0] == worlds[1] != seeds("a", 1)[1][0]


def test_what_the_world_says_first_stands_behind_the_last_message_of_the_user() -> None:
    begun = with_observation(row(), " s0")
    assert begun.messages == [{"role": "user", "content": "go s0"}]
    assert begun.prompt == "go s0"
    assert row().messages == [{"role": "user", "content": "go"}]


def test_the_transcript_says_who_spoke() -> None:
    done = play(Speaker(TWO), Scripted(ANSWERS))
    assert done.episode is not None
    assert done.episode.transcript == "[assistant] 5\n[environment] seen\n[assistant] 6\n[environment] over"
