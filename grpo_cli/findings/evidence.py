"""The evidence for the findings of a run: the metrics behind them, completions that show them, and a command to run
next.

How this works: `diagnose` reads a run's folder and keeps the first finding of each code. `diagnosis` adds to it the
means of its metrics in `EVIDENCE` at the start of the run and at the finding's step, samples of the nearest step that
show it, and a command line that acts on it: mostly the run as it was started, with one key changed.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from grpo_cli.findings.finding import Finding
from grpo_cli.findings.run_data import RunData, collect
from grpo_cli.findings.samples import duplicate_rows, nearest_step, samples_behind, split_of
from grpo_cli.run.folder import RunFolder, typed_words
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import mean

WIDTH = 5
"""Number of steps that each value of the evidence is averaged over."""
EVIDENCE: dict[str, tuple[str, ...]] = {
    "W10": ("group/mixed", "group/all_wrong", "group/all_right"),
    "W11": ("group/all_wrong", "group/mixed", "right"),
    "W12": ("group/all_right", "group/mixed", "right"),
    "W20": ("truncated", "length/mean", "right"),
    "W21": ("length/right", "reward/total/mean"),
    "W22": ("length/mean", "right", "reward/total/mean"),
    "W23": ("repetition", "length/mean", "right"),
    "W30": ("entropy", "reward/total/mean"),
    "W31": ("kl", "reward/total/mean"),
    "W32": ("kl", "entropy", "right"),
    "W33": ("entropy/sampled", "entropy", "reward/total/mean", "group/all_wrong", "right"),
    "W34": ("critic/explained_variance", "value/mean", "return/mean", "critic/loss", "time/critic", "critic/mib"),
    "W35": ("group/distinct", "group/one_text", "entropy", "group/mixed"),
    "W40": ("error", "over_limit"),
    "W41": ("time/verify", "time/generate"),
    "W42": ("right", "error", "length/mean"),
    "W43": ("reward/total/mean", "reward/std_in_group"),
    "W44": ("right", "reward/total/mean"),
    "W45": ("reward/total/mean", "reward/std_in_group"),
    "W46": ("env/invalid", "turns/mean"),
    "W47": ("credit/milestone_without_success", "env/milestones", "env/milestones_again", "right"),
    "W48": ("credit/anchor_share", "credit/step_share", "credit/milestone_1/reached"),
    "W49": ("right", "reward/total/mean"),
    "W50": ("grad_norm", "loss"),
    "W51": ("loss", "grad_norm", "kl"),
    "W52": ("right", "grad_norm", "clip/total", "entropy", "kl"),
    "W53": ("eval/pass@1", "eval/greedy", "kl", "right"),
    "W54": ("eval/pass@1", "eval/greedy", "right"),
    "W61": ("rows/top_share", "rows/seen"),
    "W62": ("shape/alone", "group/all_wrong", "group/all_right", "right", "length/mean"),
    "W63": ("group/inverted", "right", "reward/total/mean"),
    "W64": ("length/mean", "distil/kl", "distil/rows", "think", "entropy"),
    "W65": ("distil/leak", "distil/rows"),
    "W71": ("canary/pass@1", "canary/drop", "canary/p"),
    "W70": ("eval/pass@1", "eval/gold/pass@1", "eval/gold/gap", "eval/gold/gap/low", "eval/gold/z", "eval/gold/fooled"),
}
"""Metrics shown with a finding; the parts of the reward join W43, W44 and W45."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One metric: its mean over the first steps of the run, and over the steps up to the finding; of held-out rows the
    first and the last measurement until then."""

    key: str
    start: float | None
    now: float | None


@dataclass(frozen=True)
class Diagnosis:
    """A finding with its evidence."""

    finding: Finding
    evidence: tuple[Evidence, ...]
    samples_step: int | None
    samples: tuple[SampleRecord, ...]
    next: str

    def as_json(self) -> dict[str, Any]:
        """The object in `--json`."""
        f = self.finding
        return {
            "code": f.code,
            "step": f.step,
            "text": f.text,
            "hint": f.hint,
            "evidence": {e.key: {"start": e.start, "now": e.now} for e in self.evidence},
            "samples_step": self.samples_step,
            "samples": [record.as_json() for record in self.samples],
            "next": self.next,
        }


def diagnose(folder: RunFolder) -> list[Diagnosis]:
    """The findings of a run, earliest first; one of a kind, where it was first seen.

    Raises:
        DataError: nothing was recorded yet, or a line is broken.
    """
    run = collect(folder)
    found: dict[str, Finding] = {}
    for finding in run.findings:
        found.setdefault(finding.code, finding)
    out = [diagnosis(run, finding) for finding in found.values()]
    if (copies := duplicate_rows(folder)) is not None:
        finding, samples = copies
        out.append(Diagnosis(finding, (), finding.step, tuple(samples), f"grpo check {_recipe(run)}"))
    return sorted(out, key=lambda d: d.finding.step)


def diagnosis(run: RunData, finding: Finding, most: int = 3) -> Diagnosis:
    """The finding with its evidence and at most `most` samples."""
    keys, split = EVIDENCE.get(finding.code, ()), split_of(finding.code)
    if finding.code in ("W43", "W44", "W45"):
        keys = (*(f"reward/{name}/mean" for name in run.names("reward/", "/mean") if name != "total"), *keys)
    history, width = (run.evaluations, 1) if split == "eval" else (run.steps, WIDTH)
    until = [m for m in history if int(m.get("step") or 0) <= finding.step]
    evidence = []
    for key in keys:
        if any(m.get(key) is not None for m in history):
            looks = (history[:width], until[-width:])
            start, now = (mean([float(v) for m in look if isinstance(v := m.get(key), int | float)]) for look in looks)
            evidence.append(Evidence(key, start, now))
    step = nearest_step(run.folder, finding.step, split)
    samples = samples_behind(finding.code, list(run.folder.samples(step, split)), most) if step is not None else []
    return Diagnosis(finding, tuple(evidence), step, tuple(samples), _next(run, finding, step))


def _next(run: RunData, finding: Finding, step: int | None) -> str:
    """A command that acts on the finding; the run is started again as it was, with one key changed."""
    code, rate = finding.code, run.recipe.get("train.lr")
    if code in ("W10", "W11", "W12"):
        return f"grpo probe {_recipe(run)}"
    if code == "W35":
        return f"grpo check {_recipe(run)}"
    if code == "W62":
        return _again(run, "train.alive_by=outcome")
    if code in ("W21", "W22", "W23", "W40", "W41", "W42", "W49", "W63", "W70", "W71") and step is not None:
        path, recipe = run.folder.sample_path(step, split_of(code)), run.folder.path / "recipe.yaml"
        return f"grpo verify {shlex.quote(str(path))} --recipe {shlex.quote(str(recipe))} --json --out /dev/null"
    if code == "W20":
        return _again(run, f"sample.max_tokens={2 * int(run.recipe.get('sample.max_tokens') or 512)}")
    if code == "W47":
        pays = run.recipe.get("train.credit.reward")
        if isinstance(pays, int | float):
            return _again(run, f"train.credit.reward={pays / 2:g}")
        return f"grpo report {shlex.quote(str(run.folder.path))}"
    if code in ("W43", "W44", "W45"):
        names = [n for n in run.names("reward/", "/mean") if n != "total"]
        other = next((n for n in names if not run.recipe.get(f"verify.{n}.primary")), names[-1])
        return _again(run, f"combine.gate.{other}=needs_right")
    return _again(run, f"train.lr={rate / 2:g}") if isinstance(rate, int | float) else _again(run)


def _again(run: RunData, change: str = "") -> str:
    """The command line that started the run, with one more `--set`, without the run's name and display options."""
    argv = typed_words(run.manifest)
    words = argv[argv.index("train") + 1 :] if "train" in argv else []
    kept, rest = list[str](), iter(words if "--resume" not in words else [])
    for word in rest:
        if word in ("--display", "--set"):
            value = next(rest, "")
            kept += [word, value] if word == "--set" and not value.startswith("run.name=") else []
        elif word != "--json":
            kept.append(word)
    return shlex.join(["grpo", "train", *(kept or [_recipe(run)]), *(["--set", change] if change else [])])


def _recipe(run: RunData) -> str:
    """The recipe as it was named on the command line, else the copy in the run's folder."""
    argv = typed_words(run.manifest)
    named = argv[argv.index("train") + 1 :][:1] if "train" in argv else []
    if named and not named[0].startswith("-"):
        return shlex.quote(named[0])
    return shlex.quote(str(run.folder.path / "recipe.yaml"))
