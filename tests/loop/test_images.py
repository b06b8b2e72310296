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
    """The first group is all right; of the others every third sample is."""
    found = []
    for i in range(len(texts)):
        outcome = Outcome.WRONG if i > 3 and i % 3 else Outcome.RIGHT
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


@pytest.mark.parametrize(("micro", "dead"), [(4, "keep"), (16, "drop"), (2, "drop")])
def test_loss_and_gradient_are_those_of_trls_own_trainer(
    micro: int, dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gradients: list[torch.Tensor]
) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from grpo_cli.policy.model import load_model

    made = recipe(tmp_path, micro=micro, inner_epochs=2, dead_groups=dead, lr_warmup_steps=0)
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
        {
            "prompt": [{"role": "user", "content": row.prompt.replace("<image>", "")}],
            "images": [i.picture() for i in row.images],
        }
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


@pytest.fixture(scope="module")
def seeing() -> tuple[Any, list[Any]]:
    """The policy of `builtin:tiny-vision`, and rows of one or two images."""
    import tempfile

    from grpo_cli.data.rows import load_rows
    from grpo_cli.policy.model import load_model

    with tempfile.TemporaryDirectory() as folder:
        made = recipe(Path(folder))
        rows = load_rows(made.data, "train")
        policy = load_model(made.model, device=torch.device("cpu"), seed=0)
        for row in rows:
            policy.encode(row)  # decodes each image while its file is here
            policy.vision.features(row.images)
        yield policy, rows


def scored(
    policy: Any, rows: Sequence[Any], images: Sequence[Any], completion: Sequence[int] = (40, 41, 42)
) -> torch.Tensor:
    """[B, T] log-probs of a completion behind the prompts of these rows, with these images."""
    prompts = [policy.encode(row) for row in rows]
    width = max(map(len, prompts))
    pad = policy.tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(p)) + p + list(completion) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * (len(p) + len(completion)) for p in prompts])
    with torch.no_grad():
        seen = policy.vision.inputs(ids, list(images), scores=False)
        logits = policy.model(input_ids=ids, attention_mask=mask, **seen).logits[:, -len(completion) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor([list(completion)] * len(rows))[..., None])[..., 0]


def test_what_is_said_depends_on_the_image_and_on_which_comes_first(seeing: tuple[Any, list[Any]]) -> None:
    policy, rows = seeing
    one, two = rows[0], rows[1]
    other = next(row for row in rows[2:] if len(policy.encode(row)) and row.images[0].width == one.images[0].width)
    plain = scored(policy, [one], [one.images])
    assert torch.equal(plain, scored(policy, [one], [one.images]))
    assert float((plain - scored(policy, [one], [other.images[:1]])).abs().max()) > 1e-4
    # two images in a row: of equal size, exchanged
    a, b = two.images
    import dataclasses

    same = dataclasses.replace(two, images=(a, a))
    mixed = dataclasses.replace(two, images=(b, b))
    ab = scored(policy, [same, mixed], [(a, a), (b, b)])
    assert float((ab[0] - ab[1]).abs().max()) > 1e-4


def test_a_row_scores_the_same_alone_and_among_rows_of_other_images(seeing: tuple[Any, list[Any]]) -> None:
    policy, rows = seeing
    together = scored(policy, rows, [row.images for row in rows])
    for row, own in zip(rows, together, strict=True):
        assert torch.allclose(scored(policy, [row], [row.images])[0], own, atol=1e-5)


def test_the_engine_shows_each_prompt_its_own_images_and_draws_no_image_token(seeing: tuple[Any, list[Any]]) -> None:
    from grpo_cli.rollout import transformers_engine
    from grpo_cli.rollout.engine import Request, SamplingSettings
    from grpo_cli.rollout.make import policy_engine

    policy, rows = seeing
    notes: list[str] = []
    engine = policy_engine("auto", policy, notes.append)
    assert notes == ["generating with `transformers`, not `graph`: it reads images"]
    requests = [Request(policy.encode(row), 3, images=row.images) for row in rows]
    found = engine.generate(requests, SamplingSettings(6, seed=0))
    for row, group in zip(rows, found, strict=True):
        for completion in group:
            logps = scored(policy, [row], [row.images], completion.token_ids)[0]
            assert torch.allclose(logps, torch.tensor(completion.logps), atol=1e-4)
    head = policy.model.get_output_embeddings()
    image = policy.vision.image_id
    drawn = {token for group in found for completion in group for token in completion.token_ids}
    assert image not in drawn

    def favours(_: object, __: object, out: torch.Tensor) -> torch.Tensor:
        out[..., image] = 1e4
        return out

    handle = head.register_forward_hook(favours)
    try:
        forced = engine.generate(requests[:2], SamplingSettings(6, seed=0))
    finally:
        handle.remove()
    assert all(image not in completion.token_ids for group in forced for completion in group)
    # in parts of a few rows: the same places, whatever is drawn in them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers_engine, "IMAGE_ROWS", 4)
        parts = engine.generate(requests, SamplingSettings(6, temperature=0.0))
    whole = engine.generate(requests, SamplingSettings(6, temperature=0.0))
    assert [[c.token_ids for c in group] for group in parts] == [[c.token_ids for c in group] for group in whole]


