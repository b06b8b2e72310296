"""Prefix reuse: its rule against the worked numbers, its ends against the plain engine."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from grpo_cli.errors import DataError, SetupError
from grpo_cli.rollout.decoding.rollout_mode import Forward
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.graph.stepper import GraphStepper
from grpo_cli.rollout.logprobs import can_share
from grpo_cli.rollout.make import make_engine
from grpo_cli.rollout.reuse.accept import chances, kept_tokens
from grpo_cli.rollout.reuse.engine import PrefixReuse, reuse_metrics
from grpo_cli.rollout.reuse.history import History
from grpo_cli.rollout.reuse.score import DraftScorer
from tests.builders.rollout_models import plain_logps, prompts, tiny

ENDS = {3, 11}


def visit(model, asked, settings, lenience=1.0, past=None, **more):
    """One visit of rows 0, 1, …: what comes out, and the reuse that remembers it."""
    engine = make_engine("graph", model, end_ids=ENDS)
    reuse = PrefixReuse(engine, model, lenience)
    if past is not None:
        reuse.history = past
    rows = range(len(asked))
    done = reuse.generate(reuse.history.drafts(rows), asked, settings, **more)
    reuse.history.update(dict(zip(rows, done, strict=True)))
    return done, reuse


def moved(model, by=0.05):
    """The same model a few optimizer steps later."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return model


def tokens_of(done):
    return [[c.token_ids for c in group] for group in done]


# the rule


def test_the_first_rejection_cuts():
    old, new = np.log([0.5, 0.5, 0.5]), np.log([0.6, 0.4, 0.1])
    assert kept_tokens(old, new, np.array([0.9, 0.7, 0.5]), 1.0) == 2
    assert kept_tokens(old, new, np.array([0.9, 0.7, 0.3]), math.exp(0.5)) == 3
    assert kept_tokens(old, new, np.array([0.9, 0.7, 0.3]), 1.0) == 2
    assert kept_tokens(old, new, np.array([0.9, 0.8, 0.0]), 1.0) == 1


def test_no_lenience_keeps_nothing_and_a_likelier_token_is_always_kept():
    old, new = np.log([0.5, 0.5]), np.log([0.6, 0.5])
    assert kept_tokens(old, new, np.array([0.0, 0.0]), 0.0) == 0
    assert kept_tokens(old, new, np.array([0.999, 0.999]), 1.0) == 2
    assert kept_tokens(old, np.array([new[0], np.nan]), np.array([0.0, 0.0]), 1.0) == 1


def test_the_chance_is_uniform_and_of_its_seed_row_sample_and_position_alone():
    (long,) = chances(5, [(7, 3)], 20_000)
    assert kstest(long, "uniform").pvalue > 1e-3
    assert np.array_equal(chances(5, [(1, 1), (7, 3)], 30)[1], long[:30])
    for other in (*chances(5, [(8, 3), (7, 4)], 20_000), *chances(6, [(7, 3)], 20_000)):
        assert abs(np.corrcoef(long, other)[0, 1]) < 0.03


# going on from tokens that are there


@pytest.mark.parametrize("rows", [3, 64])
@pytest.mark.parametrize("captured", [False, True])
def test_the_engine_goes_on_from_what_was_begun(rows, captured):
    model = tiny()
    settings = SamplingSettings(12, temperature=0)
    more = {"stepper": GraphStepper(Forward(model), capture=lambda step: step)} if captured else {}
    engine = GraphEngine(model, ENDS, max_rows=rows, **more)
    asked = prompts(3)
    whole = [group[0] for group in engine.generate([Request(p) for p in asked], settings)]
    starts = [(p, c, n) for p, c in zip(asked, whole, strict=True) for n in range(len(c.token_ids))]
    rests = engine.generate([Request(p, 2, prefix=tuple(c.token_ids[:n])) for p, c, n in starts], settings)
    for (_, c, n), pair in zip(starts, rests, strict=True):
        for rest in pair:
            assert rest.token_ids == c.token_ids[n:] and rest.finish == c.finish
            assert rest.logps == pytest.approx(c.logps[n:], abs=1e-4)


