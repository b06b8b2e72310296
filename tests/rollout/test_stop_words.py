"""Samples that end with a text: exactly there, in every engine, with the log-probs of the tokens that stay."""

from __future__ import annotations

from bisect import bisect_left
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.graph.stepper import GraphStepper
from grpo_cli.rollout.make import make_engine
from grpo_cli.rollout.stop_words import StopWords
from grpo_cli.rollout.vllm.engine import VllmEngine, stop_and_ban
from tests.builders.rollout_models import plain_logps, tiny

TOKENIZER = byte_tokenizer()
LENGTH = 24


def ids(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False).input_ids)


class Pieces:
    """A tokenizer whose tokens are these texts; beside others a piece keeps its first blank, alone it loses it."""

    def __init__(self, *pieces: str) -> None:
        self.pieces, self.decoded = pieces, 0

    def batch_decode(self, token_ids: Any, *, skip_special_tokens: bool) -> list[str]:
        assert not skip_special_tokens
        self.decoded += 1
        return ["".join(self.pieces[token] for token in ids).removeprefix(" ") for ids in token_ids]


def cut(completion: Completion, text: str) -> int | None:
    """Tokens up to the first that completes the text, by decoding beginnings: those that hold it are the longer ones."""

    def holds(count: int) -> bool:
        return text in TOKENIZER.batch_decode([completion.token_ids[:count]], skip_special_tokens=False)[0]

    counts = range(1, len(completion.token_ids) + 1)
    found = bisect_left(counts, True, key=holds)
    return counts[found] if found < len(counts) else None


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [completion for group in groups for completion in group]


def check(free: list[list[Completion]], stopped: list[list[Completion]], texts: list[str]) -> int:
    """Every stopped sample is the free one up to its first text; how many a text has ended."""
    count = 0
    for before, after in zip(flat(free), flat(stopped), strict=True):
        ends = [n for n in (cut(before, text) for text in texts) if n is not None]
        expected = before.token_ids[: min(ends)] if ends else before.token_ids
        assert after.token_ids == expected
        assert after.logps == pytest.approx(before.logps[: len(expected)], abs=1e-5)
        assert after.finish == ("stop" if ends else before.finish)
        count += bool(ends)
    return count


def eager(model: Any) -> Any:
    return make_engine("graph", model, TOKENIZER, end_ids=set())


def in_leaps(model: Any) -> Any:
    """The engine of a GPU, which looks at the samples every eighth token only."""
    engine = GraphEngine(model, set(), max_rows=5, tokenizer=TOKENIZER)
    engine.stepper = GraphStepper(engine.forward, capture=lambda step: step)
    return engine


def few_rows(model: Any) -> Any:
    return GraphEngine(model, set(), max_rows=3, tokenizer=TOKENIZER)


ASKED = [Request(ids("1+1="), 12), Request(ids("abc"), 12)]


@pytest.mark.parametrize("make", [eager, in_leaps, few_rows])
@pytest.mark.parametrize("texts", [["a"], ["ab", "e"], ["\n", "zz", "7"], ["never found"]])
def test_a_sample_ends_with_the_token_that_completes_a_text(make: Any, texts: list[str]) -> None:
    model = tiny(vocab_size=len(TOKENIZER), initializer_range=0.02)
    engine = make(model)
    free = engine.generate(ASKED, SamplingSettings(LENGTH, seed=3))
    stopped = engine.generate(ASKED, SamplingSettings(LENGTH, seed=3, stop=tuple(texts)))
    few = check(free, stopped, texts)
    assert (few > 0) == (texts != ["never found"])
    assert engine.generate(ASKED, SamplingSettings(LENGTH, seed=3)) == free


def peaked() -> Any:
    """A model with few tokens to choose from, so that texts of several tokens come up."""
    model = tiny(vocab_size=len(TOKENIZER))
    head = model.get_output_embeddings()
    keep = torch.zeros(len(TOKENIZER), dtype=torch.bool)
    keep[ids("ab<>/x")] = True
    head.weight = torch.nn.Parameter(torch.where(keep[:, None], head.weight * 0.2, torch.zeros(())))
    head.bias = torch.nn.Parameter(torch.where(keep, 0.0, -50.0))
    return model