@pytest.mark.parametrize("more", [{"lora": {"r": 4}}, {}])
def test_the_vision_part_stays_as_it_is_unless_asked(more: dict[str, Any]) -> None:
    from grpo_cli.policy.model import load_model
    from grpo_cli.recipe.sections.inputs import Model

    for freezes in (True, False):
        spec = Model(path="builtin:tiny-vision", kind="vision", freeze_vision=freezes, **more)
        policy = load_model(spec, device=torch.device("cpu"), seed=0)
        trained = [name for name, p in policy.model.named_parameters() if p.requires_grad]
        assert any("language_model" in name for name in trained)
        assert any("visual" in name for name in trained) is not freezes


def test_what_check_says_an_image_costs_is_what_the_processor_writes(seeing: tuple[Any, list[Any]]) -> None:
    from grpo_cli.jobs.check.tokens import GridCost, prompt_maker
    from grpo_cli.recipe.sections.inputs import ImagePixels, Model

    policy, rows = seeing
    maker = prompt_maker(Model(path="builtin:tiny-vision", kind="vision"))
    assert maker.counts(rows) == [len(policy.encode(row)) for row in rows]
    images = policy.vision.processor.image_processor
    cost = GridCost(16, 16 * 16, 128 * 128)
    assert maker.image_cost == cost
    assert prompt_maker(
        Model(path="builtin:tiny-vision", kind="vision"), None, ImagePixels(most=999)
    ).image_cost == GridCost(16, 256, 999)
    most = policy.vision.most_tokens
    for width, height in [
        (3200, 16),
        (16, 3200),
        (1, 1),
        (7, 200),
        (33, 31),
        (300, 10),
        (1000, 700),
        (129, 128),
        (24, 24),
        (40, 8),
    ]:
        (grid,) = images(images=[Image.new("RGB", (width, height))], return_tensors="pt")["image_grid_thw"].tolist()
        shown = type("Shown", (), {"width": width, "height": height})()
        assert cost(shown) * 4 == grid[0] * grid[1] * grid[2] <= 4 * most, (width, height)


