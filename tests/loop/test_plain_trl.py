"""Our verifiers as `reward_funcs` of TRL's own trainer, with nothing of `grpo_cli` in between."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from grpo_verifiers import as_reward, build

WORDS = ["<pad>", "<end>", "say", "yes", "no", "it", "is", "4", "5"]


def tiny_model() -> tuple[Any, Any]:
    """A one-layer Llama over nine words, and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config), tokenizer


def test_verifiers_reward_two_steps_of_plain_trl(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    (tmp_path / "mine.py").write_text("def short(completion, answer):\n    return len(completion.split()) < 6\n")
    verifiers = [
        build("regex", pattern="yes|no"),
        build("regex", pattern=r"(?P<answer>\d)", match="answer_group", compare="numeric"),
        build("math"),
        build("python", function="mine:short", path=[str(tmp_path)], workers=1),
    ]
    names = ["word", "digit", "math", "short"]
    model, tokenizer = tiny_model()
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[as_reward(v, name) for v, name in zip(verifiers, names, strict=True)],
        train_dataset=Dataset.from_list([{"prompt": "say it", "answer": "4"}, {"prompt": "is it", "answer": "5"}]),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            max_steps=2,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
        ),
    )
    trainer.train()
    for verifier in verifiers:
        verifier.close()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    assert len(logs) == 2
    for name in names:
        assert all(0.0 <= log[f"rewards/{name}/mean"] <= 1.0 for log in logs)
    assert all(math.isfinite(log["reward"]) for log in logs)
    assert any(log["rewards/word/mean"] > 0 for log in logs)
