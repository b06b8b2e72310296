"""llama.cpp loads what `grpo export --format gguf` writes, cuts texts as transformers does, and goes on greedily as it does.

`make test-gguf` makes the environment that LLAMA_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.jobs.export.gguf import write_gguf
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from tests.builders.gguf_models import LLAMA3, TEXTS, policy, tokenizer

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 24
PRE = ["gpt-2", "smollm", "qwen2", "llama-bpe"]


def llama_cpp(file: Path, prompts: list[Any], tokens: int = TOKENS) -> list[tuple[int, str]]:
    """Tokens of each prompt, and what follows it."""
    said = json.dumps({"file": str(file), "prompts": prompts, "tokens": tokens})
    done = subprocess.run(
        [os.environ["LLAMA_PYTHON"], str(Path(__file__).with_name("llama_cpp.py"))],
        input=said, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    return [(count, text) for count, text in json.loads(lines[-1][7:])]


def transformers(one: Policy, ids: list[int], tokens: int = TOKENS) -> list[int]:
    """The likeliest token again and again."""
    found: list[int] = []
    with torch.no_grad():
        for _ in range(tokens):
            logits = one.model(input_ids=torch.tensor([ids + found])).logits[0, -1]
            logits[list(one.end_ids)] = -torch.inf  # the other side is told to go on as well
            found.append(int(logits.argmax()))
    return found


def same(one: Policy, file: Path, prompts: list[str]) -> None:
    """Both go on alike, from a text that each cuts itself and from the same ids."""
    words: Any = one.tokenizer
    ids = [words(text).input_ids for text in prompts]
    expected = [words.decode(transformers(one, own), skip_special_tokens=True) for own in ids]
    from_text, from_ids = llama_cpp(file, prompts), llama_cpp(file, ids)
    assert [count for count, _ in from_text] == [len(own) for own in ids]
    assert [text for _, text in from_text] == expected
    assert [text for _, text in from_ids] == expected


@pytest.mark.parametrize("pre", PRE)
def test_texts_are_cut_and_continued_alike(tmp_path: Path, pre: str) -> None:
    one = policy("llama", tokenizer(pre))
    write_gguf(one, tmp_path / "m.gguf", "f32")
    same(one, tmp_path / "m.gguf", [*TEXTS, "<|user|>12+345<|assistant|><think> it's"])


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
        ("llama", {"head_dim": 32, "num_key_value_heads": 4}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 32}),
    ],
)
def test_kinds_of_models_compute_alike(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    one = policy(kind, tokenizer("qwen2"), **more)
    write_gguf(one, tmp_path / "m.gguf", "f32")
    same(one, tmp_path / "m.gguf", TEXTS)


@pytest.mark.parametrize("precision", ["auto", "bf16", "q8_0"])
def test_other_precisions_load(tmp_path: Path, precision: str) -> None:
    one = policy("llama", tokenizer("smollm"))
    write_gguf(one, tmp_path / "m.gguf", precision)
    ((count, text),) = llama_cpp(tmp_path / "m.gguf", [TEXTS[0]], 4)
    assert count == len(one.tokenizer(TEXTS[0]).input_ids) and text


def test_a_trained_model_is_exported_and_goes_on_alike(tmp_path: Path) -> None:
    def grpo(*args: str) -> str:
        env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "grpo_cli", *args], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    sets = ["train.steps=1", "model.lora.r=4", "sample.prompts=4", "sample.group=4", "run.dir=runs", "run.report=false"]
    sets += ["monitor.kl=off", "warmup=null", "eval={samples: 1, k: [1], limit: 4}"]
    grpo("train", "quickstart", "--display", "none", *(word for one in sets for word in ("--set", one)))
    (run,) = (tmp_path / "runs").iterdir()
    grpo("export", str(run), "mine", "--format", "gguf", "--precision", "f32")
    assert (tmp_path / "mine" / "Modelfile").read_text().startswith("FROM ./mine.gguf\n")
    from transformers import AutoModelForCausalLM

    words = byte_tokenizer()
    one = Policy.of(AutoModelForCausalLM.from_pretrained(tmp_path / "mine").eval(), words)
    same(one, tmp_path / "mine" / "mine.gguf", ["<|user|>709+898=?<|assistant|>", "It's \\boxed{4}"])


def test_the_embedded_tokenizer_without_merges(tmp_path: Path) -> None:
    words = byte_tokenizer()
    model = tiny_llama(words, 0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.15)
    one = Policy.of(model.eval(), words)
    write_gguf(one, tmp_path / "m.gguf", "f32")
    same(one, tmp_path / "m.gguf", TEXTS)
