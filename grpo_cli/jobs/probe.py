"""`grpo probe`: the policy as training would start it, warm-up included, sampled on training rows.

`run_probe` samples and judges groups; with `probe_for_cards` it also measures the parts of one training step on this machine (one
rollout, one forward and backward pass; no weight changes) and computes from them what a run costs on other cards. The last
part is the text; model text is made harmless first.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.errors import SetupError
from grpo_cli.jobs.open_job import JudgedRows, OpenJob, open_start
from grpo_cli.measure.gate import bars, bound, causes, in_words
from grpo_cli.measure.probe import ProbeRun, ProbeSize, sample_probe
from grpo_cli.measure.probe_result import Probe, is_noisy
from grpo_cli.policy.loading.adapter import base_of
from grpo_cli.policy.loading.sizes import full_sizes
from grpo_cli.policy.model import device_name
from grpo_cli.policy.modes import causal_model
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.fused.update import update_patches
from grpo_cli.run.records import SampleRecord
from grpo_cli.sizing.cards import card_of
from grpo_cli.sizing.choose import hint_of
from grpo_cli.sizing.duration import StepCost
from grpo_cli.sizing.fit import CardQuestion, Fit, cards_of, fit, lengths_of, unfit
from grpo_cli.sizing.work import Work
from grpo_cli.statistics.estimate import Interval
from grpo_cli.text import Json, visible
from grpo_cli.train.packed.layout import plan as lay_out
from grpo_cli.train.packed.layout import shape_for
from grpo_cli.train.packed.score import ScoreNumerics, score
from grpo_cli.train.packed.self_check import unfit as not_packed

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Gate


TIMES = 2
"""Number of rollouts and passes in a measurement: the first builds kernels and captures graphs, the last is timed."""


@dataclass(frozen=True)
class Sampled:
    """A rollout: prompts and their completions, in order."""

    prompts: list[list[int]]
    completions: list[list[Completion]]


def why_unmeasured(job: OpenJob, work: Work) -> str | None:
    """The reason why no step can be measured here; None if one can."""
    if job.recipe.environment is not None:
        return "a step of episodes is not measured"
    if job.policy.vision is not None:
        return "a step of a model that reads images is not measured"
    if not work.is_packed:
        return "only the packed update of one process is measured"
    return not_packed(job.policy.model, _numerics(job))


def measure_step(job: OpenJob, work: Work) -> StepCost:
    """Seconds of a step's rollout and update, and the bytes of its pass at full length.

    Args:
        place: the open job; its policy is loaded as for training.
        work: the sizes of a step.

    Raises:
        SetupError: memory is short, or the model cannot be packed.
    """
    try:
        sampled, generate = _rollout(job, work)
        job.engine.release()
        prompt = len(sampled.prompts[0])
        longest = work.recipe.sample.max_tokens
        ids = [7 + i % 64 for i in range(max(prompt, longest))]
        groups = range(work.micro)
        _, peak = _passed(
            job, [([8 + row // work.recipe.sample.group, *ids[: prompt - 1]], ids[:longest]) for row in groups]
        )
        micro = [
            (prompt, completion.token_ids)
            for prompt, group in zip(sampled.prompts, sampled.completions, strict=True)
            for completion in group
        ][: work.micro]
        seconds, _ = _passed(job, micro)
    except torch.OutOfMemoryError as err:
        raise SetupError("a step was tried here, and its memory is not there", hint="see the sum below") from err
    lengths = [len(completion.token_ids) for group in sampled.completions for completion in group]
    return StepCost(generate, seconds * work.rows / work.micro, peak, sum(lengths) / len(lengths))


def _rollout(job: OpenJob, work: Work) -> tuple[Sampled, float]:
    rows = job.train.rows
    chosen = random.Random(job.recipe.train.seed).choices(rows, k=max(1, round(work.prompts)))
    prompts = [job.policy.encode(row) for row in chosen]
    requests = [Request(prompt, job.recipe.sample.group) for prompt in prompts]
    settings = SamplingSettings.of(job.recipe.sample, job.recipe.train.seed)
    for _ in range(TIMES):
        began = _now()
        completions = job.engine.generate(requests, settings)
        seconds = _now() - began
    return Sampled(prompts, completions), seconds


def _passed(job: OpenJob, rows: list[tuple[list[int], list[int]]]) -> tuple[float, int | None]:
    """Seconds of a forward and backward pass, and the bytes it takes at most; None on a CPU."""
    policy = job.policy
    base, device, on_cuda = causal_model(policy.model), policy.device, policy.device.type == "cuda"
    lead, keep = max(len(p) for p, _ in rows), max(len(c) for _, c in rows)
    ids = [[0] * (lead - len(p)) + p + c + [0] * (keep - len(c)) for p, c in rows]
    mask = [[0] * (lead - len(p)) + [1] * (len(p) + len(c)) + [0] * (keep - len(c)) for p, c in rows]
    laid = lay_out(torch.tensor(ids), torch.tensor(mask), keep)
    if laid is None:
        raise SetupError("the rows of a step cannot be packed here")
    numerics, shape = _numerics(job), shape_for(laid.need)
    patches = update_patches(policy.model, policy.autocast) if on_cuda else []
    seconds, before = 0.0, 0
    for _ in range(TIMES):
        policy.model.zero_grad(set_to_none=True)
        if on_cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        began = _now()
        with patched(patches), torch.enable_grad():
            logps, _ = score(base, laid.fill(shape, device), numerics)
            torch.autograd.backward(logps.sum())
        seconds = _now() - began
    peak = None
    if on_cuda:  # gradients are counted with the memory held between steps
        grads = sum(p.grad.nbytes for p in policy.model.parameters() if p.grad is not None)
        peak = torch.cuda.max_memory_allocated() - before - grads
    policy.model.zero_grad(set_to_none=True)
    return seconds, peak


def _numerics(job: OpenJob) -> ScoreNumerics:
    return ScoreNumerics(job.policy.autocast, job.recipe.sample.temperature, False)


def _now() -> float:
    """Seconds, once the device is idle."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


