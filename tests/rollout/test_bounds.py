"""Bad input is refused before any work, with every mistake named."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.errors import DataError, RecipeError, SetupError, TrainingError
from grpo_cli.policy.tokens import end_tokens
from grpo_cli.rollout.decoding.supports import measure_layout
from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.graph import engine as graph
from grpo_cli.rollout.graph.caches import free_bytes, rows_that_fit
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import tiny

ENGINES = ["graph", "transformers"]


@pytest.mark.parametrize("engine", ENGINES)
def test_prompts_the_model_cannot_take_are_named_together(engine):
    asked = [Request([1]), Request([]), Request([1] * 120), Request([67]), Request([1] * 118)]
    with pytest.raises(DataError) as caught:
        make_engine(engine, tiny()).generate(asked, SamplingSettings(10))
    assert [m.place for m in caught.value.mistakes] == ["prompt 1", "prompt 2", "prompt 3"]
    assert "context of 128" in str(caught.value) and "max_prompt_tokens" in caught.value.hint


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prompt_that_just_fits_is_completed(engine):
    done = make_engine(engine, tiny()).generate([Request([1] * 118)], SamplingSettings(10, seed=0))
    assert len(done[0][0].token_ids) == 10


@pytest.mark.parametrize("engine", ENGINES)
def test_sampling_values_without_meaning_are_named_together(engine):
    with pytest.raises(RecipeError) as caught:
        make_engine(engine, tiny()).generate([], SamplingSettings(0, temperature=-1, top_p=0, min_p=float("nan")))
    assert len(caught.value.mistakes) == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_asked_gives_nothing(engine):
    assert make_engine(engine, tiny()).generate([], SamplingSettings(4)) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_no_pad_token_and_no_end_token_are_needed(engine):
    model = tiny()
    done = make_engine(engine, model).generate([Request([1]), Request([1, 2, 3])], SamplingSettings(6, seed=0))
    assert [row[0].finish for row in done] == ["length", "length"]


def test_every_end_token_counts():
    model = tiny()
    model.generation_config.eos_token_id = [7, 9]
    model.config.eos_token_id = 8

    class Tokenizer:
        eos_token_id = 3

    assert end_tokens(model, Tokenizer()) == {3, 7, 8, 9}
    assert end_tokens(tiny()) == set()


def test_a_cache_that_does_not_fit_is_refused_before_the_run():
    with pytest.raises(SetupError, match="one sample of 64 tokens"):
        GraphEngine(tiny(), [], cache_bytes=1000).generate([Request([1])], SamplingSettings(4))


def test_a_small_budget_means_fewer_rows_and_the_same_samples():
    model = tiny()
    layout = measure_layout(model)
    settings, asked = SamplingSettings(20, seed=1), [Request([1, 2], 6)]
    small = GraphEngine(model, [], cache_bytes=layout.token_bytes * 64 * 2)
    tokens = [[c.token_ids for c in e.generate(asked, settings)[0]] for e in (small, GraphEngine(model, []))]
    assert tokens[0] == tokens[1]
    assert small._store is not None and small._store.rows == 2


def test_the_cache_is_kept_until_released():
    engine = GraphEngine(tiny(), [])
    engine.generate([Request([1], 4)], SamplingSettings(8))
    kept = engine._store
    engine.generate([Request([1], 2)], SamplingSettings(4))
    assert engine._store is kept
    engine.release()
    assert engine._store is None
    engine.generate([Request([1], 2)], SamplingSettings(4))


def test_a_cache_larger_than_what_is_free_makes_way_for_the_update(monkeypatch):
    engine = GraphEngine(tiny(), {5})
    engine.make_way()  # there is none yet
    first = engine.generate([Request([1, 2], 3)], SamplingSettings(6, seed=3))
    held = engine._store.layout.token_bytes * engine._store.rows * engine._store.columns
    for free, goes in ((held, False), (None, False), (held - 1, True)):
        monkeypatch.setattr(graph, "free_bytes", lambda device, free=free: free)
        engine.make_way()
        assert (engine._store is None) == goes
    monkeypatch.setattr(graph, "free_bytes", free_bytes)
    assert engine.generate([Request([1, 2], 3)], SamplingSettings(6, seed=3)) == first


def test_rows_are_as_many_as_fit():
    layout = measure_layout(tiny())
    assert rows_that_fit(layout, 100, 10, layout.token_bytes * 75) == 7
    assert rows_that_fit(layout, 5, 10, None) == 5
    assert (free_bytes(torch.device("cpu")) or 1) > 0


@pytest.mark.parametrize(
    ("fraction", "free"),
    # of 100: 60 are free on the card, torch holds 30 and uses 20 of them; another process has the last 10
    [(1.0, 60 + 30 - 20), (0.9, 60 + 30 - 20), (0.5, 50 - 20), (0.25, 25 - 20), (0.1, 10 - 20)],
)
def test_a_cap_of_the_process_bounds_what_is_free(fraction, free, monkeypatch):
    answers = {"mem_get_info": (60, 100), "memory_reserved": 30, "memory_allocated": 20}
    for name, answer in {**answers, "get_per_process_memory_fraction": fraction}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    assert free_bytes(torch.device("cuda", 0)) == free


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_weights_are_a_training_error_not_a_crash(engine, temperature):
    model = tiny()
    made = make_engine(engine, model)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="not finite"):
        made.generate([Request([1, 2], 2)], SamplingSettings(4, temperature=temperature))


def test_unknown_engines_are_refused():
    with pytest.raises(RecipeError, match="unknown engine `grahp`"):
        make_engine("grahp", tiny())
    with pytest.raises(SetupError, match="inside the trainer"):
        make_engine("vllm", tiny())
    with pytest.raises(SetupError, match="rotary embedding `dynamic`"):
        make_engine("graph", tiny(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}))


def test_a_cache_cut_by_memory_is_kept_too():
    model = tiny()
    engine = GraphEngine(model, [], cache_bytes=measure_layout(model).token_bytes * 64 * 2)
    stores = []
    for _ in range(2):
        engine.generate([Request([1, 2], 6)], SamplingSettings(20, seed=1))
        stores.append(engine._store)
    assert stores[0] is stores[1]


def test_calls_that_alternate_in_shape_settle_on_one_cache():
    engine = GraphEngine(tiny(), [])
    stores = []
    for _ in range(3):
        engine.generate([Request([1, 2], 1)], SamplingSettings(90, seed=1))
        engine.generate([Request([1, 2], 9)], SamplingSettings(3, seed=1))
        stores.append(engine._store)
    assert stores[0] is stores[1] is stores[2]


def test_a_cache_the_machine_refuses_is_tried_with_fewer_rows(monkeypatch):
    model, tried = tiny(), []
    asked, settings = [Request([1, 2], 6)], SamplingSettings(20, seed=1)
    expected = GraphEngine(model, []).generate(asked, settings)
    made = graph.PackedStore

    def refused(layout, rows, columns):
        tried.append(rows)
        if rows > 2:
            raise RuntimeError("out of memory: 1 TiB")
        return made(layout, rows, columns)

    monkeypatch.setattr(graph, "PackedStore", refused)
    found = GraphEngine(model, []).generate(asked, settings)
    assert [c.token_ids for c in found[0]] == [c.token_ids for c in expected[0]]
    assert tried == [6, 3, 1]


def test_a_machine_without_memory_for_one_sample_is_a_setup_error(monkeypatch):
    def refused(layout, rows, columns):
        raise RuntimeError("out of memory: 1 TiB")

    monkeypatch.setattr(graph, "PackedStore", refused)
    with pytest.raises(SetupError, match="one sample of 64 tokens"):
        GraphEngine(tiny(), []).generate([Request([1], 4)], SamplingSettings(4))
