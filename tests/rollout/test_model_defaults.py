"""A checkpoint's `generation_config.json` says what ends a completion, and nothing else of how it is sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import tiny

DEFAULTS: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 3.0},
    "encoder penalty": {"encoder_repetition_penalty": 2.0},
    "suppress": {"suppress_tokens": list(range(60))},
    "suppress at the start": {"begin_suppress_tokens": list(range(60))},
    "n-grams": {"no_repeat_ngram_size": 1},
    "bad words": {"bad_words_ids": [[token] for token in range(60)]},
    "bias": {"sequence_bias": [[[token], -50.0] for token in range(60)]},
    "temperature": {"do_sample": True, "temperature": 0.01},
    "top_k": {"do_sample": True, "top_k": 1},
    "top_p": {"do_sample": True, "top_p": 0.01},
    "min_p": {"do_sample": True, "min_p": 0.9},
    "typical": {"do_sample": True, "typical_p": 0.1},
    "epsilon": {"do_sample": True, "epsilon_cutoff": 0.2},
    "eta": {"do_sample": True, "eta_cutoff": 0.2},
    "top_h": {"do_sample": True, "top_h": 0.1},
    "greedy": {"do_sample": False},
    "forced start": {"forced_bos_token_id": 5},
    "forced end": {"forced_eos_token_id": 6},
    "length decay": {"exponential_decay_length_penalty": [1, 9.0], "eos_token_id": 3},
    "short": {"max_length": 6},
    "few": {"max_new_tokens": 2},
    "long": {"min_length": 40},
    "many": {"min_new_tokens": 8, "eos_token_id": list(range(60))},
    "beams": {"num_beams": 3},
    "several": {"num_return_sequences": 2, "num_beams": 2},
    "guidance": {"guidance_scale": 3.0},
    "watermark": {"watermarking_config": {"bias": 20.0, "seeding_scheme": "selfhash"}},
    "hurry": {"max_time": 1e-9},
    "words": {"stop_strings": ["a"]},
    "lookup": {"prompt_lookup_num_tokens": 3},
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
    "dictionary": {"return_dict_in_generate": True, "output_scores": True},
    "all at once": {
        "do_sample": True,
        "temperature": 0.3,
        "top_k": 2,
        "repetition_penalty": 3.0,
        "no_repeat_ngram_size": 1,
        "suppress_tokens": [1, 2, 3],
        "max_new_tokens": 3,
    },
}


def samples(engine: str, model: Any, settings: SamplingSettings) -> list[list[tuple[list[int], str]]]:
    asked = [Request([1, 2, 3], 3), Request([4, 5, 6], 3)]
    found = make_engine(engine, model).generate(asked, settings)
    return [[(c.token_ids, c.finish) for c in row] for row in found]


@pytest.mark.parametrize("settings", [SamplingSettings(10, seed=3), SamplingSettings(10, temperature=0)])
@pytest.mark.parametrize("engine", ["transformers", "graph"])
@pytest.mark.parametrize("case", DEFAULTS)
def test_no_default_of_the_model_acts_on_sampling(case: str, engine: str, settings: SamplingSettings) -> None:
    bare, model = tiny(), tiny()
    model.generation_config = given = GenerationConfig(**DEFAULTS[case])
    # what ends a completion is the one thing that is taken from there
    bare.generation_config.eos_token_id = given.eos_token_id
    before = given.to_dict()
    assert samples(engine, model, settings) == samples(engine, bare, settings)
    assert model.generation_config is given and given.to_dict() == before


@pytest.mark.parametrize("engine", ["transformers", "graph"])
def test_ends_of_the_generation_config_are_taken(engine: str) -> None:
    model = tiny()
    settings = SamplingSettings(10, seed=3)
    first = samples(engine, model, settings)[0][0][0]
    model.generation_config.eos_token_id = [first[2], 66]
    ids, finish = samples(engine, model, settings)[0][0]
    assert ids == first[: first.index(first[2]) + 1] and finish == "stop"


def test_the_model_keeps_its_defaults_after_a_failure() -> None:
    model = tiny()
    given = model.generation_config = GenerationConfig(repetition_penalty=3.0)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(Exception, match="not finite"):
        samples("transformers", model, SamplingSettings(4, seed=1))
    assert model.generation_config is given


def test_a_folder_with_such_a_file_is_sampled_alike_by_both_engines(tmp_path: Path) -> None:
    """As the file lies in a checkpoint, with a key that only newer libraries may know."""
    tiny().save_pretrained(tmp_path)
    bare = AutoModelForCausalLM.from_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(
        '{"repetition_penalty": 3.0, "suppress_tokens": [1, 2], "no_repeat_ngram_size": 2, "some_new_rule": 5}'
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.generation_config.repetition_penalty == 3.0
    for engine in ("transformers", "graph"):
        for settings in (SamplingSettings(10, seed=3), SamplingSettings(10, temperature=0)):
            assert samples(engine, model, settings) == samples(engine, bare, settings)
