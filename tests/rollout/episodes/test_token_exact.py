"""Every trained token is the id that the engine sampled, with its log-prob, behind the ids that the engine was fed.

A recorder around `Engine.generate` holds what went in and came out. The tokenizer is a BPE of 2,000 pieces and the weights are random, so
that almost every turn would come back as other ids if it were encoded again. `GRPO_EXACT_TOKENS` sets how many tokens are tried.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grpo_cli.data.rows import Row
from grpo_cli.environments.endpoint.tree import Tree
from grpo_cli.environments.harness import Harness
from grpo_cli.environments.taskset import Taskset, listed
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.episodes.harness import HarnessEpisodes
from grpo_cli.rollout.make import make_engine
from tests.builders.chat_models import QWEN3
from tests.builders.rollout_models import plain_logps

TOKENS = int(os.environ.get("GRPO_EXACT_TOKENS", "6000"))
SCRIPT = Path(__file__).with_name("harnesses.py")
ALL = ["chat", "responses", "messages"]
CONTEXT = 4096
HOW = {
    "keeping": {"turns": 6, "tokens": 25},
    "rewriting": {"turns": 5, "tokens": 25, "rewrites": 0.6, "system": True},
    "retries": {"turns": 5, "tokens": 20, "retries": True},
    "siblings": {"turns": 4, "tokens": 15, "siblings": 0.5},
    "cancels": {"turns": 4, "tokens": 20, "cancels": 0.5},
}


@pytest.fixture(scope="module")
def policy() -> Policy:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator((page.read_text() for page in sorted(Path("docs").glob("*.md"))), trainer)
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=QWEN3
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
    )
    return Policy.of(LlamaForCausalLM(config).eval(), tokenizer)  # type: ignore[arg-type]


class Recorder:
    """An engine that remembers what it was asked and what it answered."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.kind = inner, inner.kind
        self.calls: list[tuple[list[int], Completion]] = []
        self.batches: list[int] = []

    def generate(self, requests: Sequence[Request], settings: SamplingSettings, **more: Any) -> list[list[Completion]]:
        found: list[list[Completion]] = self.inner.generate(requests, settings, **more)
        self.calls += [(list(r.ids), c) for r, (c,) in zip(requests, found, strict=True)]
        self.batches.append(len(requests))
        return found

    def release(self) -> None:
        self.inner.release()


def rows(n: int) -> list[Row]:
    asked = [f"What is {i} plus {i}?" for i in range(n)]
    return [
        Row(f"r{i}", text, [{"role": "user", "content": text}], {"question": text, "number": i}, f"x:{i}")
        for i, text in enumerate(asked)
    ]


def played(
    policy: Policy, how: dict[str, Any], n: int, size: int = 2, **endpoint: Any
) -> tuple[list[Completion], Recorder]:
    command = f"{sys.executable} {SCRIPT} '{json.dumps({'dialects': ALL, 'seed': 0, **how})}'"
    spec = Environment.model_validate(
        {
            "harness": {"command": command, "pass": ["question", "number"]},
            "max_turns": 64,
            "endpoint": {"max_rows": 64, "train_rows": "all", **endpoint},
        }
    )
    return recorded(policy, spec, Harness(command, ["question", "number"], workers=16), rows(n), size)


def recorded(
    policy: Policy, spec: Environment, harness: Harness, some: list[Row], size: int
) -> tuple[list[Completion], Recorder]:
    recorder = Recorder(make_engine("graph", policy.model, policy.tokenizer, end_ids=policy.end_ids))
    harness.start()
    try:
        play = HarnessEpisodes(spec, harness, policy, recorder).open(some, size, 5)
        groups = play.generate(SamplingSettings(2000, seed=5))
    finally:
        harness.close()
    return [completion for group in groups for completion in group], recorder


def refuse_inexact(completions: Sequence[Completion], recorder: Recorder, policy: Policy) -> Counter[str]:
    """Counts of tokens: trained ones, and sampled ones whose client had gone.

    Raises:
        AssertionError: a token that is trained is not what was sampled there, or is trained twice, or is in no class.
    """
    known: dict[tuple[int, ...], list[Completion]] = {}
    for ids, sampled in recorder.calls:
        known.setdefault(tuple(ids), []).append(sampled)
    found, gone = Counter[str](), 0
    for completion in completions:
        assert completion.episode is not None and completion.episode.reason == "", completion.episode
        gone += completion.episode.counts["requests"]
        for row in completion.rows:
            assert row.branch is not None and len(row.logps) == len(row.token_ids)
            whole = [*row.branch.prompt_ids, *row.token_ids]
            start = len(row.branch.prompt_ids)
            # the rest is context: nothing of it may be trained
            assert sum(row.mask) == sum(end - begin for begin, end in row.branch.spans)
            for begin, end in row.branch.spans:
                ids, logps = row.token_ids[begin:end], row.logps[begin:end]
                same = known.get(tuple(whole[: start + begin]), [])
                match = next((one for one in same if one.token_ids == ids and one.logps == logps), None)
                assert match is not None, "a trained span is none that was sampled behind these ids"
                same.remove(match)
                found["trained"] += len(ids)
                found["spans"] += 1
    found["cancelled"] = sum(len(one.token_ids) for left in known.values() for one in left)
    assert found["spans"] == gone, "a turn that was answered is not trained"
    return found


def logps_of(policy: Policy, completions: Sequence[Completion]) -> float:
    """The largest difference between recorded log-probs and those of a forward pass."""
    worst = 0.0
    for completion in completions:
        for row in completion.rows:
            assert row.branch is not None
            plain = plain_logps(policy.model, row.branch.prompt_ids, row.token_ids)
            worst = max([worst, *(abs(a - b) for a, b, own in zip(plain, row.logps, row.mask, strict=True) if own)])
    return worst


