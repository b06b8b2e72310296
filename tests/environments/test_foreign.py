"""Environments of the package `verifiers`: which versions of it can be played, in a sentence where it cannot."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from grpo_cli.environments import foreign
from grpo_verifiers.kinds.functions.conventions import BadFunction


@pytest.mark.parametrize("spec", ["reverse-text", "my_game:load"])
@pytest.mark.parametrize("installed", ["0.4.0", "0.4.1.post1", "1.0.0rc1"])
def test_a_version_without_the_classes_is_named_with_one_that_has_them(
    spec: str, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "version", lambda name: installed)
    with pytest.raises(BadFunction, match=r"of `verifiers` before 0\.4, and") as caught:
        foreign.loaded(spec, {})
    assert installed in str(caught.value) and "pip install 'verifiers<0.4'" in str(caught.value)


def test_a_missing_package_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(foreign, "version", missing)
    with pytest.raises(BadFunction, match=r"which is not installed: pip install .verifiers<0\.4"):
        foreign.loaded("reverse-text", {})
