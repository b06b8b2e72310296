"""A model that reads images is trained as TRL's own trainer would, and reads the right image in every place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.train.loop import Loop
from grpo_cli.train.step import StepBatch
from grpo_verifiers.verdict import Outcome, Verdict

SIZES = [(32, 32), (48, 32), (16, 16), (64, 48)]


def made_rows(folder: Path) -> Path:
    """Eight rows of one or two images each, of several sizes and with prompts of several lengths."""
    drawn = torch.Generator().manual_seed(0)
    rows = []
    for i in range(8):
        names = []
        for j in range(1 + i % 2):
            width, height = SIZES[(i + j) % len(SIZES)]
            pixels = torch.randint(0, 255, (height, width, 3), generator=drawn, dtype=torch.uint8).numpy()
            names.append(f"{i}-{j}.png")
            Image.fromarray(pixels).save(folder / names[-1])
        rows.append({"q": "what is it" + "?" * i, "image": names})
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe(folder: Path, *, model: dict[str, Any] | None = None, micro: int = 4, **train: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "grpo": 1,
            "model": {"path": "builtin:tiny-vision", "freeze_vision": False, **(model or {})},
            "data": {"train": str(made_rows(folder)), "prompt": "{q}", "answer": "1", "images": "image"},
            "verify": {"regex": {"pattern": "2"}},
            "sample": {"prompts": 4, "group": 4, "max_tokens": 6, "micro_batch": micro},
            # with Adam's usual 1e-8, gradients of about that size would blow rounding up to a whole step
            "train": {"steps": 1, "lr": 1e-3, "seed": 7, "scale": "none", "trl": {"adam_epsilon": 1e-4}, **train},
            "monitor": {"kl": "off"},
            "run": {"dir": str(folder / "runs"), "save_every": 100},
        }
    )


def judged(
    self: Judge, texts: Sequence[str], tasks: Sequence[Task], token_ids: object = None, played: object = None
) -> list[Judgement]:
    """Every third sample is right."""
    found = []
    for i in range(len(texts)):
        outcome = Outcome.WRONG if i % 3 else Outcome.RIGHT
        score = float(outcome is Outcome.RIGHT)
        found.append(Judgement({"regex": Verdict(outcome, score)}, outcome, score))
    return found


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[torch.Tensor]]:
    """The gradients of all optimizer steps of the test, before they are clipped."""
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Judge, "judge", judged)
    found: list[torch.Tensor] = []
    clip = torch.nn.utils.clip_grad_norm_

    def caught(parameters: Any, *args: Any, **named: Any) -> Any:
        kept = list(parameters)
        found.append(torch.cat([p.grad.flatten().clone() for p in kept if p.grad is not None]))
        return clip(kept, *args, **named)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", caught)
    yield found


def trained(made: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, list[StepBatch], list[float]]:
    """The run's job, its batches and the losses of its micro-batches."""
    batches, losses, begin = [], list[float](), Loop.begin

    def noted(self: Loop) -> StepBatch:
        batches.append(begin(self))
        return batches[-1]

    from grpo_cli.train.trainer import Trainer

    compute = Trainer._compute_loss

    def recorded(self: Trainer, model: Any, inputs: Any) -> torch.Tensor:
        loss = compute(self, model, inputs)
        losses.append(float(loss.detach()))
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "begin", noted)
        patch.setattr(Trainer, "_compute_loss", recorded)
        job = Job(made, label="ours", base=folder, display=make_display("none"))
        job.run()
    return job, batches, losses


@pytest.mark.parametrize("micro", [4, 16])
def test_loss_and_gradient_are_those_of_trls_own_trainer(
    micro: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gradients: list[torch.Tensor]
) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from grpo_cli.policy.model import load_model

    made = recipe(tmp_path, micro=micro, inner_epochs=2, dead_groups="keep", lr_warmup_steps=0)
    job, (batch,), losses = trained(made, tmp_path, monkeypatch)
    ours = list(gradients)
    gradients.clear()
    assert len(ours) == 2 and len(losses) == 2 * 16 // micro

    policy = load_model(made.model, device=torch.device("cpu"), seed=made.train.seed)
    assert policy.vision is not None
    policy.vision.processor.chat_template = policy.tokenizer.chat_template
    loop = job.running.trainer.loop
    chosen = [loop.rows[group.row] for group in batch.groups]
    rows = [
        {"prompt": [{"role": "user", "content": row.prompt.replace("<image>", "")}], "images": [i.picture() for i in row.images]}
        for row in chosen
    ]
    ids = [completion.token_ids for group in batch.groups for completion in group.completions]
    rewards = [reward for group in batch.groups for reward in group.rewards]
    theirs: list[float] = []

    class Plain(GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, *args: Any, **named: Any) -> Any:
            return ids, None

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            theirs.append(float(loss.detach()))
            return loss

    clip = made.train.clip
    config = GRPOConfig(
        str(tmp_path / "trl"),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=16 // micro,
        num_generations=4,
        num_iterations=2,
        max_steps=2,
        learning_rate=1e-3,
        adam_epsilon=1e-4,
        lr_scheduler_type=job.running.trainer.args.lr_scheduler_type,
        max_grad_norm=made.train.max_grad_norm,
        max_completion_length=6,
        loss_type=made.train.loss,
        scale_rewards="none",
        epsilon=clip.low,
        epsilon_high=clip.high,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        shuffle_dataset=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        router_aux_loss_coef=0.0,
    )
    with torch.random.fork_rng():
        trainer = Plain(
            model=policy.model,
            reward_funcs=[lambda prompts, **_: rewards],
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=policy.vision.processor,
        )
        trainer.train()
    assert len(gradients) == 2
    for a, b in zip(ours, gradients, strict=True):
        assert float(b.abs().max()) > 1e-3
        assert float((a - b).abs().max()) < 1e-6
    # the first pass is on-policy, so that its loss is what the advantages say; both passes sum over their micro-batches
    half = len(losses) // 2
    for at in (slice(half), slice(half, None)):
        assert abs(sum(losses[at]) - sum(theirs[at])) < 1e-6
