import json
from pathlib import Path

import pytest

from grpo_cli.errors import SetupError
from grpo_cli.resilience import checkpoint


def make(folder: Path, step: int) -> Path:
    path = folder / f"step-{step:06d}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"w" * 100 + bytes([step]))
    (path / "optimizer.pt").write_bytes(b"o" * 50)
    (path / "grpo.json").write_text("{}")
    checkpoint._write_manifest(path, step)
    return path


def newest(folder: Path) -> int | None:
    found, _ = checkpoint.newest_valid(folder)
    return found.step if found else None


def test_a_whole_checkpoint_has_no_fault(tmp_path: Path) -> None:
    assert checkpoint.find_fault(make(tmp_path, 1)) is None


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt"])
def test_a_missing_file_makes_the_one_before_the_newest(tmp_path: Path, file: str) -> None:
    make(tmp_path, 1)
    (make(tmp_path, 2) / file).unlink()
    found, broken = checkpoint.newest_valid(tmp_path)
    assert found is not None
    assert found.step == 1
    assert [(c.step, fault) for c, fault in broken] == [(2, f"`{file}` is missing")]


def test_a_truncated_file_is_recognised(tmp_path: Path) -> None:
    make(tmp_path, 1)
    with (make(tmp_path, 2) / "model.safetensors").open("r+b") as file:
        file.truncate(40)
    assert newest(tmp_path) == 1


def test_one_flipped_byte_is_recognised(tmp_path: Path) -> None:
    make(tmp_path, 1)
    file = make(tmp_path, 2) / "model.safetensors"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    assert newest(tmp_path) == 1


def test_a_folder_without_a_manifest_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, 1)
    (make(tmp_path, 2) / "manifest.json").unlink()
    (make(tmp_path, 3) / "manifest.json").write_text("{")
    assert newest(tmp_path) == 1
    assert newest(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "5", "null", '"x"', "", "{", "{}", '{"files":[]}', '{"files":{}}', '{"files":5}', '{"files":null}'),
        *('{"files":{"grpo.json":5}}', '{"files":{"grpo.json":[]}}', '{"files":{"grpo.json":[2]}}'),
        *('{"files":{"grpo.json":["2","x"]}}', '{"files":{"grpo.json":[2,5]}}', '{"files":{"grpo.json":[2,"x","y"]}}'),
        *('{"files":{"grpo.json":[true,"x"]}}', "[" * 100_000, "\x00\xff", '{"files":{"grpo.json":[1e999,"x"]}}'),
    ],
    ids=lambda content: content[:40],
)  # fmt: skip
def test_a_manifest_that_is_none_makes_the_one_before_the_newest(tmp_path: Path, content: str) -> None:
    make(tmp_path, 1)
    (make(tmp_path, 2) / "manifest.json").write_bytes(content.encode("latin-1"))
    found, broken = checkpoint.newest_valid(tmp_path)
    assert found is not None and found.step == 1
    assert [one.step for one, _ in broken] == [2]


@pytest.mark.parametrize("unnamed", ["grpo.json", "model.safetensors", "optimizer.pt"])
def test_a_manifest_names_the_state_and_all_that_is_loaded(tmp_path: Path, unnamed: str) -> None:
    path = make(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["files"][unnamed]
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert checkpoint.find_fault(path) == f"the manifest does not name `{unnamed}`"
    (path / unnamed).unlink()
    assert (checkpoint.find_fault(path) is None) == (unnamed != "grpo.json")


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        make(tmp_path, step)
    checkpoint.keep_newest(tmp_path, 2)
    assert [c.step for c in checkpoint.all_checkpoints(tmp_path)] == [3, 10]


def test_a_broken_one_that_is_set_aside_does_not_push_whole_ones_out(tmp_path: Path) -> None:
    for step in (1, 2):
        (make(tmp_path, step) / "model.safetensors").unlink()
        aside = checkpoint.set_aside(checkpoint.all_checkpoints(tmp_path)[-1])
    assert aside.name == "broken-step-000002"
    make(tmp_path, 1)
    checkpoint.keep_newest(tmp_path, 1)
    assert newest(tmp_path) == 1


def test_too_little_space_is_said_before_training(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="MiB are free"):
        checkpoint.check_space(tmp_path, 1 << 60)


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    path = make(tmp_path, 4)
    assert set(json.loads((path / "manifest.json").read_text())["files"]) == {
        "grpo.json",
        "model.safetensors",
        "optimizer.pt",
    }


def test_a_sealed_checkpoint_may_be_read_by_those_who_may_read_the_run(tmp_path: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    (written / "model.safetensors").write_bytes(b"w")
    (written / "model.safetensors").chmod(0o600)  # as safetensors leaves it
    sealed = checkpoint.seal(written, tmp_path / "checkpoints", checkpoint.TrainState(1, 3, {}, 0, 0, 0), "grpo: 1\n")
    modes = {file.name: file.stat().st_mode & 0o777 for file in sealed.path.iterdir()}
    assert modes["model.safetensors"] == modes["recipe.yaml"] == modes["manifest.json"]
    assert checkpoint.find_fault(sealed.path) is None
