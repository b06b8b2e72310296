"""The same three reward functions through `grpo train` and through TRL's own trainer: equal rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.loop.program import grpo
from tests.loop.test_plain_trl import tiny_model

FUNCTIONS = """
def signed(completions, answer, **kwargs):
    return [2.0 if a in c else -1.0 for c, a in zip(completions, answer)]

def chat_or_text(completions, prompts, **kwargs):
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [len(t) % 11 - 0.5 for t in texts]

async def only_short_rows(completions, answer, **kwargs):
    return [None if len(a) > 1 else float(len(c) % 2) for c, a in zip(completions, answer)]
"""
NAMES, WEIGHTS = ("signed", "chat_or_text", "only_short_rows"), (1.0, 0.25, -0.5)


def grpo_samples(folder: Path) -> list[dict[str, Any]]:
    """What two steps of `grpo train` recorded."""
    rows = [{"question": f"{i}+{i}", "answer": str(2 * i)} for i in range(10)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verify = "\n".join(
        f'  {name}: {{kind: python, function: "mine.py:{name}", weight: {weight}}}'
        for name, weight in zip(NAMES, WEIGHTS, strict=True)
    )
    (folder / "r.yaml").write_text(
        f'grpo: 1\nmodel: builtin:tiny\ndata: {{train: rows.jsonl, prompt: "{{question}}", answer: "{{answer}}"}}\n'
        f"verify:\n{verify}\nsample: {{prompts: 8, group: 4, max_tokens: 12}}\ntrain: {{steps: 2, lr: 1e-3}}\n"
        "run: {name: same}\n"
    )
    done = grpo(folder, "train", "r.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    files = sorted((folder / "runs" / "same" / "samples").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.filterwarnings("ignore")
def test_three_reward_functions_pay_the_same_here_and_in_trl(tmp_path: Path) -> None:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    (tmp_path / "mine.py").write_text(FUNCTIONS)
    samples = grpo_samples(tmp_path)
    own: dict[str, Any] = {}
    exec(FUNCTIONS, own)
    model, tokenizer = tiny_model()
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[own[name] for name in NAMES],
        train_dataset=Dataset.from_list([{"prompt": "say it", "answer": "4"}, {"prompt": "is it", "answer": "10"}]),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, num_generations=4,
            max_completion_length=8, max_steps=2, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
            save_strategy="no", reward_weights=list(WEIGHTS),
        ),
    )  # fmt: skip
    trainer.train()
    texts = [sample["completion"] for sample in samples]
    inputs = [{"prompt": s["prompt"], "answer": s["answer"]} for s in samples]
    found = trainer._calculate_rewards(inputs, [s["prompt"] for s in samples], texts, [[0]] * len(texts))
    totals = (found * torch.tensor(WEIGHTS)).nansum(dim=1).tolist()
    assert len(samples) == 64
    assert [s["reward"] for s in samples] == pytest.approx(totals, abs=1e-6)
    skipped = [s for s in samples if len(s["answer"]) > 1]
    assert skipped and all("only_short_rows" not in s["verdicts"] for s in skipped)
    assert {s["verdicts"]["signed"]["score"] for s in samples} <= {2.0, -1.0}