def test_two_ranks_train_as_one_and_a_killed_run_goes_on_exactly(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from tests.loop.test_resume import finish, kill_after, train, what

    made_rows(tmp_path)  # no two alike: rows that ask the same are told apart by their order on a rank
    rows, path = str(tmp_path / "rows.jsonl"), tmp_path / "recipe.yaml"
    keys: dict[str, Any] = {
        "model": {"path": "builtin:tiny-vision", "freeze_vision": False},
        "data": {"train": rows, "eval": rows, "images": "image", "prompt": "{q}", "answer": "1"},
        "verify": {"regex": {"pattern": "[a-z]"}},
        "sample": {"prompts": 4, "group": 4, "max_tokens": 6},
        "train": {"steps": 4, "lr": 1e-3, "dead_groups": "keep", "kl": {"beta": 0.05}, "trl": {"adam_epsilon": 1e-4}},
        "eval": {"every": 4, "samples": 2, "k": [1]},
        "run": {"name": "run", "save_every": 2},
    }
    path.write_text(json.dumps({"grpo": 1, **keys}))
    two = ("--set", "launch.cpu_ranks=2")
    finish(train(path, tmp_path / "one"))
    finish(train(path, tmp_path / "two", *two))
    one, both = (what(tmp_path / name / "run") for name in ("one", "two"))
    assert len(one["samples"]) > 4
    for name, rows in one["samples"].items():
        for a, b in zip(rows, both["samples"][name], strict=True):
            assert (a["row"], a["completion"], a["reward"]) == (b["row"], b["completion"], b["reward"])
    weights = [load_file(tmp_path / name / "run/checkpoints/step-000004/model.safetensors") for name in ("one", "two")]
    for name, value in weights[0].items():
        assert torch.allclose(value, weights[1][name], atol=1e-4), name

    kill_after(train(path, tmp_path / "broken"), tmp_path / "broken/run/checkpoints/step-000002")
    finish(train(path, tmp_path / "broken", "--resume"))
    assert what(tmp_path / "broken/run") == one
    broken = load_file(tmp_path / "broken/run/checkpoints/step-000004/model.safetensors")
    assert all(torch.equal(value, broken[name]) for name, value in weights[0].items())


def test_a_run_is_measured_exported_and_shown(tmp_path: Path) -> None:
    from tests.loop.program import start

    def grpo(*args: str) -> str:
        process = start(list(args), tmp_path, apart=True)
        out, errors = process.communicate()
        assert process.returncode == 0, out + errors
        return str(out)

    made_rows(tmp_path)
    rows = str(tmp_path / "rows.jsonl")
    keys: dict[str, Any] = {
        "model": {"path": "builtin:tiny-vision", "lora": {"r": 4}},
        "data": {
            "train": rows,
            "eval": rows,
            "images": "image",
            "prompt": "{q}",
            "answer": "1",
            "image_pixels": {"most": 1024},
        },
        "verify": {"regex": {"pattern": "[0-9]"}},
        "sample": {"prompts": 2, "group": 2, "max_tokens": 4},
        "train": {"steps": 2, "lr": 1e-3},
        "eval": {"every": 2, "samples": 2, "k": [1]},
        "run": {"dir": str(tmp_path / "runs"), "name": "run"},
    }
    path, run, out = tmp_path / "recipe.yaml", tmp_path / "runs/run", tmp_path / "out"
    path.write_text(json.dumps({"grpo": 1, **keys}))
    grpo("train", str(path))
    sampled = [json.loads(line) for line in (run / "samples/step-000001.jsonl").read_text().splitlines()]
    assert sampled[0]["prompt"].startswith("<image>") and sampled[0]["image"][0].endswith(".png")
    assert len(sampled[0]["image_sha256"][0]) == 64

    grpo("export", str(run), str(out))
    assert {"config.json", "preprocessor_config.json", "model.safetensors"} <= {one.name for one in out.iterdir()}
    assert "image-text-to-text" in (out / "README.md").read_text()

    def completions(model: Path, *more: str) -> list[str]:
        grpo("eval", str(model), *more, "--out", str(tmp_path / "eval.jsonl"))
        return [json.loads(line)["completion"] for line in (tmp_path / "eval.jsonl").read_text().splitlines()]

    assert completions(run) == completions(out, "--recipe", str(path))
    assert "of 2 right" in grpo("chat", str(run), "--row", "2", "--samples", "2")
    assert json.loads(grpo("probe", str(path), "-n", "2", "--samples", "2", "--json"))["schema"] == 1

    report = run / "report.html"
    grpo("report", str(run))
    assert "data:image/png" not in report.read_text()
    grpo("report", str(run), "--images")
    assert "data:image/png" in report.read_text()


def test_a_talk_shows_its_images_with_the_first_turn(tmp_path: Path) -> None:
    from grpo_cli.data.images import shown_images
    from grpo_cli.errors import DataError
    from grpo_cli.jobs.chat import open_talk
    from grpo_cli.recipe.sections.inputs import Model

    made_rows(tmp_path)
    spec = Model(path="builtin:tiny-vision", kind="vision")
    found = []
    for name in ("0-0.png", "4-0.png"):
        images = shown_images([str(tmp_path / name)])
        with open_talk(None, spec, {"max_tokens": 8, "temperature": 0.0}, lambda _: None, images) as talk:
            found.append((talk.answer("what is it?"), talk.answer("and now?")))
            assert [turn["content"].count("<image>") for turn in talk.turns] == [1, 0, 0, 0]
            talk.forget()
            assert talk.answer("what is it?") == found[-1][0]
    assert found[0] != found[1]
    with pytest.raises(DataError, match="no image `none"):
        shown_images([str(tmp_path / "none.png")])
