"""What `grpo doctor` knows to clash: made-up versions, drivers and disks."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from grpo_cli.jobs import doctor

Usage = namedtuple("Usage", "total used free")


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise doctor.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor.metadata, "version", version)


def test_a_version_outside_the_demanded_range_is_named_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, torch="2.13.0", numpy="2.4.6")
    (found,) = doctor.unmet("vllm", ["torch==2.9.1", "numpy>=1", "ray>=2; extra == 'ray'"])
    assert found.text == "vllm needs torch==2.9.1, installed is 2.13.0" and "pip install" in found.hint


def test_a_missing_package_is_trouble_only_where_it_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    assert [t.text for t in doctor.unmet("trl", ["accelerate>=1", "vllm>=1; extra == 'vllm'"])] == [
        "trl needs accelerate>=1, it is not installed"
    ]


def test_our_own_extras_are_checked_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, vllm="0.10.0")
    assert len(list(doctor.unmet("grpo-cli", ["vllm>=0.22,<0.32; extra == 'vllm'"]))) == 1
    assert any(set(d.removeprefix("trl").split(",")) == {">=1.16", "<1.17"} for d in doctor.demands("grpo-cli"))


def test_an_antlr_runtime_that_cannot_read_the_grammar_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, **{"antlr4-python3-runtime": "4.8"})
    assert [t.text.split()[1] for t in doctor._parser()] == ["4.8"]


def test_a_cpu_torch_beside_a_driver_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "torch_build", lambda: "cpu")
    monkeypatch.setattr(doctor, "driver", lambda: "580.1")
    assert len(list(doctor._torch())) == 1
    monkeypatch.setattr(doctor, "driver", lambda: None)
    assert list(doctor._torch()) == []


def test_a_full_disk_is_trouble_and_little_shared_memory_only_with_several_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 2**29))
    alone = [t.text for t in doctor._room(str(tmp_path / "not" / "yet"), gpus=1)]
    assert len(alone) == 4 and all(text.startswith("0.5 GiB are free") for text in alone)
    assert len(list(doctor._room(str(tmp_path), gpus=2))) == len(doctor.places("runs"))


def test_the_torch_build_is_read_without_importing_it() -> None:
    build = doctor.torch_build()
    assert build is not None and build.split()[0] in ("cpu", "cuda", "hip")
