"""Kinds of this package, of other packages, and of programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_verifiers import BadOption, Outcome, build, register
from grpo_verifiers.registry import KINDS, Kinds, kind_class
from tests.builders.plugin_site import write_plugin_site


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kinds]:
    write_plugin_site(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds = Kinds({kind: KINDS[kind] for kind in ("math", "exact")})
    monkeypatch.setattr("grpo_verifiers.registry.KINDS", kinds)
    yield kinds
    sys.modules.pop("plugin_kinds", None)


@pytest.mark.filterwarnings("ignore:verifier `math`")
def test_an_entry_point_adds_a_kind(installed: Kinds) -> None:
    assert build("polite").verify("yes please", {}).outcome is Outcome.RIGHT
    assert build("polite", word="now").verify("yes please", {}).outcome is Outcome.WRONG
    assert not build("polite").runs_elsewhere and not build("polite").is_learned


def test_a_kind_of_ours_is_never_replaced(installed: Kinds) -> None:
    with pytest.warns(UserWarning, match="`math` is .*MathVerifier`; `plugin_kinds:Polite`"):
        assert {"polite", "broken"} < set(installed)
    assert kind_class("math").__name__ == "MathVerifier"


@pytest.mark.filterwarnings("ignore:verifier `math`")
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("broken", "`broken` cannot be loaded from `plugin_missing:Thing`: ModuleNotFoundError"),
        ("absent", "`absent` cannot be loaded from `plugin_kinds:Nothing`: AttributeError"),
        ("bare", "`plugin_kinds:NoVerifier` is no subclass"),
        ("polit", "unknown verifier `polit`; did you mean `polite`"),
    ],
)
def test_a_kind_that_cannot_be_built_says_why(installed: Kinds, kind: str, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        build(kind)


def test_a_name_is_registered_for_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_verifiers.registry.KINDS", Kinds({"math": KINDS["math"]}))
    register("mine", "a.b:C")
    register("mine", "a.b:C")
    with pytest.raises(ValueError, match=r"`mine` is `a\.b:C` already"):
        register("mine", "a.b:D")
    with pytest.raises(ValueError, match="no `module:class`"):
        register("other", "a.b")


def test_a_known_kind_is_found_without_a_look_at_installed_packages() -> None:
    code = (
        "import sys, grpo_verifiers; grpo_verifiers.build('exact'); print('importlib.metadata' in sys.modules);"
        "from grpo_cli.recipe.sections.rewards import KINDS; KINDS['reward_model']; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_verifiers_that_fill_processes_run_elsewhere(kind: str) -> None:
    cls = kind_class(kind)
    assert cls.runs_elsewhere is (kind in {"code", "python", "sql", "command", "coq", "reasoning_gym"})
    assert cls.is_learned is (kind in {"reward_model", "judge"})