MOST_PROMPTS = 256
"""Number of prompts whose tokens are counted for the estimate."""


@dataclass(frozen=True)
class Probed:
    """The results, and whether the run fits the named GPUs; `unsaid` is the reason if that is unknown."""

    run: ProbeRun
    fit: Fit | None = None
    unsaid: str | None = None

    def asked_json(self) -> dict[str, Json]:
        """The additional fields of `--json` if GPUs were named; `fit` is null if unknown."""
        if self.fit is None and self.unsaid is None:
            return {}
        return {"fit": None if self.fit is None else self.fit.as_json()}


def run_probe(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    size: ProbeSize,
    seed: int | None = None,
    ask: CardQuestion | None = None,
    first: JudgedRows | None = None,
) -> Probed:
    """Load rows, golds and model, warm it up where the recipe asks for it, and sample; `first`: the rows that are open already.

    With `ask` it also estimates whether the run fits these GPUs, from the lengths of the samples, and from a measured
    step if such a GPU is here.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
        UsageError: the recipe launches another number of cards.
    """
    if ask is not None:
        cards_of(recipe, ask.cards)
    with open_start(recipe, base, display, splits=["train"], trains=ask is not None, first=first) as job:
        found = sample_probe(
            job.recipe,
            job.train,
            job.judge,
            job.engine,
            job.policy,
            size,
            seed=seed,
            base=job.base,
            is_noisy=is_noisy(job.recipe),
            device=device_name(job.policy.device),
            on_progress=lambda n, total: job.display.progress("probe", n, total),
        )
        return Probed(found) if ask is None else _asked(job, found, ask)


def _asked(job: OpenJob, found: ProbeRun, ask: CardQuestion) -> Probed:
    recipe, drawn = job.recipe, found.probe
    sizes = full_sizes(base_of(recipe.model, 0).model)
    why = "the sizes of this model are not known here" if sizes is None else unfit(recipe, sizes)
    if sizes is None or why is not None:
        return Probed(found, unsaid=why)
    rows = job.train.rows
    chosen = Random(recipe.train.seed).sample(rows, min(MOST_PROMPTS, len(rows)))
    counts = [len(job.policy.encode(row)) for row in chosen]
    longest = max((record.tokens for record in found.records), default=recipe.sample.max_tokens)
    lengths = lengths_of(counts, recipe.sample.max_tokens, drawn.mean_tokens, longest)
    here = device_name(job.policy.device)
    measure = partial(_measured, job) if card_of(here) == ask.cards.card else None
    return Probed(found, fit(recipe, sizes, plan(recipe, len(rows)), lengths, ask, measure=measure))


def _measured(job: OpenJob, work: Work) -> StepCost | None:
    why = why_unmeasured(job, work)
    if why is not None:
        job.display.note("info", f"no step is measured: {why}")
        return None
    try:
        return measure_step(job, work)
    except SetupError as err:  # keep the samples' results; the estimate reports the reason
        job.display.note("warn", str(err))
        return None


INDENT = 10
MOST_REASONS = 4
ENDS = 160
"""Characters shown of the end of an example, where the answer is."""


