"""The lock files that `make setup` installs: every package with its version and the hashes of its files."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("file", sorted(ROOT.glob("requirements*.lock")), ids=lambda file: file.name)
def test_every_package_of_a_lock_has_its_hashes(file: Path) -> None:
    entries = [line for line in file.read_text().replace("\\\n", " ").splitlines() if line and line[0] not in "#- "]
    assert entries and all("==" in one.split()[0] and "--hash=sha256:" in one for one in entries)
