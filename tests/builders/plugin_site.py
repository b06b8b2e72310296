"""A package that brings kinds of verifiers through entry points, as pip would install it."""

from __future__ import annotations

from pathlib import Path

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


def write_plugin_site(folder: Path) -> None:
    """Make the folder one of installed packages with one that brings kinds of verifiers, some of them broken."""
    (folder / "plugin_kinds.py").write_text(PLUGIN)
    info = folder / "plugin_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpo.verifiers]\n" + "\n".join(KEYS) + "\n")