def table(found: ProbeRun, model: str, temperature: float) -> list[str]:
    """Everything but the gate."""
    p = found.probe
    numbers = (("mean", p.mean_tokens), ("p95", p.p95_tokens), ("p95 of right", p.right_p95_tokens))
    said = "   ".join(f"{name} {'—' if value is None else f'{value:.0f}'}" for name, value in numbers)
    reasons = list(p.reasons.items())[:MOST_REASONS]
    lines = [
        _line(
            "probe",
            f"{visible(model)}   {len(p.prompts)} prompts x {p.samples} samples, at most {p.max_tokens} tokens,"
            f" temperature {temperature:g}   {found.seconds:.1f}s on {found.device}",
        ),
        _line("pass@1", f"{in_words(p.pass_1)}" + (f"   pass@{p.samples} {in_words(p.pass_k)}" if p.pass_k else "")),
        _line("outcomes", "   ".join(f"{n.replace('_', ' ')} {_share(s)}" for n, s in p.outcomes.items())),
        *([_line("errors", visible(p.failures.text()))] if p.failures.failed else []),
        *([_line("reasons", "   ".join(f"{visible(reason)} {n}" for reason, n in reasons))] if reasons else []),
        _line("length", f"{said}   limit {p.max_tokens}   truncated {_share(p.truncated)}"),
        _line("prompts", "   ".join(f"{k}/{p.samples} {n}" for k, n in p.histogram().items() if n)),
    ]
    if p.distinct is not None:
        lines.append(_line("texts", f"{p.distinct:.1f} different of {p.samples} samples"))
    if p.equal_rewards is not None:
        lines.append(_line("rewards", f"the same in all {p.samples} samples for {p.equal_rewards:.0%} of prompts"))
    if p.noise is not None:
        said = f"{p.noise.sigma:.3g} on one answer, by {p.noise.n} scored twice; a spread below {p.noise.floor(p.group):.3g} in a"
        lines.append(_line("noise", f"{said} group of {p.group} is noise: `train.std_floor: noise`, or that number"))
    lines += _forecasts(p)
    for cause in causes(p):
        lines += [_line("why", cause.text), f"{'':<{INDENT}}hint: {cause.hint}"]
    for kind, records in p.examples.items():
        for record in records:
            lines += ["", _line(kind.replace("_", " "), f"{visible(record.row)}   {_about(record)}")]
            end = visible(" ".join(record.completion.split()))[-ENDS:]
            lines.append(f"{'':<{INDENT}}… {end}" if record.completion else f"{'':<{INDENT}}(empty)")
    return lines


def gate_lines(probe: Probe, gate: Gate | None) -> list[str]:
    """Each bar, and go or no-go as the last line."""
    if gate is None:
        return ["", "no `gate` in the recipe: no verdict"]
    checks = bars(probe, gate)
    lines = [""]
    for bar in checks:
        word = "met" if bar.is_met else "missed"
        close = "   close: more prompts would tell" if bar.is_close else ""
        lines.append(_line("gate", f"{word:<7} {bar.name} {in_words(bar.value)}   {bound(bar)}{close}"))
    missed = sum(not bar.is_met for bar in checks)
    return [*lines, f"no-go: {missed} of {len(checks)} bars missed" if missed else "go"]


def _forecasts(p: Probe) -> list[str]:
    if not p.forecasts:
        return [_line("groups", "— no prompt has two verdicts")]
    lines = [_line("groups", "  size   all wrong   all right   dead")]
    for f in p.forecasts:
        mark = "*" if f.group == p.group else " "
        about = "   extrapolated" if f.is_extrapolated else ""
        dead = f"{f.dead.mean:>5.0%} [{f.dead.low:.0%}, {f.dead.high:.0%}]"
        lines.append(f"{'':<{INDENT}}{mark} {f.group:>4} {f.all_wrong:>11.0%} {f.all_right:>11.0%}  {dead}{about}")
    if p.pays is None:
        said = f"no group of up to {p.forecasts[-1].group} would pay: hardly any would have right and wrong answers"
    else:
        larger = next((f for f in p.forecasts if f.group > p.pays.group), None)
        gain = f"; {larger.group} would add {max(0.0, larger.signal - p.pays.signal):.0%}" if larger else ""
        said = f"a group of {p.pays.group}: signal in {p.pays.signal:.0%} of groups{gain}   (* the recipe's: {p.group})"
    return [*lines, _line("pays", said)]


def _about(record: SampleRecord) -> str:
    """Answer found, answer wanted, reason."""
    parts = [f"{record.tokens} tokens" + (", cut off" if record.truncated else "")]
    for name, verdict in record.verdicts.items():
        answer = f" {_short(verdict.answer)}" if verdict.answer is not None else ""
        parts.append(
            f"{name}: {verdict.outcome.value}{answer}" + (f" ({visible(verdict.reason)})" if verdict.reason else "")
        )
    if (wanted := record.fields.get("answer")) is not None:
        parts.append(f"expected {_short(str(wanted))}")
    return "   ".join(parts)


def _share(interval: Interval) -> str:
    return f"{interval.mean:.1%}"


def _short(text: str, most: int = 40) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _line(name: str, text: str) -> str:
    return f"{name:<{INDENT}}{text}"


def lines_of(found: Probed, gate: Gate | None, model: str, temperature: float) -> Sequence[str]:
    """The whole page; where cards were asked about, whether the run fits them."""
    fits: list[str] = []
    if found.fit is not None:
        hint = hint_of(found.fit)
        about = [*found.fit.lines(), *([f"hint: {hint}"] if hint else [])]
        fits = ["", _line("fit", found.fit.message()), *(f"{'':<{INDENT}}{line}" for line in about)]
    elif found.unsaid is not None:
        fits = ["", _line("fit", f"unknown: {found.unsaid}")]
    return [*table(found.run, model, temperature), *fits, *gate_lines(found.run.probe, gate)]
