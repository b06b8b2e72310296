"""A full disk, a run folder deleted in mid-run, and a checkpoint's states that hold code: a sentence, and nothing runs."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.errors import DataError, Mistake, SetupError, UserError
from grpo_cli.policy.loading.adapter import _tensor_shapes
from grpo_cli.policy.loading.failures import numbers_only
from grpo_cli.recipe.reading.load import load
from grpo_cli.resilience.checkpoint import MANIFEST, _write_manifest, saving
from grpo_cli.run.folder import RunFolder
from grpo_verifiers import build
from grpo_verifiers.verifier import Unavailable
from tests.loop.program import grpo
from tests.loop.recipes import ROOT, environment, small_recipe
from tests.loop.test_paths import trained, write_project  # noqa: F401

WRITERS: list[Callable[[RunFolder], object]] = [
    lambda run: run.write_metrics({"step": 1}),
    lambda run: run.write_samples(1, []),
    lambda run: run.log("info", "a line"),
    lambda run: run.write_alarm(1, "W1", {}),
    lambda run: run.update_manifest(status="done"),
]


@pytest.mark.parametrize(
    "number, words",
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "the file system is read-only"),
    ],
)
@pytest.mark.parametrize("write", WRITERS)
def test_what_cannot_be_written_is_told_with_its_cause(
    write: Callable[[RunFolder], object], number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create(tmp_path, "x", "grpo: 1\n", {})
    before = (run.path / "run.json").read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("grpo_cli.run.lines.append", refuse)
    monkeypatch.setattr("grpo_cli.run.lines.replace", refuse)
    with pytest.raises(SetupError, match=words):
        write(run)
    assert (run.path / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_checkpoint_on_a_full_disk_says_so(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="of step 3: the disk is full"), saving(tmp_path / ".partial", 3):
        raise error


@pytest.mark.parametrize("write", WRITERS)
def test_a_deleted_run_folder_is_said_and_not_made_again(write: Callable[[RunFolder], object], tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "x", "grpo: 1\n", {})
    shutil.rmtree(run.path)
    with pytest.raises(SetupError, match="is gone: it was deleted or moved"):
        write(run)
    assert not run.path.exists()


def test_a_run_whose_folder_is_deleted_ends_with_4_and_leaves_no_stub(tmp_path: Path) -> None:
    project = write_project(tmp_path / "proj")
    (project / "reward.py").write_text(
        "import shutil, sys\nseen = []\n\ndef good(completion, **kw):\n    seen.append(1)\n    if len(seen) > 14:\n"
        f"        shutil.rmtree({str(tmp_path / 'runs/x')!r}, ignore_errors=True)\n    return float(len(completion) % 2)\n"
    )
    sets = ["--set", f"run.dir={tmp_path}/runs", "--set", "run.name=x", "--set", "train.steps=4"]
    done = grpo(tmp_path, "train", str(project / "small.yaml"), *sets, cwd=ROOT)
    assert done.returncode == 4, done.stderr
    assert "is gone: it was deleted or moved" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs/x").exists()


class Payload:
    """What a pickle runs as it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, (self.mark,))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_code_in_a_state_of_a_checkpoint_does_not_run(name: str, trained: Path, tmp_path: Path) -> None:  # noqa: F811
    project = Path(shutil.copytree(trained, tmp_path / "proj"))
    checkpoint, mark = project / "runs/x/checkpoints/step-000001", tmp_path / "ran"
    assert (checkpoint / name).is_file()
    torch.save({"state": Payload(mark)}, checkpoint / name)
    (checkpoint / MANIFEST).unlink()
    _write_manifest(checkpoint, 1)
    done = grpo(tmp_path, "train", "--resume", str(project / "runs/x"), cwd=ROOT)
    assert not mark.exists()
    assert done.returncode == 3 and "more than numbers" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_code_in_a_critic_and_in_the_cache_of_a_warm_up_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, mark = write_project(tmp_path / "proj"), tmp_path / "ran"
    monkeypatch.setattr("tests.loop.program.environment", lambda folder: environment(tmp_path / "here"))
    words = ["train", str(project / "small.yaml"), "--set", "train.algorithm=ppo", "--set", f"run.dir={tmp_path}/runs"]
    begun = grpo(tmp_path, *words, "--set", "run.name=x", "--set", "run.deadline=0s", cwd=ROOT)
    assert begun.returncode == 143, begun.stderr
    checkpoint = tmp_path / "runs/x/checkpoints/step-000001"
    assert (checkpoint / "critic/critic.pt").is_file()
    torch.save({"weights": Payload(mark)}, checkpoint / "critic/critic.pt")
    (checkpoint / MANIFEST).unlink()
    _write_manifest(checkpoint, 1)
    (cached,) = (tmp_path / "cache").rglob("*.pt")
    whole = cached.read_bytes()
    torch.save({"weights": Payload(mark)}, cached)
    for command in ([*words, "--set", "run.name=y"], ["train", "--resume", str(tmp_path / "runs/x")]):
        done = grpo(tmp_path, *command, cwd=ROOT)
        assert not mark.exists()
        assert done.returncode == 3 and "more than numbers" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        cached.write_bytes(whole)
    cached.write_bytes(whole[: len(whole) // 2])
    remade = grpo(tmp_path, *words, "--set", "run.name=z", cwd=ROOT)
    assert remade.returncode == 0 and cached.stat().st_size == len(whole), remade.stderr


def test_code_in_an_adapter_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    torch.save({"lora": Payload(mark)}, tmp_path / "adapter_model.bin")
    with pytest.raises(DataError, match="more than numbers"):
        _tensor_shapes(tmp_path)
    assert not mark.exists()


def test_code_in_any_state_read_by_numbers_only_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="more than numbers"), numbers_only(tmp_path):
        raise pickle.UnpicklingError("Weights only load failed: Unsupported global: GLOBAL os.system")
    with pytest.raises(DataError, match="cannot be read"), numbers_only(tmp_path):
        raise pickle.UnpicklingError("Weights only load failed: invalid load key")


def test_every_torch_load_reads_numbers_only() -> None:
    loads = [
        (file, line)
        for file in (ROOT / "grpo_cli").rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if "torch.load(" in line and "``" not in line and "`torch.load" not in line
    ]
    assert len(loads) >= 3
    assert [one for one in loads if "weights_only=True" not in one[1]] == []


@pytest.mark.parametrize(
    "text",
    [
        "run.webhook=https://hooks/s3cret x", "run={webhook: 's3cret x'}", "launch.api_key=s3cret", "a.token=s3cret",
        "b.Password=s3cret", "verify.j.base_url=http://me:s3cret@host/v1", "  12 | webhook: https://h/s3cret y",
    ],
)  # fmt: skip
def test_a_secret_is_shown_in_no_mistake(text: str) -> None:
    shown = Mistake(f"--set {text}", "m", text)
    assert "s3cret" not in shown.place + shown.source
    assert len(shown.source) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "the judge at http://me:s3cret@host/v1", "https://h/v1?api_key=s3cret&x=1", "`OPENAI_API_KEY=s3cret` is no name",
        "no model `hf_s3cretS3CRETs3cret`", "401 of `sk-s3cret-abcdefgh`", "https://hooks.slack.com/services/T0/s3cret",
        "https://discord.com/api/webhooks/12/s3cret", "Bearer s3cret.abcdefghi",
    ],
)  # fmt: skip
def test_a_message_and_a_hint_hold_no_secret_by_its_form(text: str) -> None:
    told = UserError(text, hint=text).render()
    assert "s3cret" not in told and "***" in told