def test_the_repetition_penalty_sees_what_was_begun():
    engine = make_engine("graph", tiny(), end_ids=ENDS)
    settings = SamplingSettings(20, temperature=0, repetition_penalty=1.7)
    whole = engine.generate([Request([5, 9])], settings)[0][0].token_ids
    rest = engine.generate([Request([5, 9], prefix=tuple(whole[:6]))], settings)[0][0].token_ids
    assert whole[:6] + rest == whole


def test_a_start_that_leaves_nothing_to_sample_is_refused():
    engine = make_engine("graph", tiny(), end_ids=ENDS)
    with pytest.raises(DataError, match="begun with 4 of 4 tokens"):
        engine.generate([Request([1], prefix=(1, 2, 4, 5))], SamplingSettings(4))


# the two ends


def test_an_unchanged_policy_keeps_everything_and_decodes_nothing(monkeypatch):
    model = tiny()
    asked = [Request(p, 6) for p in prompts(5)]
    first, reuse = visit(model, asked, SamplingSettings(15, temperature=0.8, seed=1))
    assert {c.finish for group in first for c in group} == {"stop", "length"}
    generated = []
    engine = reuse.engine.generate
    monkeypatch.setattr(
        reuse.engine, "generate", lambda asked, *more: generated.extend(asked) or engine(asked, *more)
    )
    second = reuse.generate(
        reuse.history.drafts(range(5)), asked, SamplingSettings(15, temperature=0.8, seed=2)
    )
    assert tokens_of(second) == tokens_of(first) and not generated
    assert [[c.finish for c in group] for group in second] == [[c.finish for c in group] for group in first]
    assert reuse_metrics(c for group in second for c in group) == {"reuse/tokens": 1.0, "reuse/whole": 1.0}


def test_without_lenience_the_samples_are_the_plain_engines():
    model = tiny()
    asked = [Request(p, 6) for p in prompts(5)]
    _, reuse = visit(model, asked, SamplingSettings(15, seed=1))
    moved(model)
    settings = SamplingSettings(15, seed=2)
    second, _ = visit(model, asked, settings, 0.0, reuse.history)
    assert second == make_engine("graph", model, end_ids=ENDS).generate(asked, settings)


def test_a_first_visit_is_the_plain_engines():
    model = tiny()
    asked = [Request(p, 6) for p in prompts(5)]
    settings = SamplingSettings(15, seed=2)
    assert visit(model, asked, settings)[0] == make_engine("graph", model, end_ids=ENDS).generate(
        asked, settings
    )


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Gemma", "Granite"])
def test_log_probs_are_the_current_policys_for_kept_and_for_new_tokens(family):
    model = tiny(family)
    asked = [Request(p, 6) for p in prompts(5)]
    _, reuse = visit(model, asked, SamplingSettings(15, temperature=0.7, seed=1))
    moved(model, 0.01)
    done, _ = visit(model, asked, SamplingSettings(15, temperature=0.7, seed=2), past=reuse.history)
    flat = [c for group in done for c in group]
    assert any(0 < c.kept < len(c.token_ids) for c in flat)
    for request, group in zip(asked, done, strict=True):
        for c in group:
            expected = plain_logps(model, request.prompt_ids, c.token_ids, 0.7)
            assert torch.allclose(torch.tensor(c.logps), expected, atol=1e-4)
            assert c.finish == ("stop" if c.token_ids[-1] in ENDS else "length")
            assert c.finish == "stop" or len(c.token_ids) == 15


