from grpo_cli.rollout.engine import Completion, Episode, Turn


def test_a_completion_of_turns_knows_which_tokens_the_model_generated() -> None:
    # turn 1 [5, 1], observation [7, 7], turn 2 [6, 1], done
    episode = Episode((Turn(0, 2), Turn(4, 6, done=True)), outcome=1.0)
    completion = Completion([5, 1, 7, 7, 6, 1], [-0.1, -0.2, 0.0, 0.0, -0.3, -0.4], "stop", episode=episode)
    assert completion.mask == [1, 1, 0, 0, 1, 1]
    assert completion.sampled_tokens == 4
    assert [turn.tokens for turn in episode.turns] == [2, 2]


def test_a_completion_without_turns_is_all_the_models() -> None:
    completion = Completion([5, 6, 1], [-0.1, -0.2, -0.3], "stop")
    assert completion.mask == [1, 1, 1] and completion.sampled_tokens == 3
