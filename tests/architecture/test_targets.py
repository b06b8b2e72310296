"""Every test is run by some target, and what `make test` leaves out is run by what has to pass before a change lands."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT
from tests.conftest import TARGETS

MAKEFILE = (ROOT / "Makefile").read_text()
CI = (ROOT / ".ci" / "run").read_text()
WORKFLOWS = "".join(file.read_text() for file in (ROOT / ".github" / "workflows").glob("*.yml"))


def test_all_that_has_a_target_is_there_and_the_target_runs_it() -> None:
    for name, places in TARGETS.items():
        _, _, recipe = MAKEFILE.partition(f"\ntest-{name}:")
        run = [ROOT / word for word in recipe.partition("\n\n")[0].split() if word.startswith("tests/")]
        for place in (ROOT / "tests" / one for one in places):
            assert any(place.is_relative_to(folder) for folder in run), place
            assert place.is_file() or any(place.glob("test_*.py")), place


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