@pytest.mark.parametrize("shared", [False, True])
def test_scores_are_a_plain_forward_passes_in_one_pass_or_many(monkeypatch, shared):
    model = tiny()
    scorer = DraftScorer(model)
    assert scorer.shares_prompts
    scorer.shares_prompts = shared
    asked = [prompt for prompt in prompts(6) for _ in range(3)]
    old = [ids or [7] for ids in prompts(18, seed=1, longest=15)]
    one = scorer(asked, old, 0.9)
    monkeypatch.setattr("grpo_cli.rollout.reuse.score.TOKENS", 20)
    for prompt, ids, a, b in zip(asked, old, one, scorer(asked, old, 0.9), strict=True):
        assert a == pytest.approx(b, abs=1e-5)
        assert a == pytest.approx(plain_logps(model, prompt, ids, 0.9).tolist(), abs=1e-5)


def test_prompts_are_shared_where_positions_are_absolute_too():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    none = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "initializer_range": 0.5}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=67, n_embd=32, n_layer=2, n_head=4, **none)).eval()
    scorer = DraftScorer(model)
    assert can_share(model) and scorer.absolute and scorer.shares_prompts
    for prompt, found in zip([[5, 9, 2], [7]], scorer([[5, 9, 2], [7]], [[4, 4, 1]] * 2, 1.0), strict=True):
        assert found == pytest.approx(plain_logps(model, prompt, [4, 4, 1]).tolist(), abs=1e-5)


def test_every_sample_is_reported_once_and_as_returned():
    model = tiny()
    asked = [Request(p, 4) for p in prompts(5)]
    _, reuse = visit(model, asked, SamplingSettings(15, seed=1))
    moved(model, 0.01)
    seen, counts = {}, []
    done, _ = visit(
        model,
        asked,
        SamplingSettings(15, seed=2),
        past=reuse.history,
        on_finish=lambda r, s, c: seen.__setitem__((r, s), c),
        on_progress=lambda finished, total: counts.append((finished, total)),
    )
    assert seen == {(r, s): c for r, group in enumerate(done) for s, c in enumerate(group)}
    assert counts[-1] == (20, 20) and counts == sorted(counts) and counts[0][0] > 0


def test_dropout_is_off_while_scoring_and_on_afterwards():
    model = tiny(attention_dropout=0.5).train()
    asked = [Request(p, 6) for p in prompts(3)]
    first, reuse = visit(model, asked, SamplingSettings(15, seed=1))
    second, _ = visit(model, asked, SamplingSettings(15, seed=2), past=reuse.history)
    assert tokens_of(second) == tokens_of(first)
    assert model.training and not model.lm_head._forward_pre_hooks


# what is remembered


def test_the_second_half_of_a_group_keeps_from_the_second_half():
    past = History()
    past.update({4: [Completion([n], [-0.5], "stop") for n in range(6)]})
    assert [d.sample for d in past.drafts([4], 3)[0]] == [3, 4, 5]
    assert past.drafts([9]) == [[]]


@pytest.mark.parametrize("drawn", [{}, {7: [Completion([1, 2], [-0.1, -1 / 3], "stop"), Completion([5], [-2.0], "length")], 2: [Completion([9] * 4, [-1e-7] * 4, "stop")]}])  # fmt: skip
def test_the_past_comes_back_from_its_file_bit_for_bit(tmp_path, drawn):
    past, back = History(), History()
    past.update(drawn)
    past.save(tmp_path / "past")
    back.load(tmp_path / "past")
    assert back.rows.keys() == past.rows.keys()
    for row, drafts in past.rows.items():
        for a, b in zip(drafts, back.rows[row], strict=True):
            assert (a.row, a.sample, a.ended) == (b.row, b.sample, b.ended)
            assert a.token_ids.tolist() == b.token_ids.tolist() and a.logps.tobytes() == b.logps.tobytes()
    assert past.nbytes <= (tmp_path / "past").stat().st_size < past.nbytes + 1000


def test_an_engine_that_cannot_go_on_from_kept_tokens_is_refused():
    model = tiny()
    with pytest.raises(SetupError, match="`transformers` cannot"):
        PrefixReuse(make_engine("transformers", model, end_ids=ENDS), model, 1.0)
