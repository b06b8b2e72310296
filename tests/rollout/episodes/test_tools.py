"""Episodes with tools, from the model's text to what stands in its context and what is judged; real workers, a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Worlds
from grpo_cli.errors import DataError
from grpo_cli.jobs.rows import offered
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tiny import byte_level
from grpo_cli.policy.turns import TurnSuffixes
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.reward.group_judge import texts_of
from grpo_cli.rollout.engine import Completion, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes

TEMPLATE = (
    "{%- if tools -%}<|system|>{% for t in tools %}{{ t.function.name }} {% endfor %}{%- endif -%}"
    "{%- for m in messages -%}<|{{ 'user' if m.role == 'tool' else m.role }}|>{{ m.content }}"
    "{%- for c in m.tool_calls or [] -%}<call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
    "{%- endfor -%}{%- if m.role == 'assistant' -%}<|end|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
HERE = Path(__file__).parents[2] / "environments" / "tools"
ADD = '<call>{"name": "add", "arguments": {"a": 2, "b": 3}}'


def play(said: list[str], **spec: Any) -> tuple[Completion, str, Any]:
    """An episode in which the model says these turns; with the text of its tokens, and the tokenizer."""
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|end|>", chat_template=TEMPLATE)
    end = tokenizer.eos_token_id
    made = Environment.model_validate({"tools": ["my_tools.py:add"], "max_turns": 4, **spec})
    worlds = Worlds(made.named, made.options, kind=made.kind, path=[str(HERE)], workers=1)
    policy: Any = object.__new__(Policy)
    object.__setattr__(policy, "tokenizer", tokenizer)
    object.__setattr__(policy, "chat", {})
    object.__setattr__(policy, "model", type("Model", (), {"config": _Config()})())

    def speak(some: Any, requests: Any, settings: Any) -> list[Completion]:
        found = []
        for episode in some:
            ids = [*tokenizer(said[len(episode.turns)]).input_ids, end]
            found.append(Completion(ids, [-0.1] * len(ids), "stop"))
        return found

    try:
        worlds.start()
        suffixes = TurnSuffixes.of(tokenizer, [end], made.speaks_as, "tiny", has_calls=made.has_calls)
        row = Row("a", "2+3", [{"role": "user", "content": "2+3"}], {"goal": 5}, "a.jsonl:1")
        play = Episodes(made, worlds, policy, suffixes, speak).open(offered([row], worlds.tools), 1, 3)
        ((done,),) = play.generate(SamplingSettings(400, seed=3))
        assert tokenizer.decode(play.prompts[0]).startswith("<|system|>")
        return done, tokenizer.decode(done.token_ids), policy.decode
    finally:
        worlds.close()


class _Config:
    max_position_embeddings = 512

    def get_text_config(self) -> _Config:
        return self


def test_a_call_is_answered_in_the_context_and_the_turn_without_one_is_judged() -> None:
    done, text, decode = play([ADD, "it is 5"])
    assert text == f"{ADD}<|end|><|user|>5<|assistant|>it is 5<|end|>"
    assert done.episode is not None
    assert [(t.text, t.observation, t.valid, t.done) for t in done.episode.turns] == [
        (ADD, "5", True, False),
        ("it is 5", "", True, True),
    ]
    assert texts_of([done], decode) == ["it is 5"]
    assert sum(done.mask) == len(ADD.encode()) + len("it is 5") + 2


def test_two_calls_are_two_messages_and_a_bad_one_says_why() -> None:
    done, text, decode = play([f"{ADD}<call>add(1)", ADD, "<think>5 then</think>5"])
    assert "<|user|>5<|user|>error: the call is no JSON" in text
    assert done.episode is not None
    assert [turn.valid for turn in done.episode.turns] == [False, True, True]
    assert texts_of([done], decode) == ["<think>5 then</think>5"]


def test_an_episode_that_came_to_no_answer_has_an_empty_one() -> None:
    done, _, decode = play([ADD] * 4)
    assert done.episode is not None
    assert len(done.episode.turns) == 4
    assert texts_of([done], decode) == [""]
    assert "[environment] 5" in done.episode.transcript


def test_a_class_of_trl_is_played_and_its_reward_is_the_outcome() -> None:
    call = '<call>{"name": "raise_by", "arguments": {"n": 5}}'
    done, text, _ = play([call, "done"], tools=None, trl="my_tools.py:Counter")
    assert "<|user|>at 5<|assistant|>" in text
    assert done.episode is not None
    assert done.episode.outcome == 1.0


def test_rows_with_tools_of_their_own_are_refused() -> None:
    own = Row("a", "2+3", [{"role": "user", "content": "2+3"}], {}, "a.jsonl:1", tools=[{"type": "function"}])
    with pytest.raises(DataError, match="this row offers tools, and so does `environment`"):
        offered([own], [{"type": "function"}])
    assert offered([own], []) == [own]
