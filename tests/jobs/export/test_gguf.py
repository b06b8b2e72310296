"""GGUF files against what transformers reads of them, and what no file is written of. llama.cpp itself: `make test-gguf`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from grpo_cli.errors import SetupError
from grpo_cli.jobs.export.gguf import (
    UNKNOWN,
    architecture_of,
    chat_form,
    check_gguf,
    modelfile,
    neighbours,
    vocabulary_of,
    write_gguf,
)
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.load import load
from tests.builders.gguf_models import LLAMA3, policy, tokenizer

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|system|>Be kind.<|end|>\n{% endif %}"
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize(
    ("kind", "more"),
    [("llama", {}), ("llama", {"tie_word_embeddings": True}), ("qwen2", {}), ("qwen3", {"head_dim": 128})],
)
def test_transformers_reads_the_same_weights_back(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    made = policy(kind, tokenizer("smollm"), **more)
    write_gguf(made, tmp_path / "m.gguf", "f32")
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf")
    own, found = made.model.state_dict(), read.state_dict()
    assert own.keys() == found.keys()
    assert all(torch.equal(own[name], found[name]) for name in own)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(("precision", "within"), [("f16", 1e-3), ("bf16", 8e-3), ("q8_0", 2e-2)])
def test_precisions_are_as_near_as_their_bits(tmp_path: Path, precision: str, within: float) -> None:
    made = policy("llama", tokenizer("gpt-2"))
    write_gguf(made, tmp_path / "m.gguf", precision)
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf").state_dict()
    for name, weight in made.model.state_dict().items():
        assert (read[name] - weight).abs().max() <= within * weight.abs().max(), name


def test_neighbours_turn_where_halves_did() -> None:
    rows = torch.arange(8)[:, None]  # two heads of width 4, whose halves 0 1 | 2 3 turn together
    assert neighbours(rows, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_the_factors_of_long_turns_are_those_of_transformers() -> None:
    made = policy("llama", tokenizer("llama-bpe"), rope_parameters=LLAMA3)
    factors = architecture_of(made.model).rope_factors
    assert factors is not None
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](made.model.config, torch.device("cpu"))
    plain = 1 / 500_000.0 ** (torch.arange(0, 16, 2) / 16)
    assert torch.allclose(plain / factors, scaled, rtol=1e-5)


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_ways_to_cut_a_text_are_known_by_name(pre: str) -> None:
    words = tokenizer(pre)
    found = vocabulary_of(policy("llama", words), 448)
    assert found.pre == pre
    assert len(found.tokens) == len(found.kinds) == 448
    ids = words.get_vocab()
    assert [found.kinds[ids[t]] for t in ("<|end|>", "<think>", "a")] == [3, 4, 1]
    assert found.tokens[-1] == "[PAD447]" and found.kinds[-1] == 5
    assert found.numbers["eos_token_id"] == ids["<|end|>"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"hidden_act": "gelu"}, "the activation `gelu`"),
        ({"mlp_bias": True}, "a bias in its MLP"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}},
            "rotary embeddings of the kind `yarn`",
        ),
    ],
)
def test_a_model_that_llama_cpp_would_compute_otherwise_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(SetupError, match=said) as error:
        check_gguf(policy("llama", tokenizer("smollm"), **more))
    assert "convert_hf_to_gguf.py" in (error.value.hint or "")


def test_another_type_of_model_is_refused() -> None:
    config = GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=1)
    with pytest.raises(SetupError, match="of the type `gpt2`"):
        check_gguf(Policy.of(AutoModelForCausalLM.from_config(config), byte_tokenizer()))


def test_a_tokenizer_that_cuts_in_its_own_way_is_refused() -> None:
    from tokenizers import Regex, pre_tokenizers

    words = tokenizer("qwen2")
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\w+|\W"), "isolated"), last]
    )
    with pytest.raises(SetupError, match="has no name for"):
        check_gguf(policy("llama", words))


def test_nothing_is_left_of_a_file_that_was_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError):
        write_gguf(policy("llama", tokenizer("smollm"), mlp_bias=True), tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_a_chat_is_written_in_ollamas_words() -> None:
    words = tokenizer("smollm")
    words.chat_template = CHATML
    form = chat_form(policy("llama", words))
    assert form is not None
    assert form.none == "<|system|>Be kind.<|end|>\n"
    assert form.system == ("<|system|>", "<|end|>\n")
    assert (form.asks, form.answers, form.ends) == ("<|user|>", "<|end|>\n<|assistant|>", "<|end|>\n")
    assert form.template().startswith("{{ if .System }}<|system|>{{ .System }}<|end|>\n{{ else }}<|system|>Be kind.")


def test_a_template_that_looks_into_its_contents_is_left_to_ollama() -> None:
    words = tokenizer("smollm")
    words.chat_template = "{% for m in messages %}[{{ m['content'] | length }}]{{ m['content'] }}{% endfor %}"
    made = policy("llama", words)
    assert chat_form(made) is None
    assert UNKNOWN in modelfile(made, load("quickstart"), "m.gguf")


def test_the_embedded_model_has_a_modelfile(tmp_path: Path) -> None:
    words = byte_tokenizer()
    made = Policy.of(tiny_llama(words, 0), words)
    check_gguf(made)
    text = modelfile(made, load("quickstart"), "m.gguf")
    assert text.startswith('FROM ./m.gguf\nTEMPLATE """')
    assert 'PARAMETER stop "<|end|>"' in text
