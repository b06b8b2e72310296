"""Kinds of this package, of other packages, and of programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_verifiers import BadOption, Outcome, build, register
from grpo_verifiers.registry import KINDS, Kinds, kind_class

PLUGIN = """
from dataclasses import dataclass
from grpo_verifiers import Verifier
from grpo_verifiers.verdict import right, wrong

@dataclass(frozen=True)
class Options:
    word: str = "please"

class Polite(Verifier):
    "Right where the word is said."
    Options = Options
    columns = ()
    def compile(self, row):
        return ()
    def judge(self, samples):
        return [right() if self.options.word in s.completion else wrong() for s in samples]

class NoVerifier:
    pass
"""
KEYS = ["polite = plugin_kinds:Polite", "broken = plugin_missing:Thing", "bare = plugin_kinds:NoVerifier",
        "absent = plugin_kinds:Nothing", "math = plugin_kinds:Polite"]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one that brings kinds of verifiers, some of them broken."""
    (tmp_path / "plugin_kinds.py").write_text(PLUGIN)
    info = tmp_path / "plugin_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpo.verifiers]\n" + "\n".join(KEYS) + "\n")
    return tmp_path


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kinds]:
    monkeypatch.syspath_prepend(str(site))
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
        "import sys, grpo_verifiers; grpo_verifiers.build('exact');"
        "from grpo_cli.recipe.kinds import KINDS; KINDS['reward_model'];"
        "print('importlib.metadata' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_command_line_knows_kinds_of_packages(site: Path) -> None:
    import os

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}

    def grpo(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "grpo_cli", *args]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment)

    assert (
        "polite" in grpo("explain").stdout
        and "Right where the word is said" in grpo("explain", "polite").stdout
    )
    line = '{"completion": "yes please"}\n'
    assert grpo("verify", "-", "--verifier", "polite", stdin=line).returncode == 0
    assert "cannot be loaded from `plugin_missing:Thing`" in grpo("schema").stdout
    for args in (("explain", "broken"), ("verify", "-", "--verifier", "broken")):
        done = grpo(*args, stdin=line)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert done.stderr.count("cannot be loaded from `plugin_missing:Thing`") == 1, done.stderr


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_verifiers_that_fill_processes_run_elsewhere(kind: str) -> None:
    cls = kind_class(kind)
    assert cls.runs_elsewhere is (kind in {"code", "python", "sql", "command", "coq", "reasoning_gym"})
    assert cls.is_learned is (kind in {"reward_model", "judge"})
