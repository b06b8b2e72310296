"""Every test is run by some target, and what `make test` leaves out is run by what has to pass before a change lands."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT
from tests.conftest import TARGETS

MAKEFILE = (ROOT / "Makefile").read_text()
CI = (ROOT / ".ci" / "run").read_text()
WORKFLOWS = "".join(file.read_text() for file in (ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_folder_that_has_a_target_is_there() -> None:
    assert all(
        any((ROOT / "tests" / one).glob("test_*.py")) for folders in TARGETS.values() for one in folders
    )


def test_what_make_test_leaves_out_has_a_target_which_ci_runs() -> None:
    (rule,) = [line for line in MAKEFILE.splitlines() if "-m 'not slow and not gpu" in line]
    for name in TARGETS:
        assert f" and not {name}" in rule
        assert f"\ntest-{name}:" in MAKEFILE
        assert f"make test-{name}" in CI
        assert re.search(rf"\btest-{name}\b", WORKFLOWS)


def test_every_check_is_run_by_a_target() -> None:
    checks = sorted((ROOT / "tests").rglob("check_*.py"))
    assert checks
    assert not [str(file) for file in checks if str(file.relative_to(ROOT)) not in MAKEFILE]