@pytest.mark.parametrize("name", HOW)
def test_0_of_all_trained_tokens_were_encoded_again(policy: Policy, name: str, capsys: Any) -> None:
    how = HOW[name]
    rows_wanted = max(2, TOKENS // len(HOW) // (how["turns"] * how["tokens"]) // 2)
    completions, recorder = played(policy, how, rows_wanted)
    found = refuse_inexact(completions, recorder, policy)
    counts = sum((Counter(c.episode.counts) for c in completions if c.episode is not None), Counter())
    # what is trained would be other ids if its text were encoded
    turns = [
        row.token_ids[begin:end]
        for completion in completions
        for row in completion.rows
        for begin, end in (row.branch.spans if row.branch is not None else ())
    ]
    texts = policy.decode_whole(turns)
    other = sum(
        list(policy.tokenizer(text, add_special_tokens=False).input_ids) != ids
        for text, ids in zip(texts, turns, strict=True)
    )
    worst = logps_of(policy, completions[:8])
    with capsys.disabled():
        print(
            f"\n{name}: {found['trained']} trained, {found['cancelled']} of clients that left, {len(turns)} turns of which {other}"
            f" encode otherwise, {dict(counts)}, batches of {sum(recorder.batches) / len(recorder.batches):.1f}, log-probs {worst:.1e}"
        )
    assert other > 0.7 * len(turns) and worst < 1e-4
    assert {"rewriting": counts["history"], "siblings": counts["sibling"], "retries": counts["retry"]}.get(name, 1) > 0
    if name == "keeping":
        assert counts["rows"] == len(completions) and not found["cancelled"]
    if name == "cancels":
        assert counts["cancelled"] > 0


def encoded_again(policy: Policy) -> Iterator[tuple[str, Any]]:
    commit, plan = Tree.commit, Tree.plan

    def again(self: Tree, one: Any, ids: Any, logps: Any, said: Any) -> int:
        ids = list(policy.tokenizer(policy.decode_whole([ids])[0], add_special_tokens=False).input_ids)
        return commit(self, one, ids, [*logps, *[0.0] * len(ids)][: len(ids)], said)

    def realigned(self: Tree, messages: Any, tools: Any) -> Any:
        # what was said before in the ids of its text, where those are as many: the sampled ids become context
        found = plan(self, messages, tools)
        if found.extends is not None:
            row = self.rows[found.extends]
            text = policy.decode_whole([row.ids])[0]
            row.ids[:] = [*policy.tokenizer(text, add_special_tokens=False).input_ids, *row.ids][: len(row.ids)]
            found.prompt_ids[: len(row.ids)] = row.ids
        return found

    yield "commit", again
    yield "plan", realigned


@pytest.mark.parametrize("number", [0, 1])
def test_what_encodes_again_is_found_out(policy: Policy, number: int, monkeypatch: Any) -> None:
    name, mutant = list(encoded_again(policy))[number]
    monkeypatch.setattr(Tree, name, mutant)
    completions, recorder = played(policy, HOW["keeping"], 2)
    with pytest.raises(AssertionError, match="none that was sampled"):
        refuse_inexact(completions, recorder, policy)


def test_an_episode_is_the_same_whatever_plays_beside_it(policy: Policy) -> None:
    how = HOW["rewriting"]
    some, _ = played(policy, how, 4)
    alone, _ = played(policy, how, 1)
    together, recorder = played(policy, how, 4, gather_ms=60_000)
    assert max(recorder.batches) == 8
    ids = [[(row.branch and row.branch.prompt_ids, row.token_ids) for row in c.rows] for c in some]
    assert ids[:2] == [[(row.branch and row.branch.prompt_ids, row.token_ids) for row in c.rows] for c in alone]
    assert ids == [[(row.branch and row.branch.prompt_ids, row.token_ids) for row in c.rows] for c in together]


@pytest.mark.skipif("GRPO_TASKSET_PYTHON" not in os.environ, reason="GRPO_TASKSET_PYTHON is not set")
def test_a_taskset_of_verifiers_trains_what_was_sampled(policy: Policy, capsys: Any) -> None:
    python, folder = os.environ["GRPO_TASKSET_PYTHON"], Path("tests/environments/tasksets")
    size = max(4, TOKENS // 250)
    tasks = listed("my_taskset", "all", {"interpreter": python, "size": size}, folder, "data.train")
    some = [
        Row(f"r{i}", task["prompt"], [{"role": "user", "content": task["prompt"]}], task, f"x:{i}")
        for i, task in enumerate(tasks)
    ]
    spec = Environment.model_validate({"verifiers": "my_taskset", "interpreter": python, "turn_tokens": 25})
    taskset = Taskset("my_taskset", python, {}, base=folder, max_turns=16, workers=8)
    completions, recorder = recorded(policy, spec, taskset, some, 4)
    found = refuse_inexact(completions, recorder, policy)
    with capsys.disabled():
        print(
            f"\ntaskset: {found['trained']} trained in {found['spans']} turns, log-probs {logps_of(policy, completions[:8]):.1e}"
        )
    episodes = [one.episode for one in completions if one.episode is not None]
    assert all(len(one.turns) == 2 and one.counts["rows"] == 1 for one in episodes)
    # chance is the row's, and no whole number: what differs in its samples' outcomes is what they said
    outcomes = [one.outcome or 0.0 for one in episodes]
    assert len(set(outcomes)) > len(outcomes) // 4
    assert all(len({round(outcomes[i + k] % 1, 9) for k in range(4)}) == 1 for i in range(0, len(outcomes), 4))