@pytest.mark.parametrize("make", [eager, in_leaps])
@pytest.mark.parametrize("text", ["ab", "</", "b>x", "aba"])
def test_texts_of_several_tokens_end_samples(make: Any, text: str) -> None:
    engine = make(peaked())
    free = engine.generate(ASKED, SamplingSettings(60, seed=1))
    stopped = engine.generate(ASKED, SamplingSettings(60, seed=1, stop=(text,)))
    assert check(free, stopped, [text]) >= 3


def test_transformers_ends_them_at_the_same_places() -> None:
    model = peaked()
    engine = make_engine("transformers", model, TOKENIZER, end_ids=set())
    seen: list[int] = []
    free = engine.generate(ASKED, SamplingSettings(60, seed=1))
    stopped = engine.generate(
        ASKED, SamplingSettings(60, seed=1, stop=("ab", "</")), on_finish=lambda r, s, c: seen.append(r)
    )
    assert check(free, stopped, ["ab", "</"]) >= 10
    assert len(seen) == 24
    for request, samples in zip(ASKED, stopped, strict=True):
        for sample in samples[:3]:
            expected = plain_logps(model, request.prompt_ids, sample.token_ids)
            assert torch.allclose(torch.tensor(sample.logps), expected, atol=1e-4)


def test_a_kept_beginning_and_a_new_token_complete_a_text_together() -> None:
    model = peaked()
    engine = eager(model)
    asked = [Request(ids("1+1="), 16, prefix=tuple(ids("xa")))]
    free = engine.generate(asked, SamplingSettings(40, seed=4))[0]
    stopped = engine.generate(asked, SamplingSettings(40, seed=4, stop=("ab",)))[0]
    at_once = [c for c in free if c.token_ids[0] == ids("b")[0]]
    assert at_once
    for before, after in zip(free, stopped, strict=True):
        if before in at_once:
            assert (after.token_ids, after.finish) == ([ids("b")[0]], "stop")


def test_what_vllm_ran_past_a_text_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [ids("so </a> and"), ids("so </a>"), ids("no end")]
    drawn = [[-0.5] * len(some) for some in said]
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", lambda *_: (said, drawn))
    engine = VllmEngine({1}, 64, 300, tokenizer=TOKENIZER)
    engine.attach(SimpleNamespace())
    found = engine.generate([Request([2], 3)], SamplingSettings(20, stop=("</a>",)))[0]
    assert [c.token_ids for c in found] == [ids("so </a>"), ids("so </a>"), ids("no end")]
    assert [len(c.logps) for c in found] == [7, 7, 6]
    assert [c.finish for c in found] == ["stop", "stop", "length"]


def test_vllm_is_told_texts_and_tokens() -> None:
    assert stop_and_ban([], []) == {}
    told = stop_and_ban(["</a>"], {7, 3})
    assert told["stop"] == ["</a>"]
    assert told["include_stop_str_in_output"]
    assert told["logit_bias"] == {3: -100.0, 7: -100.0}


def test_a_token_may_complete_a_text_and_say_more() -> None:
    words = StopWords(["</answer>"], Pieces("</", "answer", ">\n", "ans", "wer> and", " >"))  # type: ignore[arg-type]
    assert words.cut([0, 1, 2]) == 3
    assert words.cut([0, 3, 4, 0]) == 3
    assert words.cut([0, 1, 5]) is None
    assert words.cut([0, 3]) is None


def test_a_blank_that_a_piece_shows_only_beside_others_counts() -> None:
    words = StopWords(["end now", "stop "], Pieces("end", " now", " x", "stop"))  # type: ignore[arg-type]
    assert words.cut([0, 1]) == 2
    assert words.cut([3, 2]) == 2


def test_only_behind_tokens_that_could_complete_a_text_it_is_decoded() -> None:
    pieces = Pieces("a", "b", "!", "c")
    words = StopWords(["!"], pieces)  # type: ignore[arg-type]
    assert words.cut([0, 1, 3] * 50) is None
    assert pieces.decoded == 3
    assert words.cut([0, 1, 3] * 50 + [2]) == 151


def test_a_character_of_several_tokens_ends_a_sample_with_its_last() -> None:
    words = StopWords(["🛑"], TOKENIZER)
    assert words.cut(ids("so 🛑 on")) == len("so 🛑".encode())


def test_a_special_token_can_be_named() -> None:
    special = TOKENIZER.convert_ids_to_tokens(TOKENIZER.eos_token_id)
    words = StopWords([special], TOKENIZER)
    assert words.cut([*ids("ab"), TOKENIZER.eos_token_id, *ids("c")]) == 3
