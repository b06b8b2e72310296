"""Warm processes for all fault tests of a session; tries by `FAULT_TRIES`; tallies to `FAULT_TALLY`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.warm import Warm


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Where runs go by default."""
    process = Warm(tmp_path_factory.mktemp("warm"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Another one, with other string hashes and a cache of its own: what depends on either shows here."""
    process = Warm(tmp_path_factory.mktemp("other"), hash_seed=1)
    yield process
    process.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for one test."""
    return tmp_path