@pytest.mark.parametrize(
    "said",
    [
        {"run": {"webhook": ["s3cret"]}}, {"run": {"webhook": "s3cret"}}, {"run": "webhook: s3cret"},
        {"verify": {"judge": {"base_url": "https://h/v1?token=s3cret", "model": 5}}},
        {"verify": {"judge": {"base_url": "https://h/v1", "model": "m", "key_env": ["s3cret"]}}},
        {"verify": {"python": {"function": "a:b", "env": ["OPENAI_API_KEY=s3cret"]}}},
        {"model": {"path": "x", "hf_token": "s3cret"}}, {"model": ["https://me:s3cret@host/m"]},
        {"data": {"train": {"from": 5, "options": {"token": "s3cret"}}}},
        {"sample": {"engine": "vllm", "vllm": {"server_base_url": "me:s3cret@host?key=s3cret"}}},
        {"run": {"track": ["wandb:key=s3cret"]}}, {"run": {"track": [{"api_key": "s3cret"}]}},
        {"launch": {"rendezvous": "https://me:s3cret@host"}},
    ],
)  # fmt: skip
def test_no_mistake_of_any_key_holds_a_secret(said: dict[str, Any], tmp_path: Path) -> None:
    whole = {"grpo": 1, "model": "builtin:tiny", "data": {"train": "rows.jsonl"}, "verify": {"math": {}}} | said
    (tmp_path / "recipe.yaml").write_text(json.dumps(whole, indent=1))
    with pytest.raises(UserError) as caught:
        load(tmp_path / "recipe.yaml")
    assert "s3cret" not in caught.value.render(most=50)


def test_a_key_in_place_of_its_name_is_not_quoted() -> None:
    judge = build("judge", base_url="http://127.0.0.1:9/v1", model="m", key_env="s3cret0123abcd")
    with pytest.raises(Unavailable) as caught:
        judge.start()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ["sample.max_tokens=12", "model.tokenizer=here", "run.webhook=env:HOOK"])
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert Mistake(text, "m").place == text


@pytest.mark.parametrize(
    "said", ["webhook: https://hooks/s3cret x", "webhook:\n    https://hooks/s3cret x", "{f}: s3cret"]
)
def test_check_quotes_no_secret_of_a_recipe(said: str, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    recipe.write_text(
        recipe.read_text().replace("run: {save_every: 2, keep: 3}", "run:\n  " + said.replace("{f}", "auth_token"))
    )
    done = grpo(tmp_path, "check", str(recipe))
    assert done.returncode == 2, done.stderr
    assert "s3cret" not in done.stderr + done.stdout
